"""The mean test for scores that are exact log-likelihood ratios of Gaussian releases with a known noise."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr, ndtri

__all__ = ["known_sigma", "p_value_known_sigma"]


def known_sigma(scores_in: ArrayLike, scores_out: ArrayLike, confidence: float) -> float:
    """A lower bound on mu from log-likelihood ratios that are N(±mu²/2, mu²).

    With n trials in each world the difference D of the means is N(mu², 2mu²/n). P[D > mu² + z mu √(2/n)] = alpha for
    z = Phi^-1(1 - alpha); the bound is the root of mu² + z mu √(2/n) = D, and 0 for D <= 0. Valid only where the score
    has that law: Gaussian noise of the declared std, known batches, all state post-processing of releases. It says
    nothing about a mechanism that adds less noise than it declares: thresholds and the noise audit do.

    >>> round(known_sigma([2.5, 1.5], [-1.5, -2.5], 0.95), 4)
    1.3401
    """
    spread, gap = _spread(scores_in, scores_out), _gap(scores_in, scores_out)
    if not 0 < confidence < 1:
        raise ValueError(f"Expected 0 < confidence={confidence:g} < 1.")
    half = float(ndtri(confidence)) * spread / 2
    return max(0.0, math.sqrt(half**2 + gap) - half) if gap > 0 else 0.0


def p_value_known_sigma(scores_in: ArrayLike, scores_out: ArrayLike, mu: float) -> float:
    """The p-value of "mu at most this", under the same law; the other side of `known_sigma`."""
    if not mu > 0:
        raise ValueError(f"Expected mu={mu} > 0.")
    standard = (_gap(scores_in, scores_out) - mu**2) / (mu * _spread(scores_in, scores_out))
    return float(ndtr(-standard))


def _gap(scores_in: ArrayLike, scores_out: ArrayLike) -> float:
    return float(np.asarray(scores_in, dtype=np.float64).mean() - np.asarray(scores_out, dtype=np.float64).mean())


def _spread(scores_in: ArrayLike, scores_out: ArrayLike) -> float:
    """√(1/n + 1/m): the std of the gap, over mu."""
    sizes: Sequence[int] = (np.size(scores_in), np.size(scores_out))
    if min(sizes) < 1:
        raise ValueError(f"Expected trials in both worlds, found {sizes[0]} and {sizes[1]}.")
    return math.sqrt(sum(1 / n for n in sizes))
