"""Models with a replica axis, and how settings choose among them."""
