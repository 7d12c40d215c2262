"""Attacks on texts, which read tokens off what a device sends of them, one attack a file."""
