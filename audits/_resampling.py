"""Intervals over records: the bootstrap for ratios of sums, and DeLong's for the area under the ROC curve."""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import expit, logit
from scipy.stats import norm
from torch import Tensor

from vflpriv.seeds import host_generator

__all__ = ["Floats", "auc_interval", "mean_over_records", "ratio_over_records"]

_DRAWS = 1000
_PIECE = 100
Floats = NDArray[np.float64]


def ratio_over_records(above: Floats, below: Floats, *, confidence: float, seed: int = 0) -> tuple[float, float, float]:
    """Σ above / Σ below, with the ends of its bootstrap-t interval: records drawn with replacement, `_DRAWS` times.

    Each draw's deviation is measured in its own standard error (of a ratio, by linearisation), which corrects for
    the skewness that makes plain percentiles too narrow with few records.
    """
    ratio, error = _ratio(above[None], below[None])
    if len(above) < 2 or error[0] == 0:
        return float(ratio[0]), float(ratio[0]), float(ratio[0])
    generator, found = host_generator(seed, "search", len(above)), []
    for _ in range(_DRAWS // _PIECE):
        rows = generator.integers(0, len(above), (_PIECE, len(above)))
        drawn, spread = _ratio(above[rows], below[rows])
        found.append((drawn - ratio[0]) / np.maximum(spread, 1e-3 * error[0]))
    low, high = np.quantile(np.concatenate(found), [0.5 + confidence / 2, 0.5 - confidence / 2])
    return float(ratio[0]), float(ratio[0] - low * error[0]), float(ratio[0] - high * error[0])


def _ratio(above: Floats, below: Floats) -> tuple[Floats, Floats]:
    """Ratios of sums over the last axis and their standard errors."""
    count, total = above.shape[-1], np.maximum(below.sum(-1), 1e-300)
    ratio = above.sum(-1) / total
    left = above - ratio[..., None] * below
    return ratio, np.sqrt(count / max(1, count - 1) * np.square(left).sum(-1)) / total


def mean_over_records(values: Floats, *, confidence: float, seed: int = 0) -> tuple[float, float, float]:
    """The mean and its bootstrap-t interval."""
    return ratio_over_records(values, np.ones_like(values), confidence=confidence, seed=seed)


def auc_interval(zeros: Tensor, ones: Tensor, confidence: float) -> tuple[float, float, float]:
    """The chance that a one scores higher than a zero, ties half; DeLong's interval on the logit scale.

    Where the two never overlap its variance is zero; then the bound is that of min(n₀, n₁) disjoint pairs, all right.
    """
    below, above = zeros.sort().values, ones.sort().values
    of_ones = _below(below, ones) / len(zeros)
    of_zeros = 1 - _below(above, zeros) / len(ones)
    value = float(of_ones.mean())
    tail, pairs = 0.5 - confidence / 2, min(len(zeros), len(ones))
    if value in (0.0, 1.0) or pairs < 2:
        reach = tail ** (1 / max(1, pairs))
        return value, (reach if value == 1.0 else 0.0), (1 - reach if value == 0.0 else 1.0)
    variance = float(of_ones.var() / len(ones) + of_zeros.var() / len(zeros))
    reach = float(norm.ppf(1 - tail)) * math.sqrt(variance) / (value * (1 - value))
    return value, float(expit(logit(value) - reach)), float(expit(logit(value) + reach))


def _below(ordered: Tensor, scores: Tensor) -> Tensor:
    """For each score, how many of the others lie below it; ties count half."""
    less, up_to = torch.searchsorted(ordered, scores), torch.searchsorted(ordered, scores, right=True)
    return (less + up_to).to(torch.float64) / 2
