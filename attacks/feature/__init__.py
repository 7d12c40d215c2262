"""Attacks on one device's features, or on one sensitive column of them, one attack a file."""
