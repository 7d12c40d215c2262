"""Attacks on the server's labels, one attack a file."""
