"""Confidence intervals over records: the bootstrap for ratios of sums, DeLong's for the area under the ROC curve."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache
from itertools import islice

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import expit, logit, ndtri
from torch import Tensor

from vflpriv.common.numerics import Floats
from vflpriv.common.seeds import host_generator

__all__ = ["auc_interval", "mean_over_records", "ratio_over_records", "ratios_over_records"]

_DRAWS = 1000
_PIECE = 100
"""Bootstrap samples that are drawn at a time."""
_FEW = 5000
"""Bootstrap samples of up to so many records are kept for later."""


def ratio_over_records(above: Floats, below: Floats, *, confidence: float, seed: int = 0) -> tuple[float, float, float]:
    """Σ above / Σ below, with the ends of its bootstrap-t interval."""
    ratios, low, high = ratios_over_records(above[:, None], below[:, None], confidence=confidence, seed=seed)
    return float(ratios[0]), float(low[0]), float(high[0])


def ratios_over_records(
    above: Floats, below: Floats, *, confidence: float, seed: int = 0, draws: int = _DRAWS
) -> tuple[Floats, Floats, Floats]:
    """For each column of (n, d) values: Σ above / Σ below, and the ends of its bootstrap-t interval.

    Records are drawn with replacement, `draws` times. Each draw's deviation is measured in its own standard error (of a
    ratio, by linearisation), which corrects for the skewness that makes plain percentiles too narrow with few records.
    A column whose Σ below is 0 is divided by 1.
    """
    count = len(above)
    total = below.sum(0)
    total = np.where(total > 0, total, 1.0)
    ratio = above.sum(0) / total
    error = _error(np.square(above - ratio * below).sum(0), total)
    if count < 2 or not error.any():
        return ratio, ratio, ratio
    # A draw's counts of the records times these columns are the sums that its ratio and standard error need.
    columns = np.concatenate((above, below, above * above, above * below, below * below), axis=1)
    pieces, deviations = draws // _PIECE, []
    drawn_counts = _kept(seed, count) if draws <= _DRAWS and count <= _FEW else _drawn(seed, count, pieces)
    for counts in islice(drawn_counts, pieces):
        a, b, aa, ab, bb = np.split(counts.astype(np.float64) @ columns, 5, axis=1)
        b = np.maximum(b, 1e-9 * total)
        drawn = a / b
        spread = _error(np.maximum(aa - 2 * drawn * ab + drawn * drawn * bb, 0), b)
        deviations.append((drawn - ratio) / np.maximum(spread, np.maximum(1e-3 * error, 1e-300)))
    low, high = np.quantile(np.concatenate(deviations), [0.5 + confidence / 2, 0.5 - confidence / 2], axis=0)
    return ratio, ratio - low * error, ratio - high * error


def _drawn(seed: int, count: int, pieces: int) -> Iterator[NDArray[np.uint32]]:
    """How often each of so many records is in each bootstrap sample, (samples, count) at a time."""
    generator = host_generator(seed, "search", count)
    for _ in range(pieces):
        rows = generator.integers(0, count, (_PIECE, count)) + count * np.arange(_PIECE)[:, None]
        yield np.bincount(rows.ravel(), minlength=_PIECE * count).reshape(_PIECE, count).astype(np.uint32)


@lru_cache(maxsize=8)
def _kept(seed: int, count: int) -> tuple[NDArray[np.uint32], ...]:
    """All pieces, kept in memory: they depend on the seed and the number of records alone, whatever is scored."""
    return tuple(_drawn(seed, count, _DRAWS // _PIECE))


def _error(squares: Floats, total: Floats) -> Floats:
    """The standard error of a ratio from the sum of the records' squared residuals, but for √(n / (n - 1)).

    Draws have as many records as the sample, so that this factor cancels.
    """
    error: Floats = np.sqrt(squares) / total
    return error


def mean_over_records(values: Floats, *, confidence: float, seed: int = 0) -> tuple[float, float, float]:
    """The mean and its bootstrap-t interval."""
    return ratio_over_records(values, np.ones_like(values), confidence=confidence, seed=seed)


def auc_interval(zeros: Tensor, ones: Tensor, confidence: float) -> tuple[float, float, float]:
    """The area under the ROC curve (the chance that a one scores higher than a zero, ties half) with its interval.

    The interval is DeLong's on the logit scale. Where the scores of ones and zeros do not overlap, DeLong's variance is
    zero; then the end is the exact binomial bound of min(n₀, n₁) disjoint pairs that are all ordered rightly.
    """
    of_ones = _below(zeros.sort().values, ones) / len(zeros)
    under_zeros = _below(ones.sort().values, zeros) / len(ones)
    value = float(of_ones.mean())
    tail, pairs = 0.5 - confidence / 2, min(len(zeros), len(ones))
    if value in (0.0, 1.0) or pairs < 2:
        reach = tail ** (1 / max(1, pairs))
        return value, (reach if value == 1.0 else 0.0), (1 - reach if value == 0.0 else 1.0)
    variance = float(of_ones.var() / len(ones) + under_zeros.var() / len(zeros))
    reach = float(ndtri(1 - tail)) * math.sqrt(variance) / (value * (1 - value))
    return value, float(expit(logit(value) - reach)), float(expit(logit(value) + reach))


def _below(ordered: Tensor, scores: Tensor) -> Tensor:
    """For each score, how many of the `ordered` ones lie below it; ties count half."""
    less, up_to = torch.searchsorted(ordered, scores), torch.searchsorted(ordered, scores, right=True)
    return (less + up_to).to(torch.float64) / 2
