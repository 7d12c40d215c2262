"""Adversaries, and the view of each: the messages and secrets of a run that it has, and nothing else."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from vflpriv.core.wire import Message, Transcript
from vflpriv.errors import InputError

if TYPE_CHECKING:
    import torch
    from torch import Tensor

__all__ = [
    "DEVICES_TRIED",
    "DOWNLINK_READERS",
    "EVERYONE",
    "ON_THE_WIRE",
    "UPLINK_READERS",
    "Adversary",
    "Belongings",
    "View",
]

ON_THE_WIRE = frozenset({"eavesdropper", "outsider"})
"""Kinds of adversaries that are no party: they observe what is sent, unless it is encrypted."""
UPLINK_READERS = ON_THE_WIRE | {"server"}
"""Who sees what a device sends in the clear."""
DOWNLINK_READERS = ON_THE_WIRE | {"device", "devices"}
"""Who sees what the server sends to devices."""
EVERYONE = UPLINK_READERS | DOWNLINK_READERS | {"model"}
"""Who sees what is sent, and what the trained models depend on."""
DEVICES_TRIED = 4
"""How many devices of a system that is not ours are looked at where a claim is about any device."""

_SYNTAX = re.compile(r"^(device|devices|eavesdropper|server|model|outsider)(?:\(([\d,\s]*|all)\))?$")
_FORMS = "device, device(M), devices(all), devices(M, …), eavesdropper, server, model or outsider"


@dataclass(frozen=True)
class Adversary:
    """An adversary. `devices` is empty for parties without a number and for "any" or "all" devices.

    `device` without a number is any single device, hence the worst one; `devices(all)` is all of them together.

    >>> Adversary.parse("devices(0, 2)").devices, str(Adversary.parse("devices(all)"))
    ((0, 2), 'devices(all)')
    """

    kind: str
    devices: tuple[int, ...] = ()

    @classmethod
    def parse(cls, text: str) -> Adversary:
        match = _SYNTAX.match(text.strip())
        if match is None:
            raise InputError("view", text, _FORMS)
        kind, inside = match[1], (match[2] or "").strip()
        numbers = () if inside in ("", "all") else tuple(sorted({int(n) for n in inside.split(",") if n.strip()}))
        wrong = (
            (kind == "device" and (inside == "all" or len(numbers) > 1))
            or (kind == "devices" and not inside)
            or (kind not in ("device", "devices") and bool(inside))
        )
        if wrong:
            raise InputError("view", text, _FORMS)
        return cls(kind, numbers)

    def __str__(self) -> str:
        if self.devices:
            return f"{self.kind}({', '.join(map(str, self.devices))})"
        return "devices(all)" if self.kind == "devices" else self.kind

    @property
    def is_device(self) -> bool:
        return self.kind in ("device", "devices")

    @property
    def holds_model(self) -> bool:
        """Whether it holds the trained server model, and sees nothing else."""
        return self.kind == "model"

    @property
    def knows_batches(self) -> bool:
        """Whether it knows the records of each batch: parties draw them or are told, and ids are on the wire."""
        return self.is_device or self.kind in ("server", "eavesdropper")

    def members(self, devices: int) -> tuple[int, ...]:
        """The devices it consists of, out of `devices`; empty for anyone who is not a device.

        `device` without a number must be resolved to one device first.
        """
        if not self.is_device:
            return ()
        if self.devices:
            if self.devices[-1] >= devices:
                raise InputError("view", str(self), f"device numbers below {devices}")
            return self.devices
        if self.kind == "device":
            raise ValueError("Expected one device: resolve 'device' with each() first.")
        return tuple(range(devices))

    def each(self, devices: int) -> tuple[Adversary, ...]:
        """The adversaries meant: one for each device if this is `device` without a number, else this one."""
        if self.kind == "device" and not self.devices:
            return tuple(Adversary("device", (m,)) for m in range(devices))
        return (self,)

    def sees(self, message: Message, devices: int) -> bool:
        """Whether it observes this message."""
        if self.is_device:
            return not {message.sender.index, message.receiver.index}.isdisjoint(self.members(devices))
        if self.kind == "server" and not message.across:
            return True
        return self.kind in ON_THE_WIRE and not message.encrypted


@dataclass(frozen=True, eq=False, kw_only=True)
class Belongings:
    """A device's own secrets: its features, its model before and after training, and how it behaved.

    `features` is (N, d), a row for each training record; parameters are (R, …). `apply` computes the model's outputs
    (R, B, …) from parameters and rows (B, d). A recording may hold a device's features, but not its model: then there
    are no parameters.
    """

    features: Tensor
    apply: Callable[[Mapping[str, Tensor], Tensor], Tensor]
    initial: Mapping[str, Tensor]
    trained: Mapping[str, Tensor]
    conduct: str = "honest"

    @property
    def has_model(self) -> bool:
        """Whether it has the device's model."""
        return bool(self.trained)

    def replica(self, r: int) -> Belongings:
        """The secrets of one replica."""
        initial = {name: value[r : r + 1] for name, value in self.initial.items()}
        trained = {name: value[r : r + 1] for name, value in self.trained.items()}
        return replace(self, initial=initial, trained=trained)

    def to(self, device: torch.device) -> Belongings:
        """The same secrets on another device."""
        initial = {name: value.to(device) for name, value in self.initial.items()}
        trained = {name: value.to(device) for name, value in self.trained.items()}
        return replace(self, features=self.features.to(device), initial=initial, trained=trained)


@dataclass(frozen=True)
class View:
    """The messages that an adversary observes, and its own secrets: the only thing attacks and audits are given."""

    adversary: Adversary
    messages: tuple[Message, ...]
    classes: int
    own: Mapping[int, Belongings] = field(default_factory=dict)
    """The secrets of each device that the adversary consists of."""

    @classmethod
    def of(
        cls,
        transcript: Transcript,
        adversary: Adversary,
        *,
        devices: int,
        classes: int,
        own: Mapping[int, Belongings] | None = None,
    ) -> View:
        """An adversary's view of a transcript; without record ids if it does not know the batches."""
        seen = (m for m in transcript.messages if adversary.sees(m, devices))
        if not adversary.knows_batches:
            seen = (replace(m, records=None, batch=None) for m in seen)
        members = adversary.members(devices)
        return cls(adversary, tuple(seen), classes, {m: b for m, b in (own or {}).items() if m in members})

    @cached_property
    def counts(self) -> Counter[str]:
        """How many messages of each kind are in it."""
        return Counter(m.kind for m in self.messages)

    @property
    def kinds(self) -> frozenset[str]:
        """The kinds of the messages in it."""
        return frozenset(self.counts)

    def of_kind(self, *kinds: str) -> tuple[Message, ...]:
        """Its messages of these kinds, in order."""
        return tuple(m for m in self.messages if m.kind in kinds)

    @property
    def has_models(self) -> bool:
        """Whether the adversary consists of devices, and has the models of all of them."""
        return bool(self.own) and all(own.has_model for own in self.own.values())

    def replica(self, r: int) -> View:
        """The view of one replica; made once, as many attacks read it, and the view itself if it has no others."""
        if r == 0 and self._is_single:
            return self
        if r not in self._replicas:
            messages = tuple(m.replica(r) for m in self.messages)
            own = {m: b.replica(r) for m, b in self.own.items()}
            self._replicas[r] = replace(self, messages=messages, own=own)
        return self._replicas[r]

    @cached_property
    def _is_single(self) -> bool:
        """Whether its messages are those of one replica."""
        first = next((tensor for message in self.messages[:1] for tensor in message.tensors.values()), None)
        return first is not None and first.shape[0] == 1

    @cached_property
    def _replicas(self) -> dict[int, View]:
        return {}

    def to(self, device: torch.device) -> View:
        """The same view on another device."""
        messages = tuple(message.to(device) for message in self.messages)
        return replace(self, messages=messages, own={m: b.to(device) for m, b in self.own.items()})

    def silent(self) -> View:
        """The view without what the server sends: no messages, and models as they were before the first round.

        An adversary who owns no features keeps what the devices sent, which tells of features whatever is done to the
        labels: what was sent first of a record depends on its features, and not on its own label.
        """
        own = {m: replace(b, trained=b.initial, conduct="honest") for m, b in self.own.items()}
        return replace(self, messages=() if own else tuple(m for m in self.messages if m.receiver.is_server), own=own)
