"""Attacks on the server's labels that train models of their own, one attack a file."""
