"""Trainings in neighbouring worlds: canaries, trials, probes, and the store of finished trials."""
