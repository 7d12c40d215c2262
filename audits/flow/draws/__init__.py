"""Random draws of a program: their laws, what is made of them, and how they lie over values."""
