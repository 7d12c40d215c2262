"""Mechanisms: they clip, add noise, and describe the release."""
