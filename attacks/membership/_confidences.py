"""Predictions of candidates, as membership attacks read them: which message holds them, and their log-odds."""

from __future__ import annotations

import torch
from torch import Tensor

from vflpriv.core.views import View
from vflpriv.core.wire import Message

__all__ = ["NO_PREDICTIONS", "asked", "log_odds"]

NO_PREDICTIONS = "needs predictions of candidates, and which candidate each belongs to"


def asked(view: View) -> Message | None:
    """The message with the predictions of candidates that it names; None without one."""
    return next((m for m in view.of_kind("predictions") if m.records is not None), None)


def log_odds(confidences: Tensor, labels: Tensor) -> Tensor:
    """ln p_y - ln Σ of the other classes, (…, n), of class probabilities (…, n, classes).

    It is exact where 1 - p_y would round to zero.
    """
    right = torch.nn.functional.one_hot(labels, confidences.shape[-1]).bool()
    own = confidences.masked_fill(~right, 0).sum(-1)
    others = confidences.masked_fill(right, 0).sum(-1)
    return (own.clamp(min=1e-300) / others.clamp(min=1e-300)).log()
