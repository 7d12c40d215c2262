"""Attacks, one idea per file. Each reads one adversary's view and returns guesses of what should stay private."""
