"""Users' trainings under the tracer: the wire that they are given, their private values, scripts as programs."""
