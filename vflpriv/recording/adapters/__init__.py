"""Recorders for systems that are written in other frameworks, one module each; a framework is not imported by it."""
