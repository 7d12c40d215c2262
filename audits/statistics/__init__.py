"""Bounds and tests, from counts and scores to ε, μ and p-values."""
