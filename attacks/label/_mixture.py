"""A mixture of classes over all rounds: each record has one label, on which what is seen of it in every round depends.

In one round noise may hide the label; the likelihoods of all rounds multiply.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from vflpriv.attacks._left_out import LeftOut

__all__ = ["Link", "class_shares"]

_STEPS = 4
_LEAST = 0.02
"""The classifier's least probability of a class."""
_PRIOR = 4.0
"""The mean of a class over all windows counts as so many rows of each window."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Link:
    """What one device was sent: rows (m, width), the place of each row's record, and the window of rounds it is from.

    Windows are numbered in the order of the rows, and the `longest` has so many. A class has a mean in each, since the
    server's model moves; within a window it hardly does. Rows whose place is the number of records are of none that is
    asked for. `laplace`, (m,), is the known scale of Laplace noise on the entries of each row; else noise is taken to
    be normal. With `by_class`, its covariance differs between the classes.
    """

    rows: Tensor
    places: Tensor
    windows: Tensor
    count: int
    longest: int
    laplace: Tensor | None = None
    by_class: bool = False

    @cached_property
    def _starts(self) -> Tensor:
        """(W,) the number of each window's first row."""
        return torch.searchsorted(self.windows, torch.arange(self.count, device=self.windows.device))

    @cached_property
    def members(self) -> Tensor:
        """(W, longest) the numbers of each window's rows; beyond its last, the number of all rows."""
        numbers = self._starts.unsqueeze(1) + torch.arange(self.longest, device=self.windows.device)
        ends = torch.cat((self._starts[1:], self._starts.new_full((1,), len(self.rows))))
        return torch.where(numbers < ends.unsqueeze(1), numbers, len(self.rows))

    def by_window(self, values: Tensor) -> Tensor:
        """(W, longest, k) values (m, k), window by window; zeros where a window has no more rows."""
        return torch.cat((values, torch.zeros_like(values[:1])))[self.members]

    def by_row(self, values: Tensor) -> Tensor:
        """The inverse of `by_window`."""
        place = torch.arange(len(self.rows), device=self.windows.device) - self._starts[self.windows]
        return values.flatten(0, 1)[self.windows * self.longest + place]


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
    fitted = _fitted(link, weights)
    if link.laplace is not None:
        fit = -(fitted.residuals().abs().sum(-1) / link.laplace.unsqueeze(1)) / fitted.spread.sqrt()
    elif link.by_class:
        fit = _fit_by_class(fitted)
    else:
        fit = _fit_together(fitted)
    width = link.rows.shape[1]
    total = torch.zeros(len(shares) + 1, shares.shape[1], dtype=fit.dtype, device=fit.device)
    return total.index_add_(0, link.places, fit - 0.5 * width * fitted.spread.log())[:-1]


@dataclass(frozen=True, eq=False, kw_only=True)
class _Fitted:
    """Each row's distance to the mean of each class in its window: α x - b - β A, from which the row was left out.

    x is the row (m, width), α and β are (m, C), b (W, width) and A (C, W, width) are of its window. `spread` (m, C) is
    that of a row about the mean, whose own error counts, too.
    """

    link: Link
    weights: Tensor
    stretch: Tensor
    """α"""
    share: Tensor
    """β"""
    base: Tensor
    """b"""
    sums: Tensor
    """A"""
    spread: Tensor

    def residuals(self) -> Tensor:
        """(m, C, width) all distances, written down."""
        windows = self.link.windows
        means = self.sums.index_select(1, windows).transpose(0, 1) * self.share.unsqueeze(-1)
        return self.stretch.unsqueeze(-1) * self.link.rows.unsqueeze(1) - self.base[windows].unsqueeze(1) - means


def _fitted(link: Link, weights: Tensor) -> _Fitted:
    """The means of the classes, without the row itself, or its noise would speak for the class that it is in now.

    Means are shrunk towards that of all classes by as much of their distance as noise alone explains: a window that
    shows noise tells nothing.
    """
    rows = link.rows
    counted = torch.cat((rows, torch.ones_like(rows[:, :1]), weights.max(1, keepdim=True).values), dim=1)
    sums = _window_products(link, weights, counted).transpose(0, 1)
    whole = sums[..., :-1].sum(1, keepdim=True)
    centre = whole[..., :-1] / whole[..., -1:].clamp(min=1e-6)
    middle = sums[..., :-2].sum(0) / sums[..., -2].sum(0).unsqueeze(-1).clamp(min=1e-6)
    signal = _signal(link, sums, middle)
    times = (sums[..., -2].T.index_select(0, link.windows) - weights).clamp(min=0) + _PRIOR
    share = signal.index_select(0, link.windows).unsqueeze(1) / times
    return _Fitted(
        link=link,
        weights=weights,
        stretch=1 + share * weights,
        share=share,
        base=(1 - signal).unsqueeze(1) * middle,
        sums=sums[..., :-2] + _PRIOR * centre,
        spread=1 + share,
    )


def _window_products(link: Link, left: Tensor, right: Tensor) -> Tensor:
    """(W, k, l) the sum over the rows of each window of the products of (m, k) and (m, l)."""
    return link.by_window(left).transpose(1, 2) @ link.by_window(right)


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


def _fit_together(fitted: _Fitted) -> Tensor:
    """(m, C) normal log-likelihoods with one covariance of all classes, up to a constant.

    Squares of distances and their sums are those of a sum of three vectors: no distance is written down.
    """
    link, stretch, share = fitted.link, fitted.stretch.double(), fitted.share.double()
    rows, base, sums = link.rows.double(), fitted.base.double(), fitted.sums.double()
    counts = fitted.weights.double() / fitted.spread.double()
    pulled = counts * stretch
    by_class = _window_products(link, pulled * share, rows)
    with_base = _window_products(link, pulled.sum(1, keepdim=True), rows)[:, 0].T @ base
    with_sums = torch.einsum("wci,cwj->ij", by_class, sums)
    powers = torch.cat((counts, counts * share, counts * share**2), dim=1)
    plain, once, twice = link.by_window(powers).sum(1).split(pulled.shape[1], dim=1)
    crossed = torch.einsum("wi,wc,cwj->ij", base, once, sums)
    products = (
        rows.T @ ((pulled * stretch).sum(1, keepdim=True) * rows)
        - (with_base + with_base.T)
        - (with_sums + with_sums.T)
        + base.T @ (plain.sum(1, keepdim=True) * base)
        + (crossed + crossed.T)
        + torch.einsum("cwi,wc,cwj->ij", sums, twice, sums)
    )
    pooled = products / fitted.weights.sum().clamp(min=1)
    white, volume = _whitening(pooled + _floor(pooled))
    rows, base, sums = ((part @ white).to(link.rows.dtype) for part in (rows, base, sums))
    windows, stretch, share = link.windows, fitted.stretch, fitted.share
    to_sums = link.by_row(link.by_window(rows) @ sums.permute(1, 2, 0))
    to_base = (rows * base[windows]).sum(1, keepdim=True)
    base_to_sums = torch.einsum("wi,cwi->wc", base, sums)[windows]
    squares = (
        stretch**2 * rows.square().sum(1, keepdim=True)
        + base.square().sum(1)[windows].unsqueeze(1)
        + share**2 * sums.square().sum(2).T[windows]
        - 2 * stretch * (to_base + share * to_sums)
        + 2 * share * base_to_sums
    )
    fit: Tensor = -0.5 * squares / fitted.spread - volume
    return fit


def _fit_by_class(fitted: _Fitted) -> Tensor:
    """(m, C) normal log-likelihoods with a covariance of each class, up to a constant."""
    residuals, weights = fitted.residuals(), fitted.weights
    width = residuals.shape[-1]
    scaled = (residuals * (weights / fitted.spread).sqrt().unsqueeze(-1)).transpose(0, 1)
    products, totals = scaled.transpose(1, 2) @ scaled, weights.sum(0)
    pooled = products.sum(0) / totals.sum().clamp(min=1)
    # As many rows of all classes together keep the covariance of a class with few rows in bounds.
    few = float(2 * width)
    white, volume = _whitening((products + few * pooled) / (totals + few)[:, None, None] + _floor(pooled))
    squares = (residuals.transpose(0, 1) @ white.to(residuals.dtype)).square().sum(-1).T
    return -0.5 * squares / fitted.spread - volume


def _floor(pooled: Tensor) -> Tensor:
    """A thousandth of the mean variance in every direction, so that no covariance is singular."""
    level = pooled.diagonal().mean().clamp(min=1e-12)
    return 1e-3 * level * torch.eye(len(pooled), dtype=pooled.dtype, device=pooled.device)


def _whitening(covariance: Tensor) -> tuple[Tensor, Tensor]:
    """(…, width, width) in double precision what makes normal rows white, and (…,) the log of their deviations."""
    root = torch.linalg.cholesky(covariance.double())
    volume = root.diagonal(dim1=-2, dim2=-1).log().sum(-1)
    return torch.linalg.inv(root).transpose(-1, -2), volume.to(torch.float32)
