"""Labels by a pseudo-top that learns from a few labels while the device's model is trained (Gao and Zhang 2023, PCAT).

Gao and Zhang, "PCAT: Functionality and Data Stealing from Split Learning by Pseudo-Client Attack", USENIX Security
2023.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from vflpriv.attacks._base import TogetherInference
from vflpriv.attacks._embeddings import EMBEDDING_NEEDS, SENT_EMBEDDINGS, embeddings_by_device, without_embeddings
from vflpriv.attacks._observations import known_positions, with_places
from vflpriv.attacks.label.trained._adam import Packed
from vflpriv.common.registry import register
from vflpriv.core.attack import Auxiliary, Guess
from vflpriv.core.views import View

__all__ = ["LabelPcat"]

_LATE = 0.5
"""Share of the rounds that pass before the pseudo-top starts to learn."""
_ROUNDS = 500
"""Of more rounds than these, the last ones are replayed."""
_AFTER = 100
"""Steps on the embeddings of the trained model."""
_RATE = 0.01
_FLOOR = 1e-12


@register("attack")
class LabelPcat(TogetherInference):
    """A linear pseudo-top is trained on the embeddings of the few known records as they were in each round of the
    training, then on those of the trained model, of which it predicts all labels.

    In the paper a server without labels trains stand-ins for both ends of a U-shaped model, with its own part between
    them as it is in each round; the stand-in for the client's top infers labels. A device of vertical federated
    learning has its own features and bottom, so that only the top needs a stand-in. Per round it takes one step on what
    was last sent of each known record. It starts late, as the paper advises: the first rounds mislead it. The paper's
    reconstruction of inputs needs no stand-in here: `feature_inversion` is given embeddings together with features.

    Published for a U-shaped LeNet-5 on MNIST: 96.6 % of the labels from 5 of each class (Table 8). Ours on digits, with
    5 of each class and all devices together: more than 75 %, at least 2 points beyond what their features tell
    (tests/attacks/label/trained/test_pcat.py). It reads no gradients: defences of gradients reach it only through the
    training.
    """

    name = "label_pcat"
    summary = "trains a stand-in for the server's model on the embeddings of a few known records, round by round"
    needs = EMBEDDING_NEEDS
    auxiliary = True

    def missing(self, view: View) -> str | None:
        return without_embeddings(view)

    def run_together(self, view: View, auxiliaries: Sequence[Auxiliary]) -> list[Guess]:
        samples, columns = embeddings_by_device(view, auxiliaries, self.most)
        embeddings = torch.cat(list(columns.values()), dim=2)
        known = torch.cat([auxiliary.records for auxiliary in auxiliaries]).unique()
        final = embeddings.new_zeros(len(samples), len(known), embeddings.shape[2])
        given = torch.full(final.shape[:2], -1, device=known.device)
        for r, (sample, auxiliary) in enumerate(zip(samples, auxiliaries, strict=True)):
            positions, index = known_positions(sample.records, auxiliary.records)
            places = torch.searchsorted(known, auxiliary.records[index])
            given[r, places], final[r, places] = auxiliary.labels[index], embeddings[r, positions]
        top = _PseudoTop(embeddings, given, view.classes)
        for table, seen in _replayed(view, known, columns):
            top.step(table, seen)
        for _ in range(_AFTER):
            top.step(final, torch.ones_like(known, dtype=final.dtype))
        labels = top.logits(embeddings).argmax(2)
        return [sample.guess(labels[r : r + 1]) for r, sample in enumerate(samples)]


def _replayed(view: View, known: Tensor, columns: Mapping[int, Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
    """Round by round the embeddings (R, K, width) of the sorted known records as they were last sent, and whether each
    has been sent by all devices, (K,); the late rounds only."""
    by_round: dict[int, list[tuple[int, Tensor, Tensor]]] = {}
    for m, places in with_places(view.of_kind(*SENT_EMBEDDINGS), known):
        embedding = m.tensors["embedding"].flatten(2)
        column = columns.get(m.device.index)
        if column is not None and embedding.shape[2] == column.shape[2]:
            by_round.setdefault(m.round, []).append((m.device.index, places, embedding.to(column.dtype)))
    # One more place is for records that are not known.
    tables = {d: c.new_zeros(len(c), len(known) + 1, c.shape[2]) for d, c in columns.items()}
    seen = {d: c.new_zeros(len(known) + 1) for d, c in columns.items()}
    start = max(round(_LATE * len(by_round)), len(by_round) - _ROUNDS)
    for number, messages in enumerate(by_round.values()):
        for device, places, embedding in messages:
            tables[device].index_copy_(1, places, embedding)
            seen[device].index_fill_(0, places, 1.0)
        if number >= start:
            yield torch.cat(list(tables.values()), dim=2)[:, :-1], torch.stack(list(seen.values())).amin(0)[:-1]


class _PseudoTop:
    """Logistic regression of R replicas on embeddings in units of the trained models' mean and deviation."""

    def __init__(self, embeddings: Tensor, given: Tensor, classes: int) -> None:
        """`given` (R, K) are the labels of the known records, -1 where a replica does not know one."""
        self._mean = embeddings.mean(1, keepdim=True)
        self._deviation = (embeddings - self._mean).square().mean(1, keepdim=True).sqrt().clamp(min=_FLOOR)
        self._labels = one_hot(given.clamp(min=0), classes).to(embeddings.dtype)
        self._told = (given >= 0).to(embeddings.dtype)
        self._adam = Packed(len(embeddings), [(embeddings.shape[2] + 1, classes)], embeddings, [_RATE])

    def _inputs(self, rows: Tensor) -> Tensor:
        scaled = (rows - self._mean) / self._deviation
        return torch.cat((scaled, torch.ones_like(scaled[..., :1])), dim=2)

    def logits(self, rows: Tensor) -> Tensor:
        """(R, n, C) of rows (R, n, width)."""
        return self._inputs(rows) @ self._adam.parts()[0]

    def step(self, rows: Tensor, seen: Tensor) -> None:
        """One step of Adam on the mean cross-entropy of the known records that have been seen."""
        inputs, counted = self._inputs(rows), self._told * seen
        shares = torch.softmax(inputs @ self._adam.parts()[0], dim=2)
        share = counted / counted.sum(1, keepdim=True).clamp(min=1)
        gradient = torch.zeros_like(self._adam.values)
        self._adam.parts(gradient)[0].copy_(inputs.transpose(1, 2) @ ((shares - self._labels) * share.unsqueeze(2)))
        self._adam.step(gradient)
