"""Labels of any number of classes from clusters of mean gradients, which a noise that is drawn anew cannot hide."""

from __future__ import annotations

import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor
from torch.nn.functional import one_hot

from vflpriv.attacks._base import LabelInference, sent_instead
from vflpriv.attacks._observations import known_positions, record_positions, sum_by_record
from vflpriv.common.registry import register
from vflpriv.core.attack import Auxiliary, LabelGuess
from vflpriv.core.views import View
from vflpriv.core.wire import Message

__all__ = ["LabelGradientClusters"]

_STARTS = 8
_STEPS = 50


@register("attack")
class LabelGradientClusters(LabelInference):
    """k-means, one cluster for each class, on each record's mean gradient over all its rounds.

    A record's gradient is (p - onehot(y)) W: its mean is near the head's row of its class. Noise on gradients or labels
    that is drawn in each batch anew shrinks in the mean; noise that is drawn once stays. The first start is at the
    mean gradients of the few known labels, the others are at random records; the one with the least sum of squares is
    taken, and the known labels name its clusters. Gradients of colluding devices are concatenated.
    """

    name = "label_gradient_clusters"
    summary = "splits any number of classes by clusters of each record's mean gradient"
    needs = frozenset({"logit-gradient", "embedding-gradient"})
    auxiliary = True

    def missing(self, view: View) -> str | None:
        return None if self.needs & view.kinds else f"gradients of each record; {sent_instead(view)}"

    def run(self, view: View, auxiliary: Auxiliary) -> LabelGuess:
        messages = view.of_kind(*self.needs)
        records, _ = record_positions(messages)
        links = sorted({(m.device, m.kind) for m in messages})
        columns = [_mean_gradients([m for m in messages if (m.device, m.kind) == link], records) for link in links]
        points = torch.cat(columns, dim=1)
        positions, known = known_positions(records, auxiliary.records)
        labels = auxiliary.labels[known]
        starts = [*_known_means(points[positions], labels, view.classes), *_random_starts(points, view, auxiliary)]
        clusters = min((_k_means(points, start) for start in starts), key=lambda found: found[1])[0]
        return LabelGuess(records, _named(clusters, positions, labels, view.classes).unsqueeze(0))


def _mean_gradients(messages: list[Message], records: Tensor) -> Tensor:
    """(n, width) each record's mean gradient on one link; of all rounds alike, however large their gradients are."""
    own, positions = record_positions(messages)
    values = [m.tensors["gradient"][:1].double() for m in messages]
    rows = torch.cat([v / v.square().mean().sqrt().clamp(min=1e-30) for v in values], dim=1)
    sums = sum_by_record(positions, torch.cat((rows, torch.ones_like(rows[..., :1])), dim=-1), len(own))[0]
    points = torch.zeros(len(records), rows.shape[-1], dtype=rows.dtype, device=rows.device)
    points[torch.searchsorted(records, own)] = sums[:, :-1] / sums[:, -1:]
    return points


def _known_means(points: Tensor, labels: Tensor, classes: int) -> list[Tensor]:
    """The mean of the known records of each class, if there is one of each."""
    times = one_hot(labels, classes).sum(0)
    if not len(labels) or not bool((times > 0).all()):
        return []
    sums = torch.zeros(classes, points.shape[1], dtype=points.dtype, device=points.device).index_add_(0, labels, points)
    return [sums / times.unsqueeze(1)]


def _random_starts(points: Tensor, view: View, auxiliary: Auxiliary) -> list[Tensor]:
    """Centres at records drawn one after another, by their squared distance to the nearest one before (k-means++)."""
    generator = torch.Generator().manual_seed(auxiliary.seed)
    starts = []
    for _ in range(_STARTS):
        chosen = [int(torch.randint(len(points), (), generator=generator))]
        nearest = _squares(points, points[chosen[0]])
        for _ in range(view.classes - 1):
            weights = (nearest + 1e-12).cumsum(0)
            mark = torch.rand((), generator=generator, dtype=torch.float64) * weights[-1].cpu()
            chosen.append(min(int(torch.searchsorted(weights.cpu(), mark)), len(points) - 1))
            nearest = torch.minimum(nearest, _squares(points, points[chosen[-1]]))
        starts.append(points[chosen])
    return starts


def _k_means(points: Tensor, centres: Tensor) -> tuple[Tensor, float]:
    """The cluster of each point by Lloyd's steps from these centres, and the sum of squares within clusters."""
    clusters = torch.full((len(points),), -1, device=points.device)
    squares = torch.zeros_like(points[:, 0])
    for _ in range(_STEPS):
        squares, nearest = torch.stack([_squares(points, centre) for centre in centres]).min(0)
        if torch.equal(nearest, clusters):
            break
        clusters = nearest
        times = one_hot(clusters, len(centres)).sum(0).unsqueeze(1)
        sums = torch.zeros_like(centres).index_add_(0, clusters, points)
        centres = torch.where(times > 0, sums / times.clamp(min=1), centres)
    return clusters, float(squares.sum())


def _squares(points: Tensor, centre: Tensor) -> Tensor:
    return (points - centre).square().sum(1)


def _named(clusters: Tensor, positions: Tensor, labels: Tensor, classes: int) -> Tensor:
    """The class of each record: clusters and classes are matched so that most known labels are right."""
    pairs = torch.zeros(classes, classes, dtype=torch.int64)
    pairs.index_put_((clusters[positions].cpu(), labels.cpu()), torch.ones(len(labels), dtype=torch.int64), True)
    _, names = linear_sum_assignment(-pairs.numpy())
    return torch.from_numpy(names).to(clusters.device)[clusters]
