"""Models with a replica axis, the architectures of the papers, and how settings choose among them."""
