"""A training of an engine as a program: one pair of neighbouring worlds, over the tracer's wire.

What the unit of a claim may change is private, in all records; the pair differs in one canary's. Draws of secret
streams are announced to the tracer, which sees no operation of theirs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from itertools import islice

import numpy as np
import torch
from torch import Tensor

from vflpriv.audits.flow.plain.twins import root_seed
from vflpriv.audits.flow.plain.wire import FlowWire, Party, Program, View
from vflpriv.audits.twins.pairs import TwinCanary, in_world, run_twins
from vflpriv.audits.twins.probes import CanaryProbe, Released, in_worlds
from vflpriv.common.numerics import Floats
from vflpriv.common.random import Stream
from vflpriv.core.canaries import Canary
from vflpriv.core.data import VerticalData
from vflpriv.core.engine import Contributions, Engine, ReleasePoint
from vflpriv.core.systems import System
from vflpriv.core.views import Adversary
from vflpriv.core.wire import Message, Wire
from vflpriv.core.wire import Party as Link

__all__ = [
    "MODEL",
    "at_clip_moved",
    "at_clip_program",
    "changed_features",
    "engine_program",
    "loss_draws",
    "private_data",
]

MODEL = "model"
"""Who is given the trained parameters of all parties, and nothing else."""


def engine_program(
    system: System, canary: TwinCanary, *, view: View = "eavesdropper", rounds: int | None = None
) -> Program:
    """Train the system once, or so many rounds of it, with the canary's values in the world that the wire is of.

    An eavesdropper does not see encrypted messages. Whoever holds the model is sent it at the end. Run under the
    system's own seed it is the system's training, under any other seed one with other draws.
    """

    def train(wire: FlowWire) -> None:
        engine = _trained(system, private_data(system.data, canary, wire))
        _run(engine, wire, system, view, rounds)
        if view == MODEL:
            wire.send("trained-model", engine.trained(0), receiver=MODEL)

    return train


def at_clip_program(system: System, canary: Canary, *, view: View, rounds: int) -> Program:
    """Train the system for so many rounds with a contribution at the clip, in the worlds of the wire.

    No clip lets more through: it is the mechanism's own worst pair, whether or not there is a record that makes it.
    Contributions alone are private here, those of all units: what else leaves is the pair of `engine_program` asked of.
    """

    def train(wire: FlowWire) -> None:
        world = wire.private(torch.tensor([0]), torch.tensor([1]), what="the contribution at the clip", owner="server")
        coins = Stream.of(system.seed, "canary", [0], system.torch_device)
        planted = replace(canary, world=world)
        probe = _AtClip(planted, system, coins)
        _run(_trained(system, planted.into(system.data), probe), wire, system, view, rounds)

    return train


def at_clip_moved(system: System, canary: Canary) -> list[list[tuple[Message, float]]]:
    """By round of a plain training, what was sent at the clip: the squared distance between the worlds, in noise.

    Of noise that is not Gaussian there is no such distance.
    """
    engine, probe = in_worlds(system, [0], replace(canary, world=torch.zeros(1, dtype=torch.int64)))
    moved = []
    for round_ in range(system.schedule.rounds):
        values = [v for v in probe.round(engine, round_) if v.worlds is not None and v.message is not None]
        moved.append([(replace(v.message, tensors={}), _apart(v)) for v in values if v.message is not None])
    return moved


def _apart(value: Released) -> float:
    assert value.worlds is not None
    return float(value.worlds.double().diff(dim=1).square().sum()) / value.std**2


def loss_draws(system: System, canary: TwinCanary, adversary: Adversary, rounds: int, draws: int) -> Floats | None:
    """The loss of a pair along so many transcripts of its first world, each of a training of its own.

    None where something differs that the adversary is not shown, or under noise that is not Gaussian: its loss is
    another one then. A training that leaves the numbers counts as one that tells nothing.
    """
    gaussian = {release.kind for release in system.ledger.releases if release.noise.white}
    total, devices = torch.zeros(draws, dtype=torch.float64), system.schedule.devices
    for twins in islice(run_twins(system, [canary] * draws), rounds):
        for own, other in zip(*twins.values, strict=True):
            first = own.noiseless.double()
            gap, noise = other.noiseless.double() - first, own.released.double() - first
            if not bool(gap.any()):
                continue
            if own.message is None or own.kind not in gaussian or not adversary.sees(own.message, devices):
                return None
            total += (gap * (gap / 2 - noise)).reshape(draws, -1).sum(1) / own.std**2
    losses = total.numpy()
    return np.where(np.isfinite(losses), losses, -math.inf)


class _AtClip(CanaryProbe):
    """Puts the contribution in its place; all others are private too, and the same in both worlds."""

    def noiseless(self, point: ReleasePoint, contributions: Contributions) -> Tensor:
        return super().noiseless(point, contributions) + (self._sign - self._sign)

    def released(
        self, point: ReleasePoint, contributions: Contributions, noiseless: Tensor, released: Tensor
    ) -> Tensor:
        del point, contributions, noiseless
        return released


def _trained(system: System, data: VerticalData, probe: CanaryProbe | None = None) -> Engine:
    """An engine under the draws that the program is to have."""
    drawn = torch.initial_seed()
    own = drawn == root_seed(system.seed)
    # Noise of the operating system has no seed: other draws are those of another key.
    key = system.secret_key if own or system.secret_key is None else system.secret_key.derived("traced", drawn)
    return replace(system, secret_key=key).train([0], data=data, seeds=None if own else [drawn], probe=probe)


def _run(engine: Engine, wire: FlowWire, system: System, view: View, rounds: int | None) -> None:
    """So many rounds, or all."""
    sent = _EngineWire(wire, hides_encrypted=view == "eavesdropper")
    if rounds is None or rounds >= system.schedule.rounds:
        engine.run(sent)
    else:
        engine.run(sent, stop=lambda round_: round_ + 1 >= rounds)


def private_data(data: VerticalData, canary: TwinCanary, wire: FlowWire) -> VerticalData:
    """The data of one replica, in which everything of the kinds that the canary changes is private, in all records."""
    first, second = (in_world(data, [canary], world).overrides for world in (0, 1))
    assert first is not None
    assert second is not None

    def private(values: Tensor, others: Tensor, what: str, owner: Party) -> Tensor:
        return wire.private(values, others, what=what, owner=owner)

    labels, overridden = data.labels, first.labels
    if canary.changes_label and first.labels is not None and second.labels is not None:
        labels = private(labels, labels, "labels", "server")
        overridden = private(first.labels, second.labels, "labels", "server")
    owners = changed_features(canary)
    blocks = tuple(
        private(block, block, f"features of device {m}", m) if m in owners else block
        for m, block in enumerate(data.blocks)
    )

    def either(values: Mapping[int, Tensor], others: Mapping[int, Tensor]) -> dict[int, Tensor]:
        return {
            m: private(values[m], others[m], f"features of device {m}", m) if m in owners else values[m] for m in values
        }

    overrides = replace(
        first,
        labels=overridden,
        blocks=either(first.blocks, second.blocks),
        factors=either(first.factors, second.factors),
    )
    return replace(data, labels=labels, blocks=blocks, overrides=overrides)


def changed_features(canary: TwinCanary) -> frozenset[int]:
    """The devices whose features the canary changes."""
    blocks = {m for m, (first, second) in canary.blocks.items() if not torch.equal(first, second)}
    return frozenset(blocks | {m for m, (first, second) in canary.factors.items() if first != second})


class _EngineWire(Wire):
    """Hands an engine's messages to the wire of a program, and the engine what its parties get."""

    def __init__(self, wire: FlowWire, *, hides_encrypted: bool) -> None:
        super().__init__()
        self._wire, self._hides_encrypted = wire, hides_encrypted

    def send(self, message: Message) -> Message:
        if message.encrypted and self._hides_encrypted:
            return super().send(message)
        received = self._wire.send(
            message.kind,
            dict(message.tensors),
            sender=_party(message.sender),
            receiver=_party(message.receiver),
            round_=message.round,
            records=message.records,
        )
        return super().send(replace(message, tensors=received))


def _party(link: Link) -> Party:
    return "server" if link.is_server else link.index
