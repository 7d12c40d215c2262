"""Experiments of many trainings, one room each: published tables trained again, and the best accuracy at each ε."""
