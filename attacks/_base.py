"""What label attacks share: defaults of the declarations, sums by record, and what an adversary guesses by itself."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import ClassVar

import torch
from torch import Tensor

from vflpriv.attacks._features import posterior
from vflpriv.core.attack import Auxiliary, Conduct, LabelGuess
from vflpriv.core.views import View
from vflpriv.core.wire import Message

__all__ = ["LabelAttack", "by_record", "ids_of", "what_it_gets"]

_DOWNLINKS = {
    "zo-scalar": "the server sends one scalar for the whole batch",
    "losses": "the server sends losses of the whole batch",
    "loss-difference": "the server sends one loss difference for the whole batch",
    "loss-differences": "the server sends loss differences, not gradients",
    "admm-variables": "the server sends dual variables, not gradients",
    "logit-gradient": "the server sends gradients",
    "summed-logits": "the server sends summed logits",
    "embedding-gradient": "gradients of embeddings have no entry for each class",
}


class LabelAttack(ABC):
    """An attack on labels. A variant says what it misses in a view, and how it guesses."""

    name: ClassVar[str]
    summary: ClassVar[str]
    needs: ClassVar[frozenset[str]]
    target: ClassVar[str] = "labels"
    auxiliary: ClassVar[bool] = False
    conduct: ClassVar[Conduct | None] = None
    heavy: ClassVar[bool] = False

    def refusal(self, view: View) -> str | None:
        if "summed-logits" in view.kinds and view.adversary.is_device:
            return "needs labels that are kept from the devices; here the devices hold them"
        if not view.adversary.knows_batches:
            return "needs to know which record a message belongs to"
        missing = self.missing(view)
        return None if missing is None else f"needs {missing}"

    @abstractmethod
    def missing(self, view: View) -> str | None:
        """What it needs and does not find in this view, or None."""

    @abstractmethod
    def run(self, view: View, auxiliary: Auxiliary) -> LabelGuess: ...

    def blind(self, view: View, auxiliary: Auxiliary) -> LabelGuess | None:
        """From its own features and the labels it was given; without labels it has nothing to go by."""
        if not self.auxiliary or not view.own or not len(auxiliary.records):
            return None
        chances = posterior([own.features for own in view.own.values()], auxiliary, view.classes)
        return LabelGuess(torch.arange(len(chances), device=chances.device), chances.argmax(-1).unsqueeze(0))


def what_it_gets(view: View) -> str:
    """What the server sends instead of what an attack needs."""
    return next((why for kind, why in _DOWNLINKS.items() if kind in view.kinds), "this view holds none")


def ids_of(messages: Iterable[Message]) -> tuple[Tensor, Tensor]:
    """The records that messages speak of, and for each row of all messages the place of its record among them."""
    records, place = torch.cat([m.records for m in messages if m.records is not None]).unique(return_inverse=True)
    return records, place


def by_record(place: Tensor, values: Tensor, count: int) -> Tensor:
    """(R, records, …) sums of (R, rows, …) over the rows of each record."""
    total = torch.zeros(values.shape[0], count, *values.shape[2:], dtype=values.dtype, device=values.device)
    return total.index_add_(1, place, values)
