"""Twin runs: two trainings in neighbouring worlds with the same randomness, the second forced to release as the first.

Every replica has a canary of its own, of one unit, that differs between the two runs; the first replica is a control
that lives in the same world in both.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, zip_longest

import numpy as np
import torch
from torch import Tensor

from vflpriv.audits.twins.probes import Follower, Probe, Released, on_host
from vflpriv.common.memory import budget
from vflpriv.core.canaries import most_exposed
from vflpriv.core.data import VerticalData
from vflpriv.core.systems import System
from vflpriv.core.units import Unit
from vflpriv.core.wire import Message, Transcript
from vflpriv.training.memory import replica_bytes

__all__ = [
    "CONTROL",
    "TwinCanary",
    "TwinRound",
    "in_world",
    "other_record",
    "plan_twins",
    "run_twins",
    "scales",
    "twin_records",
]

_SCALES = (1e4, 1e2)
"""How far beyond the data a canary's features lie, so that clips are reached."""
_MOST_PAIRS = 8
_MOST_DEVICES = 3
_MOST = {Unit.LABEL: 12, Unit.FEATURES: 6, Unit.RECORD: 5, Unit.CLIENT_ZERO: 4, Unit.CLIENT: 4}
_FEW = 4
"""Canaries of a unit that no claim is about."""


@dataclass(frozen=True, eq=False, kw_only=True)
class TwinCanary:
    """One unit of privacy in the two runs: its values in the first run, then in the second."""

    unit: Unit | None
    what: str
    record: int | None = None
    labels: tuple[int, int] | None = None
    blocks: Mapping[int, tuple[Tensor, Tensor]] = field(default_factory=dict)
    factors: Mapping[int, tuple[float, float]] = field(default_factory=dict)

    @property
    def changes_label(self) -> bool:
        return self.labels is not None and self.labels[0] != self.labels[1]


CONTROL = TwinCanary(unit=None, what="the same data in both runs")


def plan_twins(system: System, claimed: Collection[Unit]) -> list[TwinCanary]:
    """The control, and canaries of the units of claims, few of other units that the ledger speaks of.

    No more than fit into memory, and some of each unit before more.
    """
    declared = frozenset[Unit]().union(claimed, *(r.sensitivity for r in system.ledger.releases))
    limits = {u: m if any(c.implies(u) for c in claimed) else _FEW for u, m in _MOST.items() if u in declared}
    planned = [_PLANS[unit](system)[:limit] for unit, limit in limits.items()]
    mixed = [c for c in chain.from_iterable(zip_longest(*planned)) if c is not None]
    room = budget(system.torch_device) // max(1, 2 * replica_bytes(system))
    return [CONTROL, *mixed[: max(len(planned), room - 1)]]


def twin_records(system: System) -> list[int]:
    """The most exposed record, one of the first round's, the first and the last."""
    batch = system.schedule.batch(0) if system.schedule.rounds else np.empty(0, dtype=np.int64)
    first = [int(batch[0])] if len(batch) else []
    return list(dict.fromkeys([most_exposed([], system.schedule), *first, 0, system.data.records - 1]))


def scales(system: System) -> tuple[float, ...]:
    """By how much a canary's features are multiplied; by nothing where they are token ids."""
    return _SCALES if all(block.is_floating_point() for block in system.data.blocks) else ()


def _labels(system: System) -> list[TwinCanary]:
    """Every class is the label of some canary, with features far out and as they are."""
    data, records = system.data, twin_records(system)
    pairs = [(c, (c + 1) % data.classes) for c in range(0, data.classes, 2)]
    step = -(-len(pairs) // _MOST_PAIRS)
    sizes = (*scales(system)[:1], 1.0, *scales(system)[1:])
    canaries = [_relabelled(data, records[0], pair, size) for size in sizes for pair in pairs[::step]]
    own = [(r, int(data.labels[r])) for r in records[1:]]
    return canaries + [_relabelled(data, r, (y, (y + 1) % data.classes), 1.0) for r, y in own]


def _relabelled(data: VerticalData, record: int, labels: tuple[int, int], scale: float) -> TwinCanary:
    same = {} if scale == 1 else {m: (b[record] * scale, b[record] * scale) for m, b in enumerate(data.blocks)}
    far = "" if scale == 1 else f", features × {scale:g}"
    return TwinCanary(
        unit=Unit.LABEL,
        what=f"record {record} with label {labels[0]} or {labels[1]}{far}",
        record=record,
        labels=labels,
        blocks=same,
    )


def other_record(system: System, record: int) -> int:
    """A record of another class, if there is one."""
    labels = system.data.labels
    others = (labels != labels[record]).nonzero()[:, 0]
    return int(others[0]) if len(others) else (record + 1) % system.data.records


def _features(system: System) -> list[TwinCanary]:
    """One record's block at one device: far out with either sign, and as it is against another record's."""
    data, canaries = system.data, []
    devices = range(min(_MOST_DEVICES, data.devices))
    for record in twin_records(system)[:2]:
        for scale in (*scales(system)[:1], None, *scales(system)[1:]):
            for m in devices:
                own, other = data.blocks[m][record], data.blocks[m][other_record(system, record)]
                pair = (own, other) if scale is None else (own * scale, -scale * own)
                what = "or another record's" if scale is None else f"× ±{scale:g}"
                text = f"record {record}'s block at device({m}) {what}"
                canaries.append(TwinCanary(unit=Unit.FEATURES, what=text, record=record, blocks={m: pair}))
    return canaries


def _whole_records(system: System) -> list[TwinCanary]:
    """One record at all devices, with its own label in both runs or with another one in the second."""
    data, canaries = system.data, []
    for record in twin_records(system)[:2]:
        other, label = other_record(system, record), int(data.labels[record])
        for labels in ((label, int(data.labels[other])), (label, label)):
            named = "another label" if labels[0] != labels[1] else "its own label"
            for scale in (*scales(system), None):
                what = f"another record's features and {named}" if scale is None else f"features × ±{scale:g}, {named}"
                blocks = {
                    m: (b[record], b[other]) if scale is None else (b[record] * scale, -scale * b[record])
                    for m, b in enumerate(data.blocks)
                }
                text = f"record {record}: {what}"
                canaries.append(TwinCanary(unit=Unit.RECORD, what=text, record=record, labels=labels, blocks=blocks))
    return canaries


def _devices(system: System, unit: Unit) -> list[TwinCanary]:
    """One device's whole block, against none or one of the other sign."""
    if not scales(system):
        return []
    busiest = [int(m) for m in np.argsort(-system.schedule.active.sum(axis=0), kind="stable")[:_MOST_DEVICES]]
    canaries = []
    for scale in (*_SCALES, 1.0):
        for m in busiest:
            pair = (scale, 0.0) if unit is Unit.CLIENT_ZERO else (scale, -scale)
            what = f"all of device({m})'s block × {pair[0]:g} or × {pair[1]:g}"
            canaries.append(TwinCanary(unit=unit, what=what, factors={m: pair}))
    return canaries


_PLANS: Mapping[Unit, Callable[[System], list[TwinCanary]]] = {
    Unit.LABEL: _labels,
    Unit.FEATURES: _features,
    Unit.RECORD: _whole_records,
    Unit.CLIENT_ZERO: lambda system: _devices(system, Unit.CLIENT_ZERO),
    Unit.CLIENT: lambda system: _devices(system, Unit.CLIENT),
}
"""Where a record is absent in one world there is no canary: data sets have the same records in both."""


def in_world(data: VerticalData, canaries: Sequence[TwinCanary], world: int) -> VerticalData:
    """The data of one of the two runs: each replica has its own canary in it."""
    records = sorted({c.record for c in canaries if c.record is not None})
    if not records:
        records = [0]
    place = {record: k for k, record in enumerate(records)}
    labels = data.labels[records].repeat(len(canaries), 1)
    blocks = {
        m: data.blocks[m][records].repeat(len(canaries), *(1 for _ in data.blocks[m].shape))
        for m in sorted({m for c in canaries for m in c.blocks})
    }
    factors = {m: torch.ones(len(canaries)) for m in sorted({m for c in canaries for m in c.factors})}
    for r, canary in enumerate(canaries):
        for m, pair in canary.factors.items():
            factors[m][r] = pair[world]
        for m in blocks.keys() & canary.factors.keys():
            blocks[m][r] *= canary.factors[m][world]
        if canary.record is not None:
            if canary.labels is not None:
                labels[r, place[canary.record]] = canary.labels[world]
            for m, either in canary.blocks.items():
                blocks[m][r, place[canary.record]] = either[world]
    return data.override(records, labels=labels, blocks=blocks, factors=factors)


@dataclass(frozen=True, eq=False, kw_only=True)
class TwinRound:
    """The messages and released values of one round of both runs."""

    round: int
    messages: tuple[Sequence[Message], Sequence[Message]]
    values: tuple[Sequence[Released], Sequence[Released]]

    def on_host(self) -> TwinRound:
        """The same round on the CPU, where it is compared tensor by tensor: an accelerator is waited for once."""
        values, messages = on_host([*chain(*self.values)], [*chain(*self.messages)])
        sent, left = len(self.messages[0]), len(self.values[0])
        both = (messages[:sent], messages[sent:]), (values[:left], values[left:])
        return TwinRound(round=self.round, messages=both[0], values=both[1])


def run_twins(system: System, canaries: Sequence[TwinCanary], *, alike: bool = False) -> Iterator[TwinRound]:
    """Both runs, round by round; with `alike` the second lives in the world of the first."""
    leader = Probe()
    follower = Follower(leader)
    engines = [
        system.train(range(len(canaries)), data=in_world(system.data, canaries, world), probe=probe)
        for world, probe in ((0, leader), (0 if alike else 1, follower))
    ]
    for round_ in range(system.schedule.rounds):
        tapes = Transcript(), Transcript()
        first = leader.round(engines[0], round_, tapes[0])
        second = follower.round(engines[1], round_, tapes[1])
        both = TwinRound(round=round_, messages=(tapes[0].messages, tapes[1].messages), values=(first, second))
        yield both.on_host()
