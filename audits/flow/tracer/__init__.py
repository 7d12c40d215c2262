"""The tracer: follows private values and draws through every operation of torch, in both worlds at once."""
