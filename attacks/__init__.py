"""Attacks, one a file: each reads a view and says how often it succeeds, with its interval and chance level."""
