"""The base class of defences: what they declare, and where the round loop lets them change messages.

A defence changes what one party sends before it goes on the wire: the server's gradients, or the devices' outputs. Any
engine whose messages have that content can be trained under it. The server's gradients can also be changed at their
source: by a layer between what it receives and what it trains on, or by other labels, which predictions are decoded
from. Or it is a protection that engines have themselves, and sets their settings. A defence that promises no ε gets no
credit in the ledger: what it changes counts as it did without it.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

from pydantic import SerializerFunctionWrapHandler, ValidationError, model_serializer

from vflpriv.common.registry import available, find
from vflpriv.common.toml import Section
from vflpriv.core.kinds import Content, kind_named
from vflpriv.core.wire import Payload
from vflpriv.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor

    from vflpriv.core.law import Draws

__all__ = [
    "NO_EPSILON",
    "Defence",
    "Exchange",
    "Guard",
    "MessageDefence",
    "Protected",
    "defended",
    "in_force",
    "named_defence",
    "parse_defence",
]

NO_EPSILON = "no ε"
"""The promise of a defence that gives no guarantee."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Exchange:
    """What is known when a message is protected; `labels` and `received` are known to the server alone.

    `labels` is (R, B), the labels that the server trains on. `received` is what each device sent in this round,
    (R, B, width); empty for a device's own message.
    """

    round: int
    party: int
    """The device that sends or receives the message; the first of those that receive the same one."""
    labels: Tensor
    received: Mapping[int, Tensor]


@dataclass(frozen=True, eq=False, kw_only=True)
class Protected:
    """The values as they are sent, and the bytes of one replica's values where they are sent in fewer than usual."""

    values: Tensor
    size: int | None = None


class Guard:
    """A defence at work in one training, with its random numbers and its state. Each hook changes nothing by itself."""

    for_each_device: bool = False
    """Whether a value that several devices are sent is protected for each of them, and not once for all."""

    def protect(self, values: Tensor, exchange: Exchange) -> Protected:
        """What is sent in place of these values, (R, B, width)."""
        return Protected(values=values)

    def texts(self, ids: Tensor, vectors: Tensor, party: int) -> Tensor:
        """What a device trains on in place of its texts, (R or 1, N, tokens); `vectors` are those of words, (V, W)."""
        return ids

    def received(self, values: Tensor, round_: int, party: int) -> Tensor:
        """What the server trains on in place of a device's output (R, B, width); `protect` is asked to go back."""
        return values

    def read(self, values: Tensor, party: int) -> Tensor:
        """What the server predicts from in place of a device's output, (replicas, B, width), of the first replicas."""
        return values

    def targets(self, labels: Tensor, classes: int) -> Tensor:
        """What losses are taken against in place of labels (R, B), or of probabilities of labels (R, B, C)."""
        return labels

    def decoded(self, logits: Tensor) -> Tensor:
        """The logits (replicas, B, C) of labels, from those of what `targets` gave; of the first replicas."""
        return logits

    def parameters(self) -> Mapping[str, Tensor]:
        """What it has trained at the server, (R, …) each."""
        return {}


class Defence(Section, ABC):
    """A defence and how strong it is. Its fields are its strengths; their descriptions are the user documentation."""

    name: ClassVar[str]
    summary: ClassVar[str]
    source: ClassVar[str]
    content: ClassVar[Content | None] = None
    """The content of the messages that it changes: the server's gradients or the devices' outputs; None for neither."""
    draws: ClassVar[bool] = True
    """Whether it draws secret numbers."""
    of_texts: ClassVar[bool] = False
    """Whether it replaces the tokens of devices' texts, before training; it then changes no message."""
    binary: ClassVar[bool] = False
    """Whether it is for labels of two classes alone."""
    switch: ClassVar[Mapping[str, str]] = {}
    """The engine settings that choose it, where engines have the protection themselves."""
    read_from: ClassVar[Mapping[str, str]] = {}
    """For each strength the engine setting that holds it, where engines have the protection themselves."""

    @property
    def promise(self) -> str:
        """The guarantee that it gives by itself, as tables show it."""
        return NO_EPSILON

    @property
    def settings(self) -> Mapping[str, Any]:
        """The engine settings that it sets, where engines have the protection themselves."""
        return {**self.switch, **{name: getattr(self, strength) for strength, name in self.read_from.items()}}

    def guard(self, stream: Draws) -> Guard | None:
        """The defence at work in one training; `stream` is for its random numbers alone."""
        return None

    @classmethod
    def found_in(cls, settings: Any) -> Self | None:
        """The defence that these engine settings stand for; None if they do not set all that it would."""
        if not cls.read_from:
            return None
        try:
            defence = cls(**{strength: getattr(settings, name, None) for strength, name in cls.read_from.items()})
        except ValidationError:
            return None
        same = (getattr(settings, name, None) == value for name, value in defence.settings.items())
        return defence if all(same) else None

    def refusal(
        self,
        *,
        kinds: Collection[str],
        fields: Collection[str],
        classes: int,
        noised: Collection[str] = (),
        texts: bool = False,
    ) -> str | None:
        """Why it does not apply to an engine that sends these kinds and has these settings; None if it does.

        `texts` says whether its devices read texts with the published word vectors of an encoder.

        `noised` are the kinds that leave with noise of the engine's own: audits follow that noise to the wire, and
        could not if it were changed on its way.
        """
        if self.of_texts and not texts:
            return "needs texts, and an encoder whose word vectors are published"
        missing = [field for field in self.settings if field not in fields]
        if missing:
            return f"needs the setting {missing[0]}, which the engine does not have"
        if self.content is not None and not any(_has(kind, self.content) for kind in kinds):
            return f"needs messages with {self.content.value}, found {', '.join(sorted(kinds))}"
        changed = [kind for kind in sorted(noised) if self.content is not None and _has(kind, self.content)]
        if changed:
            return f"needs {changed[0]} without noise of the engine's own, which audits follow to the wire"
        return f"needs labels of 2 classes, found {classes}" if self.binary and classes != 2 else None

    @model_serializer(mode="wrap")
    def _with_name(self, fields: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {"name": self.name, **fields(self)}


class MessageDefence(Defence):
    """A defence that changes every message by itself, and keeps nothing from one to the next."""

    for_each_device: ClassVar[bool] = False
    """As `Guard.for_each_device`."""

    def guard(self, stream: Draws) -> Guard:
        return _EachMessage(self, stream)

    @abstractmethod
    def protect(self, values: Tensor, exchange: Exchange, stream: Draws) -> Protected:
        """What is sent in place of these values, (R, B, width)."""


class _EachMessage(Guard):
    def __init__(self, defence: MessageDefence, stream: Draws) -> None:
        self._defence, self._stream, self.for_each_device = defence, stream, defence.for_each_device

    def protect(self, values: Tensor, exchange: Exchange) -> Protected:
        return self._defence.protect(values, exchange, self._stream)


def parse_defence(value: Any) -> Defence | None:
    """A defence from its name, or from a table with its name and its strengths."""
    if value is None or isinstance(value, Defence):
        return value
    kind, strengths = named_defence(value)
    return kind.model_validate(strengths)


def named_defence(value: Any) -> tuple[type[Defence], dict[str, Any]]:
    """The class of a defence and its strengths, which are not checked yet."""
    strengths = {"name": value} if isinstance(value, str) else dict(value) if isinstance(value, Mapping) else {}
    name = strengths.pop("name", None)
    if not isinstance(name, str):
        raise InputError("defence", value, "the name of a defence, or a table with its name and strengths")
    return find("defence", name), strengths


def in_force(settings: Any) -> dict[str, dict[str, Any]]:
    """The strengths of each defence that engine settings put in force, by its name: what is public about it.

    It may be named (`defence`), or the settings may be those that it stands for.
    """
    named = [] if settings.defence is None else [settings.defence]
    implied = [kind.found_in(settings) for kind in available("defence").values()]
    return {defence.name: dict(defence) for defence in (*implied, *named) if defence is not None}


def _has(kind: str, content: Content) -> bool:
    known = kind_named(kind)
    return known is not None and known.content is content


def defended(
    guard: Guard, content: Content, payloads: Mapping[int, Payload], exchange: Exchange
) -> Mapping[int, Payload]:
    """These payloads, by device, as the guard lets them go: all tensors of those with this content."""
    once: dict[int, Protected] = {}
    sent = {}
    for m, payload in payloads.items():
        protected = {}
        for name, values in payload.tensors.items() if _has(payload.kind, content) else ():
            if guard.for_each_device or id(values) not in once:
                once[id(values)] = _protected(guard, values, replace(exchange, party=m))
            protected[name] = once[id(values)]
        sizes = [own.size for own in protected.values() if own.size is not None]
        tensors = {**payload.tensors, **{name: own.values for name, own in protected.items()}}
        sent[m] = replace(
            payload, tensors=tensors, size=sum(sizes) if protected and len(sizes) == len(protected) else None
        )
    return sent


def _protected(guard: Guard, values: Tensor, exchange: Exchange) -> Protected:
    """The guard's answer for values (R, …, B, width), which it is shown as (R, rows, width), at least one row."""
    if not values.numel():
        return Protected(values=values)
    rows = values.reshape(len(values), math.prod(values.shape[1:-1]), values.shape[-1])
    protected = guard.protect(rows, exchange)
    return replace(protected, values=protected.values.reshape(values.shape))
