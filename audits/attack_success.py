"""How often an attack was right, against how often a blind guess would be."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from vflpriv.attempts import LabelGuess
from vflpriv.audits._bounds import interval

__all__ = ["Success", "label_success"]


@dataclass(frozen=True, kw_only=True)
class Success:
    """Share of right guesses with its Clopper-Pearson interval, beside the share of the commonest label."""

    rate: float
    low: float
    high: float
    chance: float
    guesses: int


def label_success(guess: LabelGuess, truth: Tensor, *, confidence: float) -> Success:
    """Score a label guess. Records count as trials, given the one training of replica 0."""
    labels = truth.index_select(0, guess.records.to(truth.device))
    right = int((guess.labels[0].to(truth.device) == labels).sum())
    count = len(labels)
    low, high = interval(right, count, confidence)
    chance = float(torch.bincount(labels).max()) / count
    return Success(rate=right / count, low=low, high=high, chance=chance, guesses=count)
