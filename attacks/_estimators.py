"""Estimators fitted to the few records an adversary knows: a classifier, a decoder of features, Gaussian models."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from vflpriv.core.attack import Auxiliary

__all__ = ["conditional_gaussian", "decode", "gaussian", "posterior", "standardised"]

_POSTERIOR_RIDGE = 1.0
_SHARPNESS = 6.0
_WIDTHS = (0.0, 0.5, 1.0, 2.0)
_RIDGES = (1e-5, 1e-3, 1e-2, 1e-1, 1.0, 10.0)
_FLOOR = 1e-6


def standardised(features: Tensor) -> Tensor:
    """Columns with mean 0 and standard deviation 1, by the statistics of these rows, which the adversary holds."""
    centred = features.flatten(1).to(torch.float32)
    centred = centred - centred.mean(0)
    # One row has no spread: its columns are 0.
    return centred / centred.std(0, correction=min(1, len(centred) - 1)).clamp(min=1e-6)


def posterior(blocks: Sequence[Tensor], auxiliary: Auxiliary, classes: int) -> Tensor:
    """(N, classes) probabilities of every record's label: the softmax of a ridge regression on the known labels.

    The kernel form solves a system of as many equations as labels are known, however wide the blocks are.
    """
    rows = torch.cat([standardised(block) for block in blocks], dim=1)
    rows = rows / rows.shape[1] ** 0.5
    known = rows.index_select(0, auxiliary.records)
    target = torch.nn.functional.one_hot(auxiliary.labels, classes).to(rows.dtype) - 1 / classes
    gram = known @ known.T
    gram.diagonal().add_(_POSTERIOR_RIDGE * gram.diagonal().mean() / 10)
    return torch.softmax(_SHARPNESS * (rows @ (known.T @ torch.linalg.solve(gram, target))), dim=-1)


def decode(inputs: Tensor, targets: Tensor, rows: Tensor, *, bounded: bool = True) -> Tensor:
    """Kernel ridge regression: targets (…, k) for `rows` (…, width), fitted to `inputs` (n, width), `targets` (n, k).

    The kernel is linear plus Gaussian on standardised columns. The width of the Gaussian (0: none), the ridge and the
    shrinkage of each target towards its mean minimise the leave-one-out error of the known records, in closed form.
    With `bounded`, predictions stay within the range of the known targets, however far out a row lies.
    """
    wide = torch.float64
    x, y = inputs.to(wide), targets.to(wide)
    scale = x.std(0).nan_to_num(0.0)
    used = scale > 1e-9
    if not bool(used.any()) or len(x) < 3:
        return targets.mean(0).expand(len(rows), -1)
    centre, mean = x.mean(0), y.mean(0)
    x, z = ((a[:, used] - centre[used]) / scale[used] / used.sum().sqrt() for a in (x, rows.to(wide)))
    weights, width = _least_leave_one_out(x, y - mean)
    predicted = _kernel(z, x, width) @ weights + mean
    return (predicted.clamp(y.amin(0), y.amax(0)) if bounded else predicted).to(targets.dtype)


def _least_leave_one_out(x: Tensor, y: Tensor) -> tuple[Tensor, float]:
    """Weights (n, k) and kernel width whose predictions of each row of y from the other rows have the least error."""
    least, best = torch.inf, (torch.zeros_like(y), 0.0)
    for width in _WIDTHS:
        values, vectors = torch.linalg.eigh(_kernel(x, x, width))
        values, rotated = values.clamp(min=0), vectors.T @ y
        for ridge in _RIDGES:
            inverse = 1 / (values + ridge)
            weights = vectors @ (inverse.unsqueeze(1) * rotated)
            # Leave-one-out residuals of a ridge regression: weights over the diagonal of the inverse.
            predicted = y - weights / (vectors.square() @ inverse).unsqueeze(1)
            share = ((predicted * y).sum(0) / predicted.square().sum(0).clamp(min=1e-300)).clamp(0, 1)
            error = float((share * predicted - y).square().mean())
            if error < least:
                least, best = error, (weights * share, width)
    return best


def _kernel(a: Tensor, b: Tensor, width: float) -> Tensor:
    linear = a @ b.T
    return linear if not width else linear + torch.exp(-torch.cdist(a, b).square() / (2 * width**2))


def gaussian(block: Tensor) -> tuple[Tensor, Tensor]:
    """μ (d,) and L (d, d) with covariance LᵀL of rows (n, d): x = μ + zL for a standard normal z."""
    mean, covariance = _moments(block)
    return mean, _root(covariance)


def conditional_gaussian(block: Tensor, given: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """The Gaussian of `block` (n, d) given other columns `given` (n, e): μ (N, d) for each of `rows` (N, e), and L."""
    d = block.shape[1]
    mean, covariance = _moments(torch.cat((block, given), dim=1))
    inner = covariance[d:, d:] + _FLOOR * torch.eye(given.shape[1], device=block.device, dtype=covariance.dtype)
    slope = torch.linalg.solve(inner, covariance[d:, :d])
    means = mean[:d] + (rows.to(mean.dtype) - mean[d:]) @ slope
    return means, _root(covariance[:d, :d] - covariance[:d, d:] @ slope)


def _moments(block: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and covariance, the latter shrunk towards its diagonal.

    The shrinkage is that of Schäfer and Strimmer (2005, "A Shrinkage Approach to Large-Scale Covariance Matrix
    Estimation"): the summed variances of the off-diagonal entries over the sum of their squares.
    """
    rows, count = block.flatten(1), len(block)
    mean = rows.mean(0)
    centred = rows - mean
    products = centred.T @ centred
    covariance = products / max(1, count - 1)
    errors = centred.square().T @ centred.square() - products.square() / count
    variance = count / max(1, count - 1) ** 3 * errors
    off_diagonal = 1 - torch.eye(rows.shape[1], device=rows.device, dtype=rows.dtype)
    share = (variance * off_diagonal).sum() / (covariance.square() * off_diagonal).sum().clamp(min=1e-30)
    share = share.clamp(1e-4, 1.0)
    return mean, (1 - share) * covariance + share * torch.diag(covariance.diagonal())


def _root(covariance: Tensor) -> Tensor:
    values, vectors = torch.linalg.eigh(covariance)
    root: Tensor = values.clamp(min=_FLOOR).sqrt().unsqueeze(1) * vectors.T
    return root
