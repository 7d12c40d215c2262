"""Labels by inverting the gradients of a batch (Zou et al. 2022): the labels and the head that would give them.

Zou et al., "Defending Batch-Level Label Inference and Replacement Attacks in Vertical Federated Learning", 2022.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from vflpriv.attacks._base import TogetherInference
from vflpriv.attacks._observations import first_columns, known_positions, records_of
from vflpriv.attacks._samples import Sample
from vflpriv.attacks.label.trained._adam import Packed
from vflpriv.attacks.label.trained._search import Search
from vflpriv.common.registry import register
from vflpriv.core.attack import Auxiliary, Guess
from vflpriv.core.views import View

__all__ = ["LabelBatch"]

_RATE = 0.05
_RIDGE = 1e-2


@register("attack")
class LabelBatch(TogetherInference):
    """Adam over labels ŷ, the other devices' logits ŝ and a linear head W, so that for every record
    (softmax(ŝ) - softmax(ŷ)) W comes close to the gradient of its embedding.

    Each record's first gradient is used: heads move little in one pass over the data. The few known labels are held
    fixed and W is initialised from their gradients, because nothing else tells one class from another. ŝ includes the
    device's own logits, since W is unknown anyway. Gradients of colluding devices are concatenated. It takes at most
    200 steps, and stops where 20 steps made the error smaller by less than 1 %. Of more than `most` records it attacks
    a random sample: records have nothing in common but W.
    """

    name = "label_batch"
    summary = "finds the labels whose gradients would be those of a batch"
    needs = frozenset({"embedding-gradient"})
    auxiliary = True
    reads = "gradients of embeddings"

    def run_together(self, view: View, auxiliaries: Sequence[Auxiliary]) -> list[Guess]:
        messages = view.of_kind(*self.needs)
        records = records_of(messages)
        samples = [Sample.draw(records, auxiliary, self.most) for auxiliary in auxiliaries]
        columns = first_columns(messages, "gradient", torch.stack([sample.records for sample in samples]))
        labels = _Matching(columns, [s.records for s in samples], auxiliaries, view.classes).labels()
        return [sample.guess(labels[r : r + 1]) for r, sample in enumerate(samples)]


class _Matching(Search):
    """The search for labels of R replicas at once, n records each.

    Records lie along the last axis, which makes softmax over the classes several times faster: logits ŝ and ŷ are
    (R, 2, C, n), the head W is (R, C, width) and gradients are (R, width, n). Logits and head of a replica are one row
    of the optimiser's values.
    """

    def __init__(
        self, columns: Sequence[Tensor], records: Sequence[Tensor], auxiliaries: Sequence[Auxiliary], classes: int
    ) -> None:
        """`columns` are the devices' gradients (R, n, width), zeros where a record has none; records are sorted."""
        present = [c.abs().sum(-1, keepdim=True).gt(0).expand_as(c) for c in columns]
        scaled = [c / c.square().mean((1, 2), keepdim=True).sqrt().clamp(min=1e-30) for c in columns]
        self.gradients = torch.cat(scaled, dim=2).transpose(1, 2).contiguous()
        self.present = torch.cat(present, dim=2).transpose(1, 2).to(self.gradients.dtype)
        self.known, self.given = [], []
        for own, auxiliary in zip(records, auxiliaries, strict=True):
            positions, index = known_positions(own, auxiliary.records)
            self.known.append(positions)
            self.given.append(one_hot(auxiliary.labels[index], classes).to(self.gradients.dtype))
        replicas, width, count = self.gradients.shape
        shapes = ((2, classes, count), (classes, width))
        self.adam = Packed(replicas, shapes, self.gradients, (_RATE, _RATE))
        self.adam.parts()[1].copy_(torch.stack([self._first_head(r) for r in range(replicas)]))

    def _first_head(self, r: int) -> Tensor:
        """Ridge regression: with equal logits for all classes a record's gradient is (1/C - onehot) W."""
        design = 1 / self.given[r].shape[1] - self.given[r]
        gram = design.T @ design + _RIDGE * torch.eye(design.shape[1], device=design.device)
        head: Tensor = torch.linalg.solve(gram, design.T @ self.gradients[r][:, self.known[r]].T)
        return head

    def labels(self) -> Tensor:
        """(R, n): for each record the class with the largest ŷ, where the search of its replica stopped."""
        replicas, _, count = self.gradients.shape
        return self.found(torch.zeros(replicas, count, dtype=torch.int64, device=self.gradients.device))

    def _errors(self) -> Tensor:
        return self._differences()[2].square().sum((1, 2))

    def _answer(self) -> Tensor:
        return self.adam.parts()[0][:, 1].argmax(1)

    def _keep(self, kept: Tensor) -> None:
        self.adam.keep(kept)
        self.gradients, self.present = self.gradients[kept], self.present[kept]
        self.known, self.given = ([part[r] for r in kept.tolist()] for part in (self.known, self.given))

    def _differences(self) -> tuple[Tensor, Tensor, Tensor]:
        """Softmax of both logits (R, 2, C, n), their difference (R, C, n), and how far off its gradients are."""
        logits, head = self.adam.parts()
        shares = torch.softmax(logits, 2)
        for r, (positions, labels) in enumerate(zip(self.known, self.given, strict=True)):
            shares[r, 1, :, positions] = labels.T
        difference = shares[:, 0] - shares[:, 1]
        errors = torch.baddbmm(self.gradients, head.transpose(1, 2), difference, beta=-1).mul_(self.present)
        return shares, difference, errors

    def _step(self) -> None:
        """One step of Adam along the gradient of the mean squared error; that of a known label is zero."""
        shares, difference, errors = self._differences()
        errors.mul_(2 / errors.shape[2])
        gradient = torch.zeros_like(self.adam.values)
        by_logits, by_head = self.adam.parts(gradient)
        torch.bmm(difference, errors.transpose(1, 2), out=by_head)
        upstream = torch.bmm(self.adam.parts()[1], errors)
        # The derivative of softmax p: p ⊙ (u - ⟨p, u⟩).
        torch.mul(shares, upstream.unsqueeze(1), out=by_logits)
        by_logits.addcmul_(shares, by_logits.sum(2, keepdim=True), value=-1)
        by_logits[:, 1].neg_()
        self.adam.step(gradient)
