"""What each kind of result says, described once: one module per kind, from the result to its document."""
