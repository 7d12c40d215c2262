"""The wire: every message passes through it, is counted, and is handed to whoever records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["SERVER", "Message", "Party", "Payload", "Recorder", "Shift", "Traffic", "Transcript", "Wire", "device"]


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


def device(index: int) -> Party:
    """The device with this number."""
    if index < 0:
        raise ValueError(f"Expected index={index} >= 0 for a device.")
    return Party(index)


# The wire: every message passes through it, is counted, and is handed to whoever records.


@dataclass(frozen=True, eq=False, kw_only=True)
class Shift:
    """How the coins of many canaries move one noiseless value: `centre` + the sum of ±`halves`, plus in world 0.

    `centre` is (R, …), `halves` is (R, k, …) for the k canaries whose numbers are in `canaries`. Neither depends on a
    coin where all state is post-processing of releases.
    """

    canaries: Tensor
    centre: Tensor
    halves: Tensor


@dataclass(frozen=True, kw_only=True)
class Message:
    """One payload: tensors with a leading replica axis, and the ids of the records they speak of.

    `worlds` exists only in a run with a canary: for each tensor, its noiseless value in either world, (R, 2). It is
    what an adversary who knows every other record can compute for itself, so audits may read it; it is never sent.
    `shifts` is the same in a run with many canaries, for an adversary who knows every record but the canaries' coins.
    """

    round: int
    sender: Party
    receiver: Party
    kind: str
    tensors: Mapping[str, Tensor]
    records: Tensor | None = None
    worlds: Mapping[str, Tensor] = field(default_factory=dict)
    shifts: Mapping[str, Shift] = field(default_factory=dict)

    @property
    def payload_bytes(self) -> int:
        """Bytes of one replica's payload, ids not counted."""
        return sum(t[0].numel() * t.element_size() for t in self.tensors.values())

    @property
    def device(self) -> Party:
        """The device at the far end of the link to the server."""
        return self.receiver if self.sender == SERVER else self.sender

    def replica(self, r: int) -> Message:
        """The message as one replica's parties exchanged it."""
        tensors = {name: value[r : r + 1] for name, value in self.tensors.items()}
        return replace(self, tensors=tensors, worlds={name: value[r : r + 1] for name, value in self.worlds.items()})


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
        side = self.down if message.sender == SERVER else self.up
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

    `kinds` limits what is kept to these kinds, `devices` to the links of these devices, `moved` to what a canary moves;
    by default all is kept.
    """

    kinds: frozenset[str] | None = None
    moved: bool = False
    devices: frozenset[int] | None = None
    messages: list[Message] = field(default_factory=list)

    def record(self, message: Message) -> None:
        wanted = self.kinds is None or message.kind in self.kinds
        linked = self.devices is None or message.device.index in self.devices
        if wanted and linked and (message.worlds or message.shifts or not self.moved):
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
    """The contents of a message; `worlds` and `shifts` as in `Message`."""

    kind: str
    tensors: Mapping[str, Tensor]
    worlds: Mapping[str, Tensor] = field(default_factory=dict)
    shifts: Mapping[str, Shift] = field(default_factory=dict)

    def send(self, wire: Wire, round_: int, sender: Party, receiver: Party, records: Tensor) -> Mapping[str, Tensor]:
        """What arrives at the receiver."""
        message = Message(
            round=round_,
            sender=sender,
            receiver=receiver,
            kind=self.kind,
            tensors=self.tensors,
            records=records,
            worlds=self.worlds,
            shifts=self.shifts,
        )
        return wire.send(message).tensors
