"""Labels by trying each of them on a clone of the server's model (Erdoğan et al. 2022, UnSplit).

Erdoğan et al., "UnSplit: Data-Oblivious Model Inversion, Model Stealing, and Label Inference Attacks Against Split
Learning", WPES 2022.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from vflpriv.attacks.label.trained._surrogate import Clone, FirstPass, SurrogateInference
from vflpriv.common.registry import register
from vflpriv.core.attack import Auxiliary, Guess
from vflpriv.core.views import View

__all__ = ["LabelUnsplit"]

_ROWS = 64
"""Records whose labels are inferred before the clone learns from them."""


@register("attack")
class LabelUnsplit(SurrogateInference):
    """For each record, in the order in which they were first trained on: the label whose gradient, computed on the
    clone, has the direction nearest to that of the gradient received; the clone then learns from the inferred labels.

    The clone is linear, starts from the gradients of the few known labels, and learns by least squares on gradients.
    The authors' clone starts at random and learns by cross-entropy, because their code compares gradients of the hidden
    layer's own weights, whose negative row is the label; a device is sent gradients of embeddings alone, in which
    nothing but known labels tells one class from another.

    Published: 100 % where one layer is hidden; with two, 9.1 % on MNIST (Gao and Zhang 2023, Table 9). Ours on digits
    between four devices, under a model with a hidden layer: more than 98.5 % by all of them together, more than 95 % by
    one (tests/attacks/label/trained/test_surrogates.py).
    """

    name = "label_unsplit"
    summary = "takes the label whose gradient on a clone of the server's model is nearest to the one received"

    def run_together(self, view: View, auxiliaries: Sequence[Auxiliary]) -> list[Guess]:
        first = FirstPass.of(view, auxiliaries, self.most)
        clone, labels = Clone(first), torch.zeros_like(first.given)
        for positions in first.order.split(_ROWS, dim=1):
            rows = positions.unsqueeze(2).expand(-1, -1, first.gradients.shape[2])
            gradients, given = first.gradients.gather(1, rows), first.given.gather(1, positions)
            shares = clone.shares(first.embeddings.gather(1, rows))
            nearest = clone.fits(gradients, shares).argmax(2)
            inferred = torch.where(given >= 0, given, nearest)
            labels.scatter_(1, positions, inferred)
            clone.learn(gradients, shares, inferred)
        return [sample.guess(labels[r : r + 1]) for r, sample in enumerate(first.samples)]
