"""Attacks, one a file in the room of its target. Each reads one adversary's view and guesses what it does not show."""
