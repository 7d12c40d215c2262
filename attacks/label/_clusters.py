"""k-means with one cluster for each class, and names of the clusters from a few known labels."""

from __future__ import annotations

import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor
from torch.nn.functional import one_hot

from vflpriv.attacks._observations import known_positions
from vflpriv.core.attack import Auxiliary

__all__ = ["clustered"]

_STARTS = 8
_STEPS = 50


def clustered(points: Tensor, records: Tensor, auxiliary: Auxiliary, classes: int, *, starts: int = _STARTS) -> Tensor:
    """(n,) the class of each of these sorted records, whose points are (n, width).

    The first start is at the means of the known records, `starts` others are at random ones; the one with the least sum
    of squares is taken, and the known labels name its clusters.
    """
    positions, known = known_positions(records, auxiliary.records)
    labels = auxiliary.labels[known]
    known_means = _known_means(points[positions], labels, classes)
    centres = torch.stack([*known_means, *_random_starts(points, classes, auxiliary, starts)])
    clusters, squares = _k_means(points, centres)
    return _named(clusters[int(squares.argmin())], positions, labels, classes)


def _known_means(points: Tensor, labels: Tensor, classes: int) -> list[Tensor]:
    """The mean of the known records of each class, if there is one of each."""
    times = one_hot(labels, classes).sum(0)
    if not len(labels) or not bool((times > 0).all()):
        return []
    sums = torch.zeros(classes, points.shape[1], dtype=points.dtype, device=points.device).index_add_(0, labels, points)
    return [sums / times.unsqueeze(1)]


def _random_starts(points: Tensor, classes: int, auxiliary: Auxiliary, starts: int) -> Tensor:
    """(starts, classes, width) centres at records drawn one after another, each by its squared distance to the nearest
    one before (k-means++)."""
    generator = torch.Generator().manual_seed(auxiliary.seed)
    first, marks = [], []
    for _ in range(starts):
        first.append(torch.randint(len(points), (), generator=generator))
        marks.append(torch.rand(classes - 1, generator=generator, dtype=torch.float64))
    chosen = [torch.stack(first).to(points.device)]
    lengths = points.square().sum(1)
    nearest = _squares(points, points[chosen[0]])
    for mark in torch.stack(marks).to(points.device).T:
        weights = ((nearest + lengths).clamp(min=0) + 1e-12).cumsum(1)
        place = torch.searchsorted(weights, (mark * weights[:, -1]).to(weights.dtype).unsqueeze(1)).squeeze(1)
        chosen.append(place.clamp(max=len(points) - 1))
        nearest = torch.minimum(nearest, _squares(points, points[chosen[-1]]))
    return points[torch.stack(chosen, dim=1)]


def _squares(points: Tensor, centres: Tensor) -> Tensor:
    """(centres, n) squared distances of points (n, width) from centres (centres, width), less the points' lengths."""
    return torch.addmm(centres.square().sum(1, keepdim=True), centres, points.T, alpha=-2)


def _k_means(points: Tensor, centres: Tensor) -> tuple[Tensor, Tensor]:
    """The cluster (starts, n) of each point by Lloyd's steps from centres (starts, k, width), and the sums of squares
    within clusters; a start whose clusters no longer change is left as it is."""
    starts, k, _ = centres.shape
    clusters = torch.full((starts, len(points)), -1, device=points.device)
    totals = torch.zeros(starts, dtype=points.dtype, device=points.device)
    going, names = torch.arange(starts, device=points.device), torch.arange(k, device=points.device).unsqueeze(1)
    length = points.square().sum()
    for _ in range(_STEPS):
        squares, nearest = _squares(points, centres.flatten(0, 1)).unflatten(0, (len(going), k)).min(1)
        totals[going] = squares.sum(1) + length
        moved = (nearest != clusters[going]).any(1)
        going, nearest, centres = going[moved], nearest[moved], centres[moved]
        if not len(going):
            break
        clusters[going] = nearest
        members = (nearest.unsqueeze(1) == names).to(points.dtype)
        times = members.sum(2, keepdim=True)
        sums = (members.flatten(0, 1) @ points).view_as(centres)
        centres = torch.where(times > 0, sums / times.clamp(min=1), centres)
    return clusters, totals


def _named(clusters: Tensor, positions: Tensor, labels: Tensor, classes: int) -> Tensor:
    """The class of each record: clusters and classes are matched so that most known labels are right."""
    pairs = torch.zeros(classes, classes, dtype=torch.int64)
    pairs.index_put_((clusters[positions].cpu(), labels.cpu()), torch.ones(len(labels), dtype=torch.int64), True)
    _, names = linear_sum_assignment(-pairs.numpy())
    return torch.from_numpy(names).to(clusters.device)[clusters]
