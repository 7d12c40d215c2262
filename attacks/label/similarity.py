"""Labels by the direction of gradients: a record has the label of the known records whose gradients point the same way.

Liu, Lyu, Cui, Tao, "Similarity-based Label Inference Attack against Training and Inference of Split Learning",
arXiv:2203.05222.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import normalize

from vflpriv.attacks._base import GradientInference
from vflpriv.attacks._observations import by_link, known_positions, records_of, with_places
from vflpriv.attacks._samples import Sample
from vflpriv.common.registry import register
from vflpriv.core.attack import Auxiliary, Guess
from vflpriv.core.views import View
from vflpriv.core.wire import Message

__all__ = ["LabelSimilarity"]


@register("attack")
class LabelSimilarity(GradientInference):
    """The class whose known records have the largest cosine similarity with a record's gradients.

    A record's gradient is (p - onehot(y)) W: of two records with one label the cosine is near 1, however large the
    gradients are. The paper compares each gradient with that of one known record of each class. Ours sums directions,
    gradients divided by their lengths, over all rounds of a record, and compares it with the sum over the known records
    of each class, so that noise which is drawn anew averages out. Links of colluding devices are side by side. Of more
    than `most` records it attacks a random sample.

    Nothing is clustered: one device of four on digits, told four labels of each class, finds more than 80 % of the
    labels, where `label_gradient_clusters` finds at least 5 points fewer (tests/attacks/label/test_similarity.py).
    """

    name = "label_similarity"
    summary = "takes the label of the known records whose gradients have the most similar direction"

    def run(self, view: View, auxiliary: Auxiliary) -> Guess:
        messages = view.of_kind(*self.needs)
        sample = Sample.draw(records_of(messages), auxiliary, self.most)
        directions = torch.cat([_directions(of_link, sample.records) for of_link in by_link(messages)], dim=1)
        positions, known = known_positions(sample.records, auxiliary.records)
        sums = directions.new_zeros(view.classes, directions.shape[1])
        sums.index_add_(0, auxiliary.labels[known], normalize(directions[positions], dim=1))
        similarity = directions @ normalize(sums, dim=1).T
        unknown = (sums == 0).all(1)  # of a class without a known record no cosine is taken
        return sample.guess(similarity.masked_fill(unknown, -torch.inf).argmax(1).unsqueeze(0))


def _directions(messages: list[Message], records: Tensor) -> Tensor:
    """(n, width) the sum of each record's unit gradients on one link; 0 where it has none."""
    width = messages[0].tensors["gradient"].flatten(2).shape[2]
    # One more place is for records that are not asked for.
    sums = torch.zeros(len(records) + 1, width, device=records.device)
    for m, places in with_places(messages, records):
        sums.index_add_(0, places, normalize(m.tensors["gradient"][0].flatten(1).to(sums.dtype), dim=1))
    return sums[:-1]
