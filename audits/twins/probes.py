"""Probes: what audits attach to the release points of an engine, to listen, or to put a canary into either world.

A probe sees every value before and after its noise. It is also a recorder of the wire: it follows each released value
onto the message that carries it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from vflpriv.common.devices import to_host
from vflpriv.common.random import Stream
from vflpriv.core.canaries import Canaries, Canary
from vflpriv.core.engine import Contributions, Engine, ReleasePoint
from vflpriv.core.schedules import Schedule
from vflpriv.core.systems import System
from vflpriv.core.units import Unit
from vflpriv.core.wire import Message, Recorder, Wire
from vflpriv.training.mechanisms.base import ScalarMean, VectorMean, shared
from vflpriv.training.mechanisms.uplink import ClientClip, EmbeddingClip, Emptied

__all__ = [
    "CanaryProbe",
    "CoinProbe",
    "Follower",
    "Probe",
    "Released",
    "Shift",
    "TwinProbe",
    "canary_probe",
    "extremes",
    "in_worlds",
    "on_host",
]


@dataclass(frozen=True, eq=False, kw_only=True)
class Shift:
    """How the coins of many canaries move one noiseless value: `centre` + the sum of ±`halves`, plus in world 0.

    `centre` is (R, …), `halves` is (R, k, …) for the k canaries whose numbers are in `canaries`. Neither depends on a
    coin where all state is post-processing of releases.
    """

    canaries: Tensor
    centre: Tensor
    halves: Tensor


@dataclass(eq=False, kw_only=True)
class Released:
    """One value as it left: before and after the noise, and the message that carried it (None if none did).

    `worlds` is its noiseless value in either world, (R or 1, 2, …), where a canary of the run moves it: what an
    adversary who knows every other record can compute for itself. `shift` is the same for many canaries.
    """

    kind: str
    std: float
    party: int
    noiseless: Tensor
    released: Tensor
    worlds: Tensor | None = None
    shift: Shift | None = None
    message: Message | None = None
    internal: bool = False
    """Whether it is a noised step that no message carries by itself."""


def on_host(values: Sequence[Released], messages: Sequence[Message] = ()) -> tuple[list[Released], list[Message]]:
    """What left in a round, and messages, on the CPU, to be read one by one: an accelerator is waited for once.

    Of the message that carried a value only the records are copied.
    """
    carriers = [value.message for value in values if value.message is not None]
    held = [t for v in values for t in (v.noiseless, v.released)] + [t for m in messages for t in m.tensors.values()]
    held += [m.records for m in (*carriers, *messages) if m.records is not None]
    if all(tensor.device.type == "cpu" for tensor in held):
        return list(values), list(messages)
    moved = {id(tensor): copied for tensor, copied in zip(held, to_host(held), strict=True)}

    def carrier(message: Message | None) -> Message | None:
        return None if message is None else replace(message, records=moved.get(id(message.records)))

    def copied(message: Message) -> Message:
        tensors = {name: moved[id(tensor)] for name, tensor in message.tensors.items()}
        return replace(message, tensors=tensors, records=moved.get(id(message.records)))

    left = [
        replace(v, noiseless=moved[id(v.noiseless)], released=moved[id(v.released)], message=carrier(v.message))
        for v in values
    ]
    return left, [copied(message) for message in messages]


class Probe:
    """Listens at all release points of an engine, round by round, and changes nothing."""

    def __init__(self) -> None:
        self.values: list[Released] = []
        self.carriers: list[Message] = []
        """The messages of the round that carry a released value; several may carry the same one."""
        self.noised_labels: Tensor | None = None
        self.followed = False
        self.left: list[Tensor] = []
        """What left release points in the round, for a follower: an engine may process a released value in place."""

    def observed(self, observed: Tensor, records: Tensor, prior: Tensor | None = None) -> Tensor:
        # Those of all records come first, in order; later batches have an order of their own, however large they are.
        if self.noised_labels is None or len(self.noised_labels) != len(observed):
            self.noised_labels = observed.clone()
        else:
            self.noised_labels.index_copy_(1, records, observed)
        return observed

    def noiseless(self, point: ReleasePoint, contributions: Contributions) -> Tensor:
        return point.noiseless(contributions)

    def released(
        self, point: ReleasePoint, contributions: Contributions, noiseless: Tensor, released: Tensor
    ) -> Tensor:
        self.values.append(
            Released(
                kind=point.kind,
                std=point.mechanism.noise.deviation,
                party=contributions.party,
                noiseless=noiseless,
                released=released,
                internal=point.internal,
            )
        )
        if self.followed:
            self.left.append(released.clone())
        return released

    def record(self, message: Message) -> None:
        """Note which message carries a value; only the very tensor that was released counts."""
        for tensor in message.tensors.values():
            for value in self.values:
                if value.released is tensor:
                    value.message = message
                    self.carriers.append(message)

    def round(self, engine: Engine, round_: int, *recorders: Recorder) -> list[Released]:
        """Run one round of an engine that this probe is attached to; the values that left in it, in order."""
        self.values, self.carriers, self.left = [], [], []
        engine.round(round_, Wire(self, *recorders))
        return self.values


class TwinProbe(Probe):
    """Replicas come in pairs, and what leaves the first of a pair leaves the second too.

    The two then differ by nothing but what their own private data has moved without noise.
    """

    def released(
        self, point: ReleasePoint, contributions: Contributions, noiseless: Tensor, released: Tensor
    ) -> Tensor:
        return super().released(point, contributions, noiseless, released[0::2].repeat_interleave(2, 0))


class Follower(Probe):
    """Every replica releases what the same replica released under another probe, whose round is run first.

    Equal replicas of two engines compute the same bits, which two replicas of one engine need not.
    """

    def __init__(self, leader: Probe) -> None:
        super().__init__()
        self.leader, leader.followed = leader, True

    def observed(self, observed: Tensor, records: Tensor, prior: Tensor | None = None) -> Tensor:
        led = self.leader.noised_labels
        return super().observed(observed if led is None else led.index_select(1, records), records, prior)

    def released(
        self, point: ReleasePoint, contributions: Contributions, noiseless: Tensor, released: Tensor
    ) -> Tensor:
        place, led = len(self.values), released
        # A release beyond the leader's, or of another shape, is left as it is: the two runs differ there anyway.
        if place < len(self.leader.left) and self.leader.left[place].shape == released.shape:
            led = self.leader.left[place].clone()
        return super().released(point, contributions, noiseless, led)


class CanaryProbe(Probe):
    """Puts one canary's contribution in its place, and notes the noiseless value in either world.

    Where the canary's data differ between the worlds its contribution is there already, and only the other world's is
    asked for. A worst-case canary contributes what sits at the clip. A record that is absent in world 1 contributes
    nothing there: its place in the batch stays empty, as in a sum over a fixed denominator. `coins` is the stream that
    decides in which rounds a canary with secret batches takes part.
    """

    def __init__(self, canary: Canary, system: System, coins: Stream) -> None:
        super().__init__()
        self.canary, self._schedule, self._coins = canary, system.schedule, coins
        self._moved = {r.kind for r in system.ledger.releases if r.sensitivity.get(canary.unit, 0.0) > 0}
        self._worlds: Tensor | None = None
        # All that the host knows before the first round is copied now: no round waits for it.
        device = coins.keys.device
        self._world, self._sign = canary.world.to(device), canary.sign().to(device)
        self._labels = torch.tensor([canary.labels], device=device)
        self._sides = torch.tensor([canary.sides], device=device)

    def noiseless(self, point: ReleasePoint, contributions: Contributions) -> Tensor:
        self._worlds = None
        # What sits at the clip would move releases, too, that read nothing of what the canary changes.
        if point.internal or (self.canary.at_clip and point.kind not in self._moved):
            return point.noiseless(contributions)
        if self.canary.unit is Unit.ADD_REMOVE and not self.canary.at_clip:
            return self._without(point, contributions)
        if isinstance(point.mechanism, ScalarMean):
            return self._of_scalar(point.mechanism, contributions)
        if isinstance(point.mechanism, VectorMean) and self.canary.at_clip:
            return self._of_vector(point, contributions)
        if self.canary.at_clip and self.canary.concerns(contributions.party):
            self._worlds = extremes(point.mechanism, self.canary, contributions.values, contributions.records)
            return _own_world(self._worlds, self._world)
        return point.noiseless(contributions)

    def released(
        self, point: ReleasePoint, contributions: Contributions, noiseless: Tensor, released: Tensor
    ) -> Tensor:
        leaving = super().released(point, contributions, noiseless, released)
        self.values[-1].worlds = self._worlds
        return leaving

    def _without(self, point: ReleasePoint, contributions: Contributions) -> Tensor:
        """The value with the record as it is in world 0, and with nothing in its place in world 1."""
        place = self._place(contributions.round)
        if place is None:
            return point.noiseless(contributions)
        values = (contributions.values[:1] if shared(contributions.values) else contributions.values).clone()
        present = point.noiseless(replace(contributions, values=values))
        values = values.clone()
        values[:, place] = 0.0
        self._worlds = torch.stack((present, point.noiseless(replace(contributions, values=values))), dim=1)
        return _own_world(self._worlds, self._world)

    def _of_scalar(self, mechanism: ScalarMean, contributions: Contributions) -> Tensor:
        place = self._place(contributions.round)
        if self.canary.rate is not None:
            return self._in_secret(mechanism, contributions, place)
        if place is None:
            return mechanism.noiseless(contributions.values)
        differences = contributions.values
        edges = mechanism.clip * self._sides
        if self.canary.at_clip:
            differences = differences.clone()
            differences[:, place] = mechanism.clip * self._sign
        else:
            assert contributions.relabelled is not None
            position = torch.full((1,), place, device=differences.device)
            edges = contributions.relabelled(position, self._labels)[:, 0]
        clipped, noiseless = mechanism.contributions, mechanism.noiseless(differences)
        change = clipped(edges) - clipped(differences[:, place, None])
        self._worlds = noiseless.unsqueeze(1) + change / mechanism.batch_size
        return noiseless

    def _of_vector(self, point: ReleasePoint, contributions: Contributions) -> Tensor:
        """A mean of vectors in which the canary's is C e, or the opposite: the same in every entry.

        Where replicas share what the others contribute, it is computed once.
        """
        place, mechanism = self._place(contributions.round), point.mechanism
        if place is None:
            return point.noiseless(contributions)
        values = (contributions.values[:1] if shared(contributions.values) else contributions.values).clone()
        values[:, place] = 0.0
        others = point.noiseless(replace(contributions, values=values))
        edge = mechanism.clip / (mechanism.batch_size * math.sqrt(others.shape[-1]))
        self._worlds = others.unsqueeze(1) + edge * self._sides.unsqueeze(-1)
        return _own_world(self._worlds, self._world)

    def _in_secret(self, mechanism: ScalarMean, contributions: Contributions, place: int | None) -> Tensor:
        """Coins decide whether the canary takes part in a round, not the schedule: nobody knows its batches."""
        differences = contributions.values
        if place is not None:
            differences = differences.clone()
            differences[:, place] = 0.0
        others = mechanism.noiseless(differences)
        self._worlds = others.unsqueeze(1) + mechanism.clip * self._sides / mechanism.batch_size
        assert self.canary.rate is not None
        coin = self._coins.uniform(1, contributions.round)[:, 0] <= self.canary.rate
        return others + coin * self._sign * (mechanism.clip / mechanism.batch_size)

    def _place(self, round_: int) -> int | None:
        """Where the canary stands in this round's batch, or None. Known to the host, as the schedule is."""
        places = (self._schedule.batch(round_) == self.canary.record).nonzero()[0]
        return int(places[0]) if len(places) else None


class CoinProbe(Probe):
    """Notes how each of many canaries moves a scalar: half its distance between the worlds, either way."""

    def __init__(self, canaries: Canaries, schedule: Schedule) -> None:
        super().__init__()
        self.canaries = canaries
        common = [
            np.intersect1d(schedule.batch(t), canaries.records, assume_unique=True, return_indices=True)[1:]
            for t in range(schedule.rounds)
        ]
        self._ends = np.cumsum([0, *(len(places) for places, _ in common)])
        # The places of canaries in the batches, and their numbers, of all rounds: copied once to the torch device.
        self._common = torch.from_numpy(np.concatenate([np.stack(both) for both in common], axis=1))
        self._labels = canaries.labels

    def released(
        self, point: ReleasePoint, contributions: Contributions, noiseless: Tensor, released: Tensor
    ) -> Tensor:
        leaving = super().released(point, contributions, noiseless, released)
        if contributions.relabelled is not None:
            self.values[-1].shift = self._shift(point.mechanism, contributions)
        return leaving

    def _shift(self, mechanism: ScalarMean, contributions: Contributions) -> Shift | None:
        assert contributions.relabelled is not None
        differences, (begin, end) = contributions.values, self._ends[contributions.round : contributions.round + 2]
        if begin == end:
            return None
        self._common, self._labels = (t.to(differences.device) for t in (self._common, self._labels))
        places, numbers = self._common[:, begin:end]
        labels = self._labels.index_select(0, numbers)
        either = mechanism.contributions(contributions.relabelled(places, labels))
        own, size = mechanism.contributions(differences.index_select(1, places)), mechanism.batch_size
        centre = mechanism.noiseless(differences) + (either.mean(-1) - own).sum(1) / size
        return Shift(canaries=numbers, centre=centre, halves=(either[..., 0] - either[..., 1]) / (2 * size))


def in_worlds(system: System, replicas: Sequence[int], canary: Canary) -> tuple[Engine, CanaryProbe]:
    """An engine whose replicas have this canary in their worlds, and the probe that puts it there."""
    probe = canary_probe(system, replicas, canary)
    return system.train(replicas, data=canary.into(system.data), probe=probe), probe


def canary_probe(system: System, replicas: Sequence[int], canary: Canary) -> CanaryProbe:
    """The probe that puts this canary into the worlds of these replicas."""
    return CanaryProbe(canary, system, Stream.of(system.seed, "canary", replicas, system.torch_device))


def _own_world(either: Tensor, world: Tensor) -> Tensor:
    """Each replica's value in the world it lives in, of (R, 2, …), or of (1, 2, …) that replicas share."""
    places = torch.arange(len(world), device=either.device)
    return either[places if len(either) > 1 else torch.zeros_like(places), world]


def extremes(mechanism: object, canary: Canary, clipped: Tensor, records: Tensor) -> Tensor:
    """(R, 2, B, width) noiseless values of two neighbouring worlds, as far apart as the sensitivity of the unit allows.

    A record's row is C e against -C e, or against zeros where the unit is about absence; a device's rows are so all
    together, against what a device without data can send (`Emptied`). Under a clip of the whole matrix a row may dwarf
    the others, which then vanish. Where the record is not among `records`, both worlds release the same.
    """
    if not isinstance(mechanism, ClientClip | EmbeddingClip):
        raise ValueError(f"Expected a clip of the uplink, found {type(mechanism).__name__}.")
    batch, width = clipped.shape[1:]
    whole = isinstance(mechanism, ClientClip)
    place = (records == canary.record).to(clipped.dtype).unsqueeze(1)
    mine = place if canary.unit.per_record else torch.ones_like(place)
    present = mine.amax() if batch else mine.sum()
    others = clipped * (1 - present) if whole else clipped * (1 - mine)
    if canary.unit is Unit.CLIENT_ZERO and mechanism.emptied == Emptied.NON_NEGATIVE:
        edge, other_edge = _at_right_angles(mechanism, torch.ones_like(clipped[0]))
        return torch.stack((others + edge, others + other_edge), dim=1)
    rows = 1 if canary.unit.per_record or not whole else batch
    edge = mine * (mechanism.clip / math.sqrt(rows * width)) * torch.ones(width, device=clipped.device)
    absent = canary.unit is Unit.ADD_REMOVE or (canary.unit is Unit.CLIENT_ZERO and mechanism.emptied == Emptied.ZEROS)
    return torch.stack((others + edge, others + (torch.zeros_like(edge) if absent else -edge)), dim=1)


def _at_right_angles(mechanism: ClientClip | EmbeddingClip, ones: Tensor) -> tuple[Tensor, Tensor]:
    """Two non-negative (B, width) at the clip that share no entry; with a single entry the second is zeros."""
    odd = torch.arange(ones.numel(), device=ones.device).reshape(ones.shape) % 2
    if isinstance(mechanism, EmbeddingClip):
        odd = torch.arange(ones.shape[1], device=ones.device).expand(ones.shape) % 2
    first, second = (mechanism.noiseless((side * ones * 2 * mechanism.clip).unsqueeze(0))[0] for side in (1 - odd, odd))
    return first, second
