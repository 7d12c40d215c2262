"""Labels of two classes from forward embeddings (Sun et al. 2022): training pulls the classes apart along one axis."""

from __future__ import annotations

import torch
from torch import Tensor

from vflpriv.attacks._base import LabelAttack, ids_of
from vflpriv.attacks._two_classes import agreement, guess, needs_two, two_means
from vflpriv.common.registry import register
from vflpriv.core.attack import Auxiliary, LabelGuess
from vflpriv.core.views import View

__all__ = ["LabelSpectral"]

_UPLINKS = ("embeddings", "logits")


@register("attack")
class LabelSpectral(LabelAttack):
    """Two clusters along the embeddings' first singular vector: of ⟨f - f̄, v⟩ or, if one class is rare, of its size.

    Which of the two, the few known labels decide, as they name the clusters. A device computes the embeddings with its
    trained model; who only sees the wire takes what was sent last. Several devices' embeddings are put side by side.
    """

    name = "label_spectral"
    summary = "splits two classes along the first axis of the embeddings"
    needs = frozenset({"own-model", *_UPLINKS})
    auxiliary = True

    def missing(self, view: View) -> str | None:
        if not view.own and not view.kinds & set(_UPLINKS):
            return "embeddings of each record; this view holds none"
        return needs_two(view)

    def run(self, view: View, auxiliary: Auxiliary) -> LabelGuess:
        records, embeddings = _embeddings(view)
        centred = embeddings - embeddings.mean(0)
        _, _, axes = torch.linalg.svd(centred, full_matrices=False)
        along = centred @ axes[0]
        thresholds = {True: two_means(along), False: two_means(along.abs())}
        fit = {s: agreement(records, (along if s else along.abs()) > t, auxiliary) for s, t in thresholds.items()}
        signed = bool(fit[True].abs() >= fit[False].abs())
        return guess(records, along if signed else along.abs(), auxiliary, thresholds[signed])


def _embeddings(view: View) -> tuple[Tensor, Tensor]:
    if view.own:
        outputs = [own.apply(own.trained, own.features)[0] for own in view.own.values()]
        return torch.arange(len(outputs[0]), device=outputs[0].device), torch.cat(outputs, dim=-1)
    messages = view.of_kind(*_UPLINKS)
    records, _ = ids_of(messages)
    columns = []
    for link in sorted({m.device for m in messages}):
        own = [m for m in messages if m.device == link and m.records is not None]
        held = torch.zeros(len(records), own[0].tensors["embedding"].shape[-1], device=records.device)
        for m in own:
            assert m.records is not None
            held[torch.searchsorted(records, m.records)] = m.tensors["embedding"][0]
        columns.append(held)
    return records, torch.cat(columns, dim=-1)
