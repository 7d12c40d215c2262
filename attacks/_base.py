"""Base classes of label and feature attacks: declarations, refusals, and the guess made without the protocol."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import ClassVar

import torch
from torch import Tensor

from vflpriv.attacks._estimators import decode, posterior
from vflpriv.attacks._observations import (
    Observation,
    first_columns,
    known_positions,
    last_and_mean,
    positions_in,
    records_of,
    sum_by_record,
)
from vflpriv.core.attack import Auxiliary, Conduct, FeatureAuxiliary, Guess, Guesses
from vflpriv.core.views import View
from vflpriv.core.wire import Message

__all__ = [
    "FeatureInference",
    "GradientInference",
    "LabelInference",
    "TogetherInference",
    "decode_features",
    "few_known",
    "own_features",
    "sent_instead",
    "smallest_entry",
]

_DOWNLINKS = {
    "zo-scalar": "the server sends one scalar per batch",
    "losses": "the server sends losses of whole batches",
    "loss-difference": "the server sends one loss difference per batch",
    "loss-differences": "the server sends loss differences",
    "admm-variables": "the server sends dual variables and residuals",
    "logit-gradient": "the server sends gradients of logits",
    "summed-logits": "the server sends summed logits",
    "embedding-gradient": "the server sends gradients of embeddings",
}
_NO_IDS = "needs to know which record a message belongs to"
_LEAST_KNOWN = 3
"""A decoder is fitted to at least so many known records."""


class LabelInference(ABC):
    """Base of attacks on labels. A subclass names what a view lacks (`missing`) and guesses the labels (`run`)."""

    name: ClassVar[str]
    summary: ClassVar[str]
    needs: ClassVar[frozenset[str]]
    reads: ClassVar[str] = "messages about each record"
    """What a refusal says that it needs, where the view holds none of `needs`."""
    target: ClassVar[str] = "labels"
    auxiliary: ClassVar[bool] = False
    conduct: ClassVar[Conduct | None] = None
    heavy: ClassVar[bool] = False
    adapts_to: ClassVar[frozenset[str]] = frozenset()
    """The defences that it knows: it uses what is public about them."""
    most: ClassVar[int] = 4000
    """Records that are attacked together, where that takes long; of more, so many are drawn at random."""

    def refusal(self, view: View) -> str | None:
        if "summed-logits" in view.kinds and view.adversary.is_device:
            return "needs labels that are kept from the devices; here the devices hold them"
        if not view.adversary.knows_batches:
            return _NO_IDS
        missing = self.missing(view)
        return None if missing is None else f"needs {missing}"

    def missing(self, view: View) -> str | None:
        """What the attack needs and this view lacks, or None."""
        return None if self.needs & view.kinds else f"{self.reads}; {sent_instead(view)}"

    @abstractmethod
    def run(self, view: View, auxiliary: Auxiliary) -> Guess: ...

    def blind(self, view: View, auxiliary: Auxiliary) -> Guess | None:
        """The guess from the adversary's own features and the labels it was given; None if it lacks either.

        What devices sent first of each record is the features of an adversary who owns none.
        """
        if not self.auxiliary or not len(auxiliary.records):
            return None
        if not view.own:
            return _blind_by_outputs(view, auxiliary)
        probabilities = posterior([own.features for own in view.own.values()], auxiliary, view.classes)
        records = torch.arange(len(probabilities), device=probabilities.device)
        return Guess(records, probabilities.argmax(-1).unsqueeze(0))


class GradientInference(LabelInference):
    """Base of attacks on labels that read each record's gradients and know a few labels."""

    needs = frozenset({"logit-gradient", "embedding-gradient"})
    auxiliary = True
    reads = "gradients of each record"


class TogetherInference(LabelInference):
    """Base of attacks on labels that are faster on all replicas of a view at once."""

    def run(self, view: View, auxiliary: Auxiliary) -> Guess:
        return self.run_together(view, [auxiliary])[0]

    @abstractmethod
    def run_together(self, view: View, auxiliaries: Sequence[Auxiliary]) -> list[Guess]:
        """`run` of each replica, with the auxiliary knowledge of each."""

    def blind_together(self, view: View, auxiliaries: Sequence[Auxiliary]) -> Sequence[Guess | None]:
        """`blind` of each replica, with the auxiliary knowledge of each."""
        return [self.blind(view.replica(r), auxiliary) for r, auxiliary in enumerate(auxiliaries)]

    def run_and_blind(self, view: View, auxiliaries: Sequence[Auxiliary]) -> Guesses:
        return self.run_together(view, auxiliaries), self.blind_together(view.silent(), auxiliaries)


def _blind_by_outputs(view: View, auxiliary: Auxiliary) -> Guess | None:
    """The guess from the first output of each record that was sent; later ones its own label may have shaped."""
    messages = [m for m in view.messages if m.records is not None and "embedding" in m.tensors]
    if not messages:
        return None
    records = records_of(messages)
    known, which = known_positions(records, auxiliary.records)
    if not len(known):
        return None
    rows = torch.cat([column[0] for column in first_columns(messages, "embedding", records.unsqueeze(0))], dim=1)
    told = replace(auxiliary, records=known, labels=auxiliary.labels[which])
    return Guess(records, posterior([rows], told, view.classes).argmax(-1).unsqueeze(0))


def sent_instead(view: View) -> str:
    """Second half of a refusal: what the server sends in place of the messages that an attack needs."""
    return next((sentence for kind, sentence in _DOWNLINKS.items() if kind in view.kinds), "this view holds none")


def smallest_entry(messages: Sequence[Message], values: Iterable[Tensor]) -> Guess:
    """The class with the smallest entry in the sum of a record's values over all messages, (R, B, C) per message."""
    records = records_of(messages)
    return Guess(records, sum_by_record(positions_in(records, messages), values, len(records)).argmin(-1))


class FeatureInference(ABC):
    """Base of attacks on one device's features. A subclass names what it lacks (`missing`) and guesses (`run`)."""

    name: ClassVar[str]
    summary: ClassVar[str]
    needs: ClassVar[frozenset[str]]
    knows: ClassVar[frozenset[str]]
    target: ClassVar[str] = "features"
    heavy: ClassVar[bool] = False
    adapts_to: ClassVar[frozenset[str]] = frozenset()
    """The defences that it knows: it uses what is public about them."""
    forges: ClassVar[bool] = False
    """Whether it is that of a malicious server: `answers`, from the auxiliary knowledge of each replica, is what the
    server sends in a training of its own."""
    by_record: ClassVar[bool] = False
    """Whether it reads each record's rows by themselves, so that it can be tried on the rows of a sample of records."""

    def refusal(self, view: View, auxiliary: FeatureAuxiliary) -> str | None:
        if not view.adversary.knows_batches:
            return _NO_IDS
        if auxiliary.victim in view.own:
            return f"needs a victim that is not part of the adversary; device {auxiliary.victim} is"
        missing = self.missing(view, auxiliary)
        return None if missing is None else f"needs {missing}"

    @abstractmethod
    def missing(self, view: View, auxiliary: FeatureAuxiliary) -> str | None:
        """What the attack needs and neither the view nor the auxiliary knowledge holds, or None."""

    @abstractmethod
    def run(self, view: View, auxiliary: FeatureAuxiliary) -> Guess: ...

    def blind(self, view: View, auxiliary: FeatureAuxiliary) -> Guess | None:
        """The guess from the adversary's own features and the records it knows; None if it lacks either."""
        if not view.own or len(auxiliary.records) < _LEAST_KNOWN:
            return None
        rows = own_features(view)
        blocks = decode(rows.index_select(0, auxiliary.records), auxiliary.block, rows)
        records = torch.arange(len(rows), device=rows.device)
        return Guess(records, blocks.unsqueeze(0))


def own_features(view: View) -> Tensor:
    """(N, …) the blocks of the adversary's own devices side by side."""
    return torch.cat([own.features.flatten(1).to(torch.float32) for own in view.own.values()], dim=1)


def few_known(observations: Sequence[Observation], auxiliary: FeatureAuxiliary, what: str) -> str | None:
    """Refusal of an attack that decodes features from observations: too few are of known records; or None."""
    positions, _ = known_positions(last_and_mean(observations)[0], auxiliary.records)
    if len(positions) >= _LEAST_KNOWN:
        return None
    return f"{what} of at least {_LEAST_KNOWN} known records; it saw {len(positions)}"


def decode_features(records: Tensor, rows: Tensor, auxiliary: FeatureAuxiliary) -> Tensor:
    """The victim's features (n, d) of sorted records, decoded from `rows` (n, …) by what is known of some of them."""
    positions, known = known_positions(records, auxiliary.records)
    return decode(rows.index_select(0, positions), auxiliary.block.index_select(0, known), rows)
