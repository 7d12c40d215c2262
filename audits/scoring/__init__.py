"""Scores of trials in two worlds, and of attacks on labels, features and membership."""
