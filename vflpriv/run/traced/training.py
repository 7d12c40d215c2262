"""A script that is traced: a plain run shows what it sends about which records, then pairs of worlds are followed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vflpriv.audits.flow.plain.twins import seeded
from vflpriv.audits.flow.plain.wire import FlowWire, Party, Private, Program, SentMessage
from vflpriv.audits.flow.tracer.dispatch import Trace
from vflpriv.audits.flow.tracer.wire import TracedWire
from vflpriv.core.units import Unit
from vflpriv.errors import InputError
from vflpriv.run.traced.script import Script
from vflpriv.run.traced.worlds import ScriptWire, ScriptWorlds

__all__ = ["SentOnce", "TracedScript"]

_FEW = 4
"""So many labels in a row are not those of a batch by chance."""


@dataclass(frozen=True, kw_only=True)
class SentOnce:
    """A message of the plain run, without its values."""

    kind: str
    sender: Party
    receivers: tuple[Party, ...]
    round: int
    records: Tensor | None
    """The ids of the records that it speaks of; None if it does not say."""
    tensors: Mapping[str, tuple[int, ...]]


@dataclass(kw_only=True, eq=False)
class _Listing(FlowWire):
    """Runs a script and lists what it sends."""

    sent: list[SentOnce] = field(default_factory=list)
    rounds: dict[int, Tensor] = field(default_factory=dict)
    """The records of each round."""

    def held(self, tensor: Tensor, other: Tensor, private: Private) -> None:
        """Nothing is private here."""

    def given(self, value: Tensor, other: Tensor, private: Private) -> Tensor:
        return value

    def sending(self, message: SentMessage, named: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        round_, records = message.round or 0, message.tensors.get("records")
        shapes = {name: tuple(tensor.shape[1:]) for name, tensor in named.items()}
        self.sent.append(
            SentOnce(
                kind=message.kind,
                sender=message.sender,
                receivers=message.receivers,
                round=round_,
                records=records,
                tensors=shapes,
            )
        )
        if records is not None:
            self.rounds.setdefault(round_, records)
        return {name: tensor.detach().clone() for name, tensor in named.items()}


@dataclass(frozen=True, kw_only=True, eq=False)
class TracedScript:
    """A script, and what its plain run showed."""

    script: Script
    wire: ScriptWire
    sent: tuple[SentOnce, ...]
    batches: Mapping[int, Tensor]
    seed: int

    @classmethod
    def of(cls, script: Script, seed: int) -> TracedScript:
        """Run the script once, to its end; an error if it hands nothing over or sends nothing."""
        listing, made = _Listing(), list[ScriptWire]()

        def maker(**head: Any) -> ScriptWire:
            made.append(ScriptWire(listing, worlds=None, rounds=None, **head))
            return made[-1]

        with seeded(seed):
            script.run(maker)
        if not made:
            expected = (
                "a script that calls vflpriv.watch, vflpriv.record or vflpriv.trace: nothing else is a message; "
                "a function train(wire, world, seed) is for `vflpriv audit train.py:train`"
            )
            raise InputError("script", script.name, expected)
        if not listing.sent:
            expected = "a script that sends: begin each training step with wire.batch(ids), or use wire.ids(loader)"
            raise InputError("script", script.name, expected)
        wire = max(made, key=lambda wire: (wire.known_labels is not None, len(wire.batches)))
        return cls(script=script, wire=wire, sent=tuple(listing.sent), batches=listing.rounds, seed=seed)

    @property
    def rounds(self) -> int:
        return max(message.round for message in self.sent) + 1

    @property
    def again(self) -> int:
        """So many rounds are it until some record comes a second time."""
        seen = set[int]()
        for number, ids in sorted(self.batches.items()):
            own = set(ids.tolist())
            if seen & own:
                return number + 1
            seen |= own
        return 0

    @property
    def devices(self) -> int:
        return int(self.wire.head.devices)

    @property
    def units(self) -> list[Unit]:
        """What can be made different."""
        known = {Unit.LABEL: self.wire.known_labels is not None, Unit.FEATURES: bool(self.wire.rows)}
        return [unit for unit, there in known.items() if there]

    def worlds(self, unit: Unit, device: int | None, rounds: int) -> ScriptWorlds | str:
        """The pair of worlds about the record of most of these rounds; why there is none, as a phrase."""
        first = [ids for round_, ids in self.batches.items() if round_ < rounds]
        counts = torch.bincount(torch.cat([torch.zeros(0, dtype=torch.int64), *first]), minlength=1)
        record, classes = int(counts.argmax()), self.wire.head.classes
        if unit is Unit.LABEL:
            if self.wire.known_labels is None:
                return "the script hands no labels over: give them to vflpriv.watch or vflpriv.trace"
            return ScriptWorlds(unit=unit, record=record, classes=classes)
        if device is None or device not in self.wire.rows:
            whose = "a device" if device is None else f"device {device}"
            return f"no rows of {whose} were seen: watch its module, or hand features over to vflpriv.trace"
        rows, ids = self.wire.rows[device]
        place = int(np.argmax(ids == record))
        apart = np.square((rows - rows[place]).astype(float)).reshape(len(rows), -1).sum(1)
        return ScriptWorlds(unit=unit, record=record, device=device, row=rows[int(apart.argmax())], classes=classes)

    def program(self, worlds: ScriptWorlds, rounds: int) -> Program:
        """The first rounds of the script, in these worlds."""

        def program(wire: FlowWire) -> None:
            made: list[ScriptWire] = []

            def maker(**head: Any) -> ScriptWire:
                made.append(ScriptWire(wire, worlds=worlds, rounds=rounds, **head))
                return made[-1]

            self.script.run(maker)
            if isinstance(wire, TracedWire):
                wire.trace.lost += [doubt for doubt in _doubts(wire.trace, worlds, made) if doubt]

        return program

    @property
    def kinds(self) -> Counter[str]:
        """How many messages of each kind were sent."""
        return Counter(message.kind for message in self.sent)


def _doubts(trace: Trace, worlds: ScriptWorlds, made: Sequence[ScriptWire]) -> list[str]:
    """Why what the script computes may not be made of what was made private."""
    what = "labels" if worlds.unit is Unit.LABEL else f"features of device {worlds.device}"
    sources = {number for number, source in enumerate(trace.sources) if source.what == what}
    if not sources & trace.used:
        return [
            f"nothing that was computed reads the {what} that were handed over: hand over the tensor that the training "
            "uses, before anything is computed from it"
        ]
    if worlds.unit is not Unit.LABEL:
        return []
    batches = [
        torch.from_numpy(wire.known_labels[ids.numpy()]).double()
        for wire in made
        for ids in wire.batches
        if wire.known_labels is not None and len(ids) >= _FEW
    ]
    for target, where in trace.targets:
        values = target.double().reshape(-1)
        if any(batch.numel() == len(values) and torch.equal(batch.reshape(-1), values) for batch in batches):
            return [
                f"{where}: labels reach this loss by a way that torch does not show, such as lists or NumPy; take the "
                "batches of `for batch in wire.ids(loader)`, or index the tensor that was handed over"
            ]
    return []
