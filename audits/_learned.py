"""A score learned on trials of its own: shrunken linear discriminant analysis of a view's features."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["discriminant"]

Floats = NDArray[np.float64]
_SHRINKAGE = 0.05


def discriminant(inside: Floats, outside: Floats) -> tuple[Floats, float]:
    """Weights w and offset b of the score w·x + b, positive for rows like `inside`, (n, features) each.

    The pooled covariance is mixed with its diagonal, so that it can be inverted with few trials. Columns that never
    vary are left out of account.
    """
    both = np.concatenate((inside, outside))
    centre, spread = both.mean(0), both.std(0)
    scale = np.where(spread > 0, 1 / np.maximum(spread, 1e-300), 0.0)
    a, b = (inside - centre) * scale, (outside - centre) * scale
    gap, middle = a.mean(0) - b.mean(0), (a.mean(0) + b.mean(0)) / 2
    residuals = np.concatenate((a - a.mean(0), b - b.mean(0)))
    covariance = residuals.T @ residuals / len(residuals)
    diagonal = np.diag(np.maximum(np.diag(covariance), 1e-9))
    weights = np.linalg.solve((1 - _SHRINKAGE) * covariance + _SHRINKAGE * diagonal, gap)
    return weights * scale, float(-weights @ middle - (weights * scale) @ centre)
