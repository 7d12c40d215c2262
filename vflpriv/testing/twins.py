"""An assertion about a training in two neighbouring worlds with the same randomness: what differs is in the ledger."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from vflpriv.audits.twins.reconcile import is_open, link, viewers
from vflpriv.audits.wire import recorded_tensors
from vflpriv.core.ledger import Ledger
from vflpriv.core.releases import Release
from vflpriv.core.units import Unit
from vflpriv.core.views import Adversary
from vflpriv.core.wire import Message
from vflpriv.recording.checked_wire import MemoryWire
from vflpriv.recording.files.format import Entry
from vflpriv.recording.ledger_file import LedgerConfig, load_ledger
from vflpriv.recording.schedule import RecordedSchedule
from vflpriv.testing.mechanisms import Train

__all__ = ["assert_twin_wires"]

_RELATIVE, _ROUNDING = 1e-4, 4e-6


class _FollowingWire(MemoryWire):
    """Delivers, in messages of noised kinds, what another wire was given in their place."""

    def __init__(self, leader: Sequence[Message], noised: frozenset[str], **head: int) -> None:
        super().__init__(**head)
        self._leader, self._noised = leader, noised

    def delivered(self, entry: Entry, tensors: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        own, place = self.transcript.messages[-1], len(self.transcript.messages) - 1
        if entry.kind not in self._noised or place >= len(self._leader):
            return super().delivered(entry, tensors)
        led = self._leader[place]
        if _outline(led) != _outline(own):
            return super().delivered(entry, tensors)
        return {name: value[0].clone() for name, value in led.tensors.items()}


def assert_twin_wires(
    train: Train,
    *,
    ledger: LedgerConfig | str | Path,
    devices: int,
    classes: int,
    records: int,
    unit: Unit | str,
    seed: int = 0,
    record: int | None = None,
) -> float:
    """Train in two neighbouring worlds with the same seed, and fail if more differs on the wire than the ledger says.

    `train(wire, world, seed)` draws all randomness from `seed`, in the same order in both worlds, and goes on with what
    `wire.up` and `wire.down` return. In world 1 they return, for kinds that the ledger declares noised, what world 0
    sent: what else differs between the worlds then differs without noise. It must be a kind that the ledger declares so
    for this unit, or one that only tells those who see the unit without protection anyway. What is handed in for a
    noised kind has the same noise in both worlds, and differs by at most the declared sensitivity; not at all in
    messages without the `record` that differs, if it is given.

    `ledger` is a ledger file or its path. Returns the largest difference under the noise, relative to the declared one.
    There are no statistics in it, but a test of two worlds is no proof for others.
    """
    config = ledger if isinstance(ledger, LedgerConfig) else load_ledger(Path(ledger))
    head = {"devices": devices, "classes": classes, "records": records}
    noised = frozenset(r.kind for r in config.release if r.noise != "none")
    runs: list[Sequence[Message]] = []
    for world in (0, 0, 1):
        wire = _FollowingWire(runs[0] if world else (), noised, **head)
        train(wire, world, seed)
        runs.append(wire.transcript.messages)
    first, again, other = runs
    repeated = _first_difference(first, again)
    if repeated is not None:
        raise AssertionError(
            f"Expected the same messages from two runs of world 0 with seed={seed}, found {repeated}: draw all "
            "randomness from the seed that train is given."
        )
    return _Comparison(config, _declared(config, first, head), Unit(unit), record).largest(first, other)


def _declared(config: LedgerConfig, messages: Sequence[Message], head: Mapping[str, int]) -> Ledger:
    """The ledger of the run, in which every message and tensor must be listed."""
    ways: dict[str, set[str]] = {}
    for m in messages:
        ways.setdefault(m.kind, set()).add("down" if m.sender.is_server else "up")
    listed = {r.kind for r in config.release}
    for kind in ways:
        if kind not in listed and kind not in config.public:
            raise AssertionError(f"Expected every kind of message in the ledger, found {kind} on the wire only.")
    recorded = RecordedSchedule.of(
        messages,
        records=head["records"],
        devices=head["devices"],
        shared=frozenset(r.kind for r in config.release if r.shared),
        public=frozenset(config.public),
        sampled=config.batches.sampled(),
    )
    directions = {kind: frozenset(own) for kind, own in ways.items()}
    releases = config.releases(recorded, directions)
    ledger = Ledger(schedule=recorded.schedule, releases=releases, label_holders=frozenset(config.label_holders))
    left_out = recorded_tensors(ledger, messages, listed)
    if left_out:
        raise AssertionError(f"Expected every tensor in the ledger: {left_out[0].sentence}.")
    return ledger


class _Comparison:
    """Compares the messages of two worlds with a ledger."""

    def __init__(self, config: LedgerConfig, ledger: Ledger, unit: Unit, record: int | None) -> None:
        self._ledger, self._unit, self._record = ledger, unit, record
        self._releases = {r.kind: r for r in ledger.releases if r.kind in {own.kind for own in config.release}}
        self._met = False

    def largest(self, first: Sequence[Message], other: Sequence[Message]) -> float:
        """The largest difference under the noise, relative to the declared one."""
        if len(first) != len(other):
            raise AssertionError(f"Expected as many messages in both worlds, found {len(first)} and {len(other)}.")
        ratios = [self._ratio(message, twin) for message, twin in zip(first, other, strict=True)]
        return max(ratios, default=0.0)

    def _ratio(self, first: Message, other: Message) -> float:
        if _outline(first) != _outline(other):
            raise AssertionError(
                f"Expected messages of the same form in both worlds, found {_named(first)} and {_named(other)}."
            )
        after, inside = self._met, self._inside(first)
        self._met = self._met or inside
        differing = [name for name, tensor in first.tensors.items() if not torch.equal(tensor, other.tensors[name])]
        if not differing or not any(self._protected(adversary) for adversary in viewers(first)):
            return 0.0
        release = self._releases.get(first.kind)
        if release is None or release.noise.exact:
            size = max(float((first.tensors[n].double() - other.tensors[n].double()).abs().max()) for n in differing)
            raise AssertionError(
                f"Expected nothing to differ but what the ledger declares: {_named(first)} has a tensor {differing[0]} "
                f"that moves by {size:.4g} with the {self._unit} unit, without noise."
            )
        if release.noise.norm is None and self._unit in release.sensitivity:
            return 0.0
        return self._gap(release, first, other, inside=inside, after=after)

    def _gap(self, release: Release, first: Message, other: Message, *, inside: bool, after: bool) -> float:
        order = 2 if release.noise.norm is None else release.noise.norm
        flat = [torch.cat([t.double().reshape(-1) for t in m.tensors.values()]) for m in (first, other)]
        gap = float(torch.linalg.vector_norm(flat[0] - flat[1], ord=order))
        size = sum(float(torch.linalg.vector_norm(values, ord=order)) for values in flat)
        leak = 0.0 if release.leak is None or not after else release.leak.sensitivity.get(self._unit, 0.0)
        declared = max(release.sensitivity.get(self._unit, 0.0) if inside else 0.0, leak)
        if gap > declared * (1 + _RELATIVE) + _ROUNDING * size:
            raise AssertionError(
                f"Expected a difference of at most {declared:.4g} under the noise (L{order}), as the ledger declares: "
                f"{_named(first)} moves by {gap:.4g} with the {self._unit} unit."
            )
        return gap / declared if declared and math.isfinite(declared) else 0.0

    def _inside(self, message: Message) -> bool:
        """Whether a message counts for the record that differs."""
        if self._record is None or message.records is None:
            return True
        return bool((message.records == self._record).any())

    def _protected(self, adversary: Adversary) -> bool:
        """Whether the ledger says that this adversary does not see the unit as it is."""
        owns = self._unit is Unit.LABEL and adversary.kind in self._ledger.label_holders
        return not owns and not is_open(self._ledger, adversary, self._unit)


def _first_difference(first: Sequence[Message], again: Sequence[Message]) -> str | None:
    """Where two runs differ, None if they do not."""
    if len(first) != len(again):
        return f"{len(first)} and {len(again)} messages"
    for message, other in zip(first, again, strict=True):
        same = _outline(message) == _outline(other)
        if not same or not all(torch.equal(t, other.tensors[name]) for name, t in message.tensors.items()):
            return f"another {_named(message)}"
    return None


def _outline(message: Message) -> tuple[object, ...]:
    tensors = tuple((name, tuple(t.shape), t.dtype) for name, t in message.tensors.items())
    ids = None if message.records is None else tuple(message.records.tolist())
    return message.round, message.sender, message.receiver, message.kind, tensors, ids


def _named(message: Message) -> str:
    return f"{message.kind} in round {message.round}, {link(message)},"
