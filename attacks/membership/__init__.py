"""Attacks on membership, which tell the records a model was trained on, one attack a file."""
