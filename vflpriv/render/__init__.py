"""Results in every output format, one module each."""
