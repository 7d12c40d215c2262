"""Training engines, one a file, and the noise mechanisms they are given."""
