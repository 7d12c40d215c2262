"""Executors: where the independent pieces of an audit or an attack run."""
