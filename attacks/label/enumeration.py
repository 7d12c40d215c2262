"""Labels without a known one: clusters of gradients, named by trying every class on the server's first model."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, normalize

from vflpriv.attacks._base import LabelInference
from vflpriv.attacks._observations import by_link, records_of
from vflpriv.attacks._samples import Sample
from vflpriv.attacks.label.clusters import mean_gradients, named, nameless
from vflpriv.common.registry import register
from vflpriv.core.attack import Auxiliary, Guess, ServerStart
from vflpriv.core.views import View
from vflpriv.core.wire import Message

__all__ = ["LabelEnumeration"]


@register("attack")
class LabelEnumeration(LabelInference):
    """Clusters of mean gradients, as `label_gradient_clusters` finds them, whose names are those under which gradients
    that the adversary simulates are most like the first ones that it was sent:

        argmax over mappings π of Σ_i cos(g_i, ĝ_i(π(cluster of i))),

    where ĝ_i(y) is the gradient of the loss of label y at the server's first model, for the outputs that the adversary
    saw and zeros for those of others. The sum splits into clusters and classes, so that the best of all n! mappings is
    found by the Hungarian algorithm in n³ steps. It models a curious device, or whoever listens, that knows no label;
    the first parameters of a training come from a public seed. Where they were secret, nobody who knows no label could
    name a cluster: the classes of a model that has learnt nothing change places with its random weights.

    After "LEA: Label Enumeration Attack in Vertical Federated Learning" (Jiang et al., arXiv 2603.03777, 2026), of
    which the abstract was at hand: clusters in place of known labels, mappings compared by the cosine of first-round
    gradients, and n³ in place of n! steps are its ideas. How it simulates models, and how it comes to n³, are not
    followed.

    Chance level: the share of the commonest label.
    """

    name = "label_enumeration"
    summary = "names clusters of gradients by trying every class on the server's first model, without a known label"
    needs = frozenset({"embedding-gradient", "embeddings"})
    knows: ClassVar[frozenset[str]] = frozenset({"start"})

    def missing(self, view: View) -> str | None:
        if "embedding-gradient" not in view.kinds:
            return "gradients of each record's embedding"
        sent = {(m.round, m.device) for m in view.of_kind("embeddings")}
        first = _first(view)
        if any((m.round, m.device) not in sent for m in first):
            return "outputs of the first round; this view holds none"
        return None

    def run(self, view: View, auxiliary: Auxiliary) -> Guess:
        messages = view.of_kind("embedding-gradient")
        sample = Sample.draw(records_of(messages), auxiliary, self.most)
        points = torch.cat([mean_gradients(link, sample.records) for link in by_link(messages)], dim=1)
        clusters = nameless(points, auxiliary, view.classes)
        if auxiliary.start is None:  # the names are then nothing but an order
            return sample.guess(clusters.unsqueeze(0))
        records, likeness = _likeness(view, auxiliary.start)
        places = torch.searchsorted(sample.records, records).clamp(max=len(sample.records) - 1)
        drawn = sample.records[places] == records
        fit = points.new_zeros(view.classes, view.classes)
        fit.index_add_(0, clusters[places[drawn]], likeness[drawn].to(fit))
        return sample.guess(named(clusters, fit).unsqueeze(0))


def _first(view: View) -> list[Message]:
    """The gradients of the first round in which the adversary was sent any."""
    messages = view.of_kind("embedding-gradient")
    return [m for m in messages if m.round == messages[0].round]


def _likeness(view: View, start: ServerStart) -> tuple[Tensor, Tensor]:
    """The records of the first round (B,), and (B, classes) how like each one's gradient is to that of each label."""
    first, records = _first(view), _first(view)[0].records
    assert records is not None
    sent = {m.device.index: m.tensors["embedding"][0] for m in view.of_kind("embeddings") if m.round == first[0].round}
    outputs = {m.device.index: sent[m.device.index].detach().requires_grad_() for m in first}
    observed = normalize(torch.cat([m.tensors["gradient"][0] for m in first], dim=1), dim=1)
    logits, likeness = start.logits(outputs), []
    for y in range(view.classes):
        loss = cross_entropy(logits, torch.full_like(records, y), reduction="sum")
        slopes = torch.autograd.grad(loss, list(outputs.values()), retain_graph=True)
        likeness.append((normalize(torch.cat(slopes, dim=1), dim=1) * observed).sum(1))
    return records, torch.stack(likeness, dim=1)
