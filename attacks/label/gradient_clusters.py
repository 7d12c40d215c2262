"""Labels of any number of classes from clusters of mean gradients, which a noise that is drawn anew cannot hide."""

from __future__ import annotations

import torch
from torch import Tensor

from vflpriv.attacks._base import GradientInference
from vflpriv.attacks._observations import by_link, records_of, with_places
from vflpriv.attacks._samples import Sample
from vflpriv.attacks.label._clusters import clustered
from vflpriv.common.registry import register
from vflpriv.core.attack import Auxiliary, Guess
from vflpriv.core.views import View
from vflpriv.core.wire import Message

__all__ = ["LabelGradientClusters"]


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
        points = torch.cat([_mean_gradients(of_link, records) for of_link in by_link(messages)], dim=1)
        return sample.guess(clustered(points, records, auxiliary, view.classes).unsqueeze(0))


def _mean_gradients(messages: list[Message], records: Tensor) -> Tensor:
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
