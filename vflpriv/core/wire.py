"""Parties, messages and the wire: every message passes through it, is counted, and is handed to the recorders."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import torch
    from torch import Tensor

__all__ = [
    "CIPHERTEXT",
    "CIPHERTEXT_BYTES",
    "SERVER",
    "LazyTensors",
    "Message",
    "Party",
    "Payload",
    "Recorder",
    "Traffic",
    "Transcript",
    "Wire",
    "device",
]


@dataclass(frozen=True, order=True)
class Party:
    """One end of a message. `index` is the device's number, or -1 for the server.

    >>> str(SERVER), str(device(2))
    ('server', 'device(2)')
    """

    index: int

    @property
    def is_server(self) -> bool:
        return self.index < 0

    def __str__(self) -> str:
        return "server" if self.is_server else f"device({self.index})"


SERVER = Party(-1)
CIPHERTEXT = "ciphertext"
"""The one tensor of a message of any kind that was sent encrypted: its bytes, a row for each ciphertext."""
CIPHERTEXT_BYTES = "ciphertext-bytes"
"""The one tensor of such a message of which only the number of bytes is known."""


@lru_cache(maxsize=1024)
def device(index: int) -> Party:
    """The device with this number."""
    if index < 0:
        raise ValueError(f"Expected index={index} >= 0 for a device.")
    return Party(index)


class LazyTensors(Mapping[str, "Tensor"]):
    """The tensors of a message, changed by a function of name and tensor when they are asked for; nothing is kept."""

    __slots__ = ("_change", "_tensors")

    def __init__(self, tensors: Mapping[str, Tensor], change: Callable[[str, Tensor], Tensor]) -> None:
        self._tensors, self._change = tensors, change

    def __getitem__(self, name: str) -> Tensor:
        return self._change(name, self._tensors[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)


@dataclass(frozen=True, kw_only=True, slots=True)
class Message:
    """One payload: tensors with a leading replica axis, and the ids of the records they belong to.

    The tensors of a recorded message are read from disk whenever they are asked for.
    """

    round: int
    sender: Party
    receiver: Party
    kind: str
    tensors: Mapping[str, Tensor]
    records: Tensor | None = None
    encrypted: bool = False
    """Whether only the sender and the receiver can read it."""
    batch: Tensor | None = None
    """The ids of all records that it was computed from, where tensors and `records` are those of a sample of them."""
    size: int | None = None
    """Bytes of one replica's payload, where it is sent in an encoding of its own."""

    @property
    def contributors(self) -> Tensor | None:
        """The ids of all records that it was computed from."""
        return self.records if self.batch is None else self.batch

    @property
    def payload_bytes(self) -> int:
        """Bytes of one replica's payload, ids not counted."""
        if self.size is not None:
            return self.size
        if CIPHERTEXT_BYTES in self.tensors:
            return int(self.tensors[CIPHERTEXT_BYTES][0])
        return sum(math.prod(t.shape[1:]) * t.element_size() for t in self.tensors.values())

    @property
    def is_ciphertext(self) -> bool:
        """Whether it holds the bytes of a ciphertext, or their number, and no values."""
        return len(self.tensors) == 1 and next(iter(self.tensors)) in (CIPHERTEXT, CIPHERTEXT_BYTES)

    @property
    def across(self) -> bool:
        """Whether one device sends it to another."""
        return not self.sender.is_server and not self.receiver.is_server

    @property
    def device(self) -> Party:
        """The device at the far end of the link to the server; of two devices, the one that sends."""
        return self.receiver if self.sender.is_server else self.sender

    def replica(self, r: int) -> Message:
        """The message as one replica's parties exchanged it."""
        return replace(self, tensors={name: value[r : r + 1] for name, value in self.tensors.items()})

    def to(self, device: torch.device) -> Message:
        """The same message on another device."""
        tensors = {name: value.to(device) for name, value in self.tensors.items()}
        return replace(self, tensors=tensors, records=None if self.records is None else self.records.to(device))


class Recorder(Protocol):
    """Whoever wants to see messages as they pass."""

    def record(self, message: Message) -> None: ...


@dataclass
class Traffic:
    """Payload bytes and messages of one replica, by direction and device; record ids apart, 8 bytes each."""

    up: Counter[Party] = field(default_factory=Counter)
    down: Counter[Party] = field(default_factory=Counter)
    messages: Counter[str] = field(default_factory=Counter)
    id_bytes: int = 0

    def record(self, message: Message) -> None:
        side = self.down if message.sender.is_server else self.up
        side[message.device] += message.payload_bytes
        self.messages[message.kind] += 1
        if message.records is not None:
            self.id_bytes += 8 * message.records.numel()

    @property
    def total(self) -> int:
        """Payload bytes in both directions."""
        return self.up.total() + self.down.total()


@dataclass
class Transcript:
    """The recorded messages of a run.

    `kinds` limits what is kept to these kinds, `devices` to the links of these devices; by default all is kept.
    """

    kinds: frozenset[str] | None = None
    devices: frozenset[int] | None = None
    messages: list[Message] = field(default_factory=list)

    def record(self, message: Message) -> None:
        wanted = self.kinds is None or message.kind in self.kinds
        linked = self.devices is None or message.device.index in self.devices
        if wanted and linked:
            self.messages.append(message)


class Wire:
    """Counts each message and hands it to the recorders."""

    def __init__(self, *recorders: Recorder) -> None:
        self.traffic = Traffic()
        self._recorders = (self.traffic, *recorders)

    def send(self, message: Message) -> Message:
        """Put one message on the wire and return it as the receiver gets it."""
        for recorder in self._recorders:
            recorder.record(message)
        return message


@dataclass(frozen=True)
class Payload:
    """The contents of a message, before it has a sender, a receiver and a round."""

    kind: str
    tensors: Mapping[str, Tensor]
    encrypted: bool = False
    """Whether only the sender and the receiver can read it."""
    size: int | None = None
    """Bytes of one replica's payload, where it is sent in an encoding of its own."""

    def send(self, wire: Wire, round_: int, sender: Party, receiver: Party, records: Tensor) -> Mapping[str, Tensor]:
        """What arrives at the receiver."""
        message = Message(
            round=round_,
            sender=sender,
            receiver=receiver,
            kind=self.kind,
            tensors=self.tensors,
            records=records,
            encrypted=self.encrypted,
            size=self.size,
        )
        return wire.send(message).tensors
