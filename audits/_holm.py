"""Several claims in one report: Holm's correction of their p-values."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

__all__ = ["holm", "holm_adjusted"]


def holm_adjusted(p_values: Sequence[float]) -> list[float]:
    """Holm's (1979) adjusted p-values, in the order given: reject at alpha those that are at most alpha.

    The probability of one wrong rejection or more is then at most alpha, however the tests depend on each other.

    >>> [round(p, 3) for p in holm_adjusted([0.01, 0.04, 0.03])]
    [0.03, 0.06, 0.06]
    """
    p = np.asarray(p_values, dtype=np.float64)
    if not np.all((p >= 0) & (p <= 1)):
        raise ValueError(f"Expected p-values between 0 and 1, found {list(p_values)}.")
    order = np.argsort(p, kind="stable")
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1)))
    return [float(a) for a in adjusted]


def holm(p_values: Sequence[float], alpha: float) -> list[bool]:
    """Which hypotheses Holm's step-down procedure rejects at family-wise error `alpha`, in the order given.

    >>> holm([0.01, 0.04, 0.03], 0.05)
    [True, False, False]
    """
    return [p <= alpha for p in holm_adjusted(p_values)]
