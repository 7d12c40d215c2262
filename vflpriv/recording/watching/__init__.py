"""Watches a training in PyTorch: messages are taken from its modules, and what is recorded is checked meanwhile."""
