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
    """Mean and covariance; the fewer the rows, the more the latter is drawn towards its diagonal."""
    rows = block.flatten(1)
    count, width = rows.shape
    covariance = torch.cov(rows.T).reshape(width, width)
    share = min(0.9, 2 * width / (count + 2 * width))
    return rows.mean(0), (1 - share) * covariance + share * torch.diag(covariance.diagonal())


def _root(covariance: Tensor) -> Tensor:
    values, vectors = torch.linalg.eigh(covariance)
    root: Tensor = values.clamp(min=_FLOOR).sqrt().unsqueeze(1) * vectors.T
    return root
