"""A property of a device's data: whether few or most of its records have an attribute, from what it sends of them."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from vflpriv.attacks._estimators import decode
from vflpriv.attacks._observations import UPLINKS
from vflpriv.common.registry import register
from vflpriv.core.attack import Guess, PropertyAuxiliary
from vflpriv.core.views import View

__all__ = ["FeatureProperty"]

_LEAST_MODELS = 4


@register("attack")
class FeatureProperty:
    """Ridge regression of the coin on the means and mean squares of what the device sends, over its first message about
    each record and over all, fitted to trainings of the adversary's own.

    It models a curious server, or whoever listens, that holds all records of which the training took some, as the
    adversary of `feature_lira` does, and trains the same system on draws of its own, with a small and with a large
    share of the attribute, from the same first parameters: these are public. Shadow models for a property of the whole
    training data are those of "Property Inference Attacks on Fully Connected Neural Networks using Permutation
    Invariant Representations" (Ganju et al., CCS 2018); that one reads parameters, and this one messages.

    Chance level: an AUC of 0.5. In every training each label has as many records, so that labels tell nothing. The ε
    beside it is that of the whole block of a device: a budget for one record does not hide what most of them share.
    """

    name = "feature_property"
    summary = "guesses whether few or most of a device's records have an attribute, from trainings of its own"
    target: ClassVar[str] = "property"
    needs = UPLINKS
    knows: ClassVar[frozenset[str]] = frozenset({"own-trainings"})
    heavy: ClassVar[bool] = False

    def refusal(self, view: View, auxiliary: PropertyAuxiliary) -> str | None:
        if not view.adversary.knows_batches or not _sent(view, auxiliary.victim):
            return "needs what the victim sends of each record; this view holds none of it"
        models = len(auxiliary.coins)
        return None if models >= _LEAST_MODELS else f"needs at least {_LEAST_MODELS} trainings of its own, not {models}"

    def run(self, view: View, auxiliary: PropertyAuxiliary) -> Guess:
        rows, own = (_statistics(v, auxiliary.victim) for v in (view, auxiliary.own))
        targets = auxiliary.coins.to(own).unsqueeze(1)
        scores = decode(own, targets, rows, bounded=False)[:, 0]
        return Guess(torch.arange(len(rows), device=rows.device), scores.unsqueeze(0))

    def blind(self, view: View, auxiliary: PropertyAuxiliary) -> Guess | None:
        """None: whoever sees nothing of the victim tosses a coin."""
        del view, auxiliary
        return None


def _sent(view: View, victim: int) -> list[tuple[Tensor, Tensor]]:
    """The records of each message of the victim and what it sent of them, (R, B, width)."""
    messages = [m for m in view.of_kind(*UPLINKS) if m.device.index == victim]
    rows = [
        (
            m.records,
            m.tensors["embedding"] if "embedding" in m.tensors else (m.tensors["plus"] + m.tensors["minus"]) / 2,
        )
        for m in messages
        if m.records is not None
    ]
    return [(records, values.flatten(2)) for records, values in rows if values.shape[2:] == rows[0][1].shape[2:]]


def _statistics(view: View, victim: int) -> Tensor:
    """(R, 4 · width) means and mean squares over the first message about each record, and over all messages."""
    seen: set[int] = set()
    sums: list[list[Tensor]] = [[], []]
    counts = [0, 0]
    for records, values in _sent(view, victim):
        fresh = [place for place, record in enumerate(records.tolist()) if record not in seen]
        seen.update(records.tolist())
        for which, part in enumerate((values[:, fresh], values)):
            wide = part.double()
            sums[which].append(torch.cat((wide.sum(1), wide.square().sum(1)), dim=1))
            counts[which] += part.shape[1]
    return torch.cat([torch.stack(s).sum(0) / max(1, n) for s, n in zip(sums, counts, strict=True)], dim=1)
