"""Programs without a tracer: the wire that they are given, and plain runs of both worlds."""
