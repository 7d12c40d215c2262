"""The commands about transcripts: draft a ledger, and merge the parties' own transcripts."""

from __future__ import annotations

__all__ = ["ledger", "merge"]


def ledger() -> None:
    """x"""


def merge() -> None:
    """x"""
