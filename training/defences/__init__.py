"""Defences of the literature, one a file: each changes the messages of any engine that sends what it protects."""
