"""Scores learned from what a view shows: features of its messages, learners, and canaries of recorded trainings."""
