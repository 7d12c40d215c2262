"""Audits, one a file: each measures a lower bound on epsilon or checks a release, through a view."""
