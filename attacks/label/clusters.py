"""Labels of any number of classes from clusters of embeddings or of mean gradients, named by a few known labels."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor
from torch.nn.functional import one_hot

from vflpriv.attacks._base import GradientInference, LabelInference
from vflpriv.attacks._embeddings import EMBEDDING_NEEDS, embeddings_of, without_embeddings
from vflpriv.attacks._observations import by_link, known_positions, records_of, with_places
from vflpriv.attacks._samples import Sample
from vflpriv.common.registry import register
from vflpriv.core.attack import Auxiliary, Guess
from vflpriv.core.views import View
from vflpriv.core.wire import Message

__all__ = ["LabelEmbeddingClusters", "LabelGradientClusters", "clustered", "mean_gradients", "named", "nameless"]

_STARTS = 8
"""Random starts beside the one at the known labels."""
_STEPS = 50


def clustered(points: Tensor, records: Tensor, auxiliary: Auxiliary, classes: int, *, starts: int = _STARTS) -> Tensor:
    """(n,) the class of each of these sorted records, whose points are (n, width).

    The first start is at the means of the known records, `starts` others are at random ones; the one with the least sum
    of squares is taken, and the known labels name its clusters.
    """
    positions, known = known_positions(records, auxiliary.records)
    labels = auxiliary.labels[known]
    known_means = _known_means(points[positions], labels, classes)
    clusters = nameless(points, auxiliary, classes, starts=starts, known=known_means)
    pairs = torch.zeros(classes, classes, dtype=torch.float64)
    right = torch.ones(len(labels), dtype=pairs.dtype)
    pairs.index_put_((clusters[positions].cpu(), labels.cpu()), right, True)
    return named(clusters, pairs)


def nameless(
    points: Tensor, auxiliary: Auxiliary, classes: int, *, starts: int = _STARTS, known: Sequence[Tensor] = ()
) -> Tensor:
    """(n,) the cluster of each point (n, width), as many as there are classes, from `known` centres and random ones."""
    centres = torch.stack([*known, *_random_starts(points, classes, auxiliary, starts)])
    clusters, squares = _k_means(points, centres)
    return clusters[int(squares.argmin())]


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


def named(clusters: Tensor, fit: Tensor) -> Tensor:
    """The class of each record: clusters and classes are matched so that what they `fit`, (clusters, classes), is most
    in all."""
    _, names = linear_sum_assignment(-fit.cpu().numpy())
    return torch.from_numpy(names).to(clusters.device)[clusters]


_EMBEDDING_STARTS = 2


@register("attack")
class LabelEmbeddingClusters(LabelInference):
    """k-means, one cluster for each class, on each record's embedding, every entry with mean 0 and deviation 1.

    The attack of "Label Leakage and Protection from Forward Embedding in Vertical Federated Learning" (Sun et al. 2022)
    for more than two classes. A device computes the embeddings with its trained model; an eavesdropper takes those that
    were sent last. Embeddings of several devices are concatenated. Of more than `most` records it attacks a random
    sample.
    """

    name = "label_embedding_clusters"
    summary = "splits any number of classes by clusters of the embeddings"
    needs = EMBEDDING_NEEDS
    auxiliary = True

    def missing(self, view: View) -> str | None:
        return without_embeddings(view)

    def run(self, view: View, auxiliary: Auxiliary) -> Guess:
        sample, embeddings = embeddings_of(view, auxiliary, self.most)
        centred = embeddings - embeddings.mean(0)
        points = centred / centred.square().mean(0).sqrt().clamp(min=1e-12)
        labels = clustered(points, sample.records, auxiliary, view.classes, starts=_EMBEDDING_STARTS)
        return sample.guess(labels.unsqueeze(0))


@register("attack")
class LabelGradientClusters(GradientInference):
    """k-means, one cluster for each class, on each record's mean gradient over all its rounds.

    A record's gradient is (p - onehot(y)) W: its mean is near the head's row of its class. Noise on gradients or labels
    that is drawn in each batch anew shrinks in the mean; noise that is drawn once stays. The first start is at the
    mean gradients of the few known labels, the others are at random records; the one with the least sum of squares is
    taken, and the known labels name its clusters. Gradients of colluding devices are concatenated. Of more than `most`
    records it attacks a random sample: the clusters are those of the classes, whoever is in them.
    """

    name = "label_gradient_clusters"
    summary = "splits any number of classes by clusters of each record's mean gradient"

    def run(self, view: View, auxiliary: Auxiliary) -> Guess:
        messages = view.of_kind(*self.needs)
        sample = Sample.draw(records_of(messages), auxiliary, self.most)
        records = sample.records
        points = torch.cat([mean_gradients(of_link, records) for of_link in by_link(messages)], dim=1)
        return sample.guess(clustered(points, records, auxiliary, view.classes).unsqueeze(0))


def mean_gradients(messages: list[Message], records: Tensor) -> Tensor:
    """(n, width) each record's mean gradient on one link, 0 where it has none; of all rounds alike, however large their
    gradients are."""
    width = messages[0].tensors["gradient"].shape[-1]
    # One more place is for records that are not asked for.
    sums = torch.zeros(len(records) + 1, width + 1, device=records.device)
    for m, places in with_places(messages, records):
        gradient = m.tensors["gradient"][0].to(sums.dtype)
        counted = torch.nn.functional.pad(gradient / gradient.square().mean().sqrt().clamp(min=1e-30), (0, 1), value=1)
        sums.index_add_(0, places, counted)
    return sums[:-1, :-1] / sums[:-1, -1:].clamp(min=1)
