"""A mixture of classes over all rounds: each record has one label, on which what is seen of it in every round depends.

In one round noise may hide the label; the likelihoods of all rounds multiply.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from vflpriv.attacks._left_out import LeftOut

__all__ = ["Link", "class_shares"]

_STEPS = 6
_LEAST = 0.02
"""The classifier's least probability of a class."""
_PRIOR = 4.0
"""The mean of a class over all windows counts as so many rows of each window."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Link:
    """What one device was sent: rows (m, width), the place of each row's record, and the window of rounds it is from.

    A class has a mean in each window, since the server's model moves; within a window it hardly does. Rows whose place
    is the number of records are of none that is asked for. `laplace`, (m,), is the known scale of Laplace noise on the
    entries of each row; else noise is taken to be normal. With `by_class`, its covariance differs between the classes.
    """

    rows: Tensor
    places: Tensor
    windows: Tensor
    count: int
    laplace: Tensor | None = None
    by_class: bool = False


def class_shares(
    links: Sequence[Link], start: Tensor, known: Tensor, labels: Tensor, classifier: LeftOut | None = None
) -> Tensor:
    """(n, C) the probabilities of each record's label given all that was seen, by expectation maximisation.

    `start` (n, C) are those that it begins with, `labels` the true ones of the `known` places. With a classifier, the
    prior of a record is the mean of its start and of the classifier's prediction from all other records' probabilities:
    where rounds tell nothing, the start is what remains. Without one the prior is uniform.
    """
    certain = torch.nn.functional.one_hot(labels, start.shape[1]).to(start.dtype)
    shares = start.index_copy(0, known, certain)
    for _ in range(_STEPS):
        evidence = torch.stack([_link_evidence(link, shares) for link in links]).sum(0)
        if classifier is not None:
            prior = (start + classifier.predict(shares).clamp(0, 1)) / 2
            evidence = evidence + prior.clamp(min=_LEAST).log()
        shares = torch.softmax(evidence, dim=-1).index_copy(0, known, certain)
    return shares


def _link_evidence(link: Link, shares: Tensor) -> Tensor:
    """(n, C) what one link says, with means and covariances fitted to the classes' shares (n, C) of the records."""
    weights = torch.cat((shares, torch.zeros_like(shares[:1]))).index_select(0, link.places)
    means, spread = _without_own(link, weights)
    residuals = link.rows - means
    if link.laplace is not None:
        fit = -(residuals.abs().sum(-1) / link.laplace) / spread.sqrt()
    else:
        fit = _normal_fit(residuals, weights, spread, by_class=link.by_class)
    width = link.rows.shape[1]
    total = torch.zeros(len(shares) + 1, shares.shape[1], dtype=fit.dtype, device=fit.device)
    return total.index_add_(0, link.places, (fit - 0.5 * width * spread.log()).T)[:-1]


def _without_own(link: Link, weights: Tensor) -> tuple[Tensor, Tensor]:
    """(C, m, width) for each row the mean of each class in its window, and (C, m) the spread of a row about it.

    The row itself is left out, or its noise would speak for the class that it is in now. Means are shrunk towards that
    of all classes by as much of their distance as noise alone explains: a window that shows noise tells nothing.
    """
    rows, classes = link.rows, weights.shape[1]
    counted = torch.cat((rows, torch.ones_like(rows[:, :1]), weights.max(1, keepdim=True).values), dim=1)
    weighted = weights.T.unsqueeze(-1) * counted
    sums = torch.zeros(classes, link.count, counted.shape[1], dtype=rows.dtype, device=rows.device)
    sums.index_add_(1, link.windows, weighted)
    whole = sums[..., :-1].sum(1, keepdim=True)
    centre = whole[..., :-1] / whole[..., -1:].clamp(min=1e-6)
    middle = sums[..., :-2].sum(0) / sums[..., -2].sum(0).unsqueeze(-1).clamp(min=1e-6)
    share = _signal(link, sums, middle)
    rest = sums[..., :-1].index_select(1, link.windows) - weighted[..., :-1]
    times = rest[..., -1:].clamp(min=0) + _PRIOR
    means = (rest[..., :-1] + _PRIOR * centre) / times
    middle, share = middle.index_select(0, link.windows), share.index_select(0, link.windows)
    return middle + share.unsqueeze(-1) * (means - middle), 1 + share / times.squeeze(-1)


def _signal(link: Link, sums: Tensor, middle: Tensor) -> Tensor:
    """(W,) the share of the squared distances of class means from the middle (W, width) that noise does not explain.

    `sums` (C, W, width + 2) are those of the rows, of their weights, and of products of weights and largest weights.
    """
    times = sums[..., -2].clamp(min=1e-6)
    between = (times * (sums[..., :-2] / times.unsqueeze(-1) - middle).square().sum(-1)).sum(0)
    squares = torch.zeros(link.count, dtype=middle.dtype, device=middle.device)
    squares.index_add_(0, link.windows, (link.rows - middle.index_select(0, link.windows)).square().sum(1))
    noise = (squares - between).clamp(min=0) / (times.sum(0) - len(sums)).clamp(min=1)
    expected = noise * ((sums[..., -1] / times).sum(0) - 1).clamp(min=0)
    return (1 - expected / between.clamp(min=1e-30)).clamp(0, 1)


def _normal_fit(residuals: Tensor, weights: Tensor, spread: Tensor, *, by_class: bool) -> Tensor:
    """(C, m) log-likelihoods of residuals (C, m, width) of each class, up to a constant."""
    width = residuals.shape[-1]
    scaled = residuals * (weights.T / spread).sqrt().unsqueeze(-1)
    products, totals = scaled.transpose(1, 2) @ scaled, weights.sum(0)
    pooled = products.sum(0) / totals.sum().clamp(min=1)
    level = pooled.diagonal().mean().clamp(min=1e-12)
    floor = 1e-3 * level * torch.eye(width, dtype=pooled.dtype, device=pooled.device)
    if not by_class:
        covariance = pooled.expand(len(residuals), -1, -1) + floor
    else:
        # As many rows of all classes together keep the covariance of a class with few rows in bounds.
        few = float(2 * width)
        covariance = (products + few * pooled) / (totals + few)[:, None, None] + floor
    root = torch.linalg.cholesky(covariance.double())
    white = torch.linalg.inv(root).transpose(1, 2).to(residuals.dtype)
    volume = root.diagonal(dim1=1, dim2=2).log().sum(-1, keepdim=True).to(residuals.dtype)
    fit: Tensor = -0.5 * (residuals @ white).square().sum(-1) / spread - volume
    return fit
