"""Audits, one per file, each of which tests claims or checks a premise of them; and the verdict that follows."""
