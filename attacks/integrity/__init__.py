"""Attacks on what the trained model predicts, by dishonest devices."""
