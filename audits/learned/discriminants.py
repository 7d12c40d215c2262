"""Linear discriminants: which of several classes a row of features is most like."""

from __future__ import annotations

import numpy as np

from vflpriv.common.numerics import Floats

__all__ = ["discriminant", "discriminants"]

_SHRINKAGE = 0.05


def discriminants(residuals: Floats, means: Floats, *, share: float, least: float) -> tuple[Floats, Floats]:
    """Weights (columns, k) and offsets (k,) of the log-densities of k Gaussians, up to a term that all of them share.

    They have these means (k, columns) and one covariance, that of the residuals (n, columns). A share of it is replaced
    by its diagonal, so that it can be inverted with few rows; no variance counts as smaller than `least`.
    """
    covariance = residuals.T @ residuals / len(residuals)
    diagonal = np.diag(np.maximum(np.diag(covariance), least))
    weights: Floats = np.linalg.solve((1 - share) * covariance + share * diagonal, means.T).astype(np.float64)
    return weights, -(means.T * weights).sum(0) / 2


def discriminant(inside: Floats, outside: Floats) -> tuple[Floats, float]:
    """Weights w and offset b of the score w·x + b, positive for rows like `inside`, (n, features) each.

    Columns that never vary are left out of account.
    """
    both = np.concatenate((inside, outside))
    centre, spread = both.mean(0), both.std(0)
    scale = np.where(spread > 0, 1 / np.maximum(spread, 1e-300), 0.0)
    a, b = (inside - centre) * scale, (outside - centre) * scale
    means = np.stack((a.mean(0), b.mean(0)))
    residuals = np.concatenate((a - means[0], b - means[1]))
    weights, offsets = discriminants(residuals, means, share=_SHRINKAGE, least=1e-9)
    apart = (weights[:, 0] - weights[:, 1]) * scale
    return apart, float(offsets[0] - offsets[1] - apart @ centre)
