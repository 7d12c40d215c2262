"""What a few known records say of all others: a Gaussian, plain or given the features that the adversary holds."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["conditional", "gaussian"]

_FLOOR = 1e-6


def gaussian(block: Tensor) -> tuple[Tensor, Tensor]:
    """μ (d,) and L (d, d) with covariance LᵀL of rows (n, d): x = μ + zL for a standard normal z."""
    mean, covariance = _moments(block)
    return mean, _root(covariance)


def conditional(block: Tensor, given: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """The same of `block` (n, d) given what is beside it, `given` (n, e): μ (N, d) of all `rows` (N, e), and L."""
    d = block.shape[1]
    mean, covariance = _moments(torch.cat((block, given), dim=1))
    inner = covariance[d:, d:] + _FLOOR * torch.eye(given.shape[1], device=block.device, dtype=covariance.dtype)
    slope = torch.linalg.solve(inner, covariance[d:, :d])
    means = mean[:d] + (rows.to(mean.dtype) - mean[d:]) @ slope
    return means, _root(covariance[:d, :d] - covariance[:d, d:] @ slope)


def _moments(block: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and covariance, the latter drawn towards its diagonal by as much as its entries' own errors suggest.

    The share is Schäfer and Strimmer's (2005): the sum of the off-diagonal entries' variances over that of their
    squares.
    """
    rows, count = block.flatten(1), len(block)
    mean = rows.mean(0)
    centred = rows - mean
    products = centred.T @ centred
    covariance = products / max(1, count - 1)
    errors = centred.square().T @ centred.square() - products.square() / count
    variance = count / max(1, count - 1) ** 3 * errors
    outside = 1 - torch.eye(rows.shape[1], device=rows.device, dtype=rows.dtype)
    share = ((variance * outside).sum() / (covariance.square() * outside).sum().clamp(min=1e-30)).clamp(1e-4, 1.0)
    return mean, (1 - share) * covariance + share * torch.diag(covariance.diagonal())


def _root(covariance: Tensor) -> Tensor:
    values, vectors = torch.linalg.eigh(covariance)
    root: Tensor = values.clamp(min=_FLOOR).sqrt().unsqueeze(1) * vectors.T
    return root
