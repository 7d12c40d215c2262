"""Audits of recorded trainings: the transcript against the ledger file that describes it."""
