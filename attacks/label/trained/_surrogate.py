"""Stand-ins for the server's model that a device learns from gradients: what it saw, and a linear clone of that model.

A record's gradient by the embedding h is (softmax(h W + …) - onehot(y)) Wᵀ, W being the server's linear model, or what
its model is to first order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from vflpriv.attacks._base import TogetherInference, sent_instead
from vflpriv.attacks._observations import first_columns, known_positions, records_of, union_of, with_places
from vflpriv.attacks._samples import Sample
from vflpriv.core.attack import Auxiliary
from vflpriv.core.views import View
from vflpriv.core.wire import Message

__all__ = ["Clone", "FirstPass", "SurrogateInference"]

_RIDGE = 1e-2
_FLOOR = 1e-15


@dataclass(frozen=True, eq=False, kw_only=True)
class FirstPass:
    """The first embedding and gradient, (R, n, width), of n records in each of R replicas; devices' side by side.

    Gradients are those of a record's own loss: the server divides by the size of the batch. `order` (R, n) sorts the
    records by when they were first seen; `given` (R, n) holds known labels, and -1.
    """

    samples: Sequence[Sample]
    classes: int
    embeddings: Tensor
    gradients: Tensor
    order: Tensor
    given: Tensor

    @classmethod
    def of(cls, view: View, auxiliaries: Sequence[Auxiliary], most: int) -> FirstPass:
        """What a view holds of all records, or of a random sample of at most so many for each replica."""
        embeddings, gradients = zip(*_pairs(view), strict=True)
        records = records_of(gradients)
        samples = [Sample.draw(records, auxiliary, most) for auxiliary in auxiliaries]
        chosen = torch.stack([sample.records for sample in samples])
        size = sum(len(m.records) for m in gradients if m.records is not None) / len(gradients)
        given = torch.full_like(chosen, -1)
        for row, auxiliary in enumerate(auxiliaries):
            positions, known = known_positions(chosen[row], auxiliary.records)
            given[row, positions] = auxiliary.labels[known]
        return cls(
            samples=samples,
            classes=view.classes,
            embeddings=torch.cat(first_columns(embeddings, "embedding", chosen), dim=2),
            gradients=torch.cat(first_columns(gradients, "gradient", chosen), dim=2) * size,
            order=_order(gradients, chosen),
            given=given,
        )

    def known(self) -> Tensor:
        """(R, n, C) one-hot known labels, zeros where a label is not known."""
        labels = one_hot(self.given.clamp(min=0), self.classes).to(self.gradients.dtype)
        return labels * (self.given >= 0).unsqueeze(2)


def _pairs(view: View) -> list[tuple[Message, Message]]:
    """The messages with embeddings and with their gradients, of the same round, device and shape."""
    sent: dict[tuple[int, int], Message] = {}
    for m in view.of_kind("embeddings"):
        # In a round, what the server asked for again comes after what belongs to the gradients.
        sent.setdefault((m.round, m.device.index), m)
    gradients = [m for m in view.of_kind("embedding-gradient") if (m.round, m.device.index) in sent]
    pairs = [(sent[m.round, m.device.index], m) for m in gradients]
    return [(e, g) for e, g in pairs if e.tensors["embedding"].shape == g.tensors["gradient"].shape]


def _order(messages: Sequence[Message], chosen: Tensor) -> Tensor:
    """(R, n) the positions of the chosen records, (R, n), sorted by the first message with each."""
    asked = union_of(chosen)
    first = torch.zeros(len(asked) + 1, dtype=torch.int64, device=asked.device)
    for number, (_, places) in reversed(list(enumerate(with_places(messages, asked)))):
        first.index_fill_(0, places, number)
    return first[torch.searchsorted(asked, chosen)].argsort(dim=1, stable=True)


class Clone:
    """A linear model W, (R, C, width), fitted by least squares to gradients (p - onehot(y)) W that have been seen.

    It starts from the known records: nothing else tells one class from another.
    """

    def __init__(self, first: FirstPass) -> None:
        self._classes = first.classes
        known = first.known()
        residuals = known.sum(2, keepdim=True) / self._classes - known
        self._gram = residuals.transpose(1, 2) @ residuals
        self._moments = residuals.transpose(1, 2) @ first.gradients
        self._ridge = _RIDGE * torch.eye(self._classes, device=known.device, dtype=known.dtype)
        self.head = self._solved()

    def _solved(self) -> Tensor:
        head: Tensor = torch.linalg.solve_ex(self._gram + self._ridge, self._moments)[0]
        return head

    def shares(self, embeddings: Tensor) -> Tensor:
        """(R, B, C) its predictions p."""
        return torch.softmax(embeddings @ self.head.transpose(1, 2), dim=2)

    def fits(self, gradients: Tensor, shares: Tensor) -> Tensor:
        """(R, B, C) the cosine between each gradient and that which each label would have given."""
        centres = shares @ self.head
        aligned = (gradients * centres).sum(2, keepdim=True) - gradients @ self.head.transpose(1, 2)
        squares = centres.square().sum(2, keepdim=True) + self.head.square().sum(2).unsqueeze(1)
        lengths = (squares - 2 * centres @ self.head.transpose(1, 2)).clamp(min=0).sqrt().clamp(min=_FLOOR)
        seen: Tensor = torch.linalg.vector_norm(gradients, dim=2, keepdim=True)
        return aligned / (lengths * seen.clamp(min=_FLOOR))

    def learn(self, gradients: Tensor, shares: Tensor, labels: Tensor) -> None:
        """Fit it to these gradients (R, B, width) of records with these predictions and labels, too."""
        residuals = shares - one_hot(labels, self._classes).to(shares.dtype)
        self._gram = self._gram + residuals.transpose(1, 2) @ residuals
        self._moments = self._moments + residuals.transpose(1, 2) @ gradients
        self.head = self._solved()


class SurrogateInference(TogetherInference):
    """Base of attacks that read embeddings and their gradients and know a few labels."""

    needs = frozenset({"embedding-gradient", "embeddings"})
    auxiliary = True

    def missing(self, view: View) -> str | None:
        if "embedding-gradient" not in view.kinds:
            return f"gradients of embeddings; {sent_instead(view)}"
        return None if _pairs(view) else "the embeddings that the gradients belong to; this view holds none"
