"""Verdicts: what is said of a claim."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

__all__ = ["MIN_TRIALS", "SEVERITY", "Verdict", "Word"]

MIN_TRIALS = 30
"""Trials in each world below which no test is said to refute a claim, unless a configuration says otherwise."""


class Word(StrEnum):
    """The four things that can be said of a claim. "Not refuted" is never "verified"."""

    CONSISTENT = "consistent"
    VIOLATED = "violated"
    UNSUPPORTED = "unsupported"
    NOT_APPLICABLE = "not applicable"


SEVERITY = (Word.VIOLATED, Word.UNSUPPORTED, Word.CONSISTENT, Word.NOT_APPLICABLE)
"""The gravest first."""


@dataclass(frozen=True)
class Verdict:
    """One word, and the sentence that a reviewer can quote."""

    word: Word
    reason: str
