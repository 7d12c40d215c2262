"""Recorded trainings: what adversaries see of them, and attacks on features and membership."""
