"""Attacks on the features of a recorded training, scored by the blocks that `wire.features` has kept.

An attack is told the rows of a few records, which are not scored, and reads what its adversary sees: the server and an
eavesdropper the embeddings, another device the replies that it received, its own features, and what others sent to it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from vflpriv.audits.ciphertexts import Sealed
from vflpriv.audits.scoring.attempts import Attempt
from vflpriv.audits.scoring.features import Features
from vflpriv.common.seeds import host_generator
from vflpriv.common.store import JsonForm, Steps
from vflpriv.config.models import FeatureConfig
from vflpriv.core.attack import NO_DEFENCE, FeatureAttack
from vflpriv.core.kinds import Content, names_of
from vflpriv.core.units import Unit
from vflpriv.core.views import Adversary, View
from vflpriv.core.wire import LazyTensors, Message, Transcript
from vflpriv.recording.files.checks import readable, row_axis
from vflpriv.recording.ledger_file import LedgerConfig
from vflpriv.recording.system import RecordedSystem
from vflpriv.report.attacks import FeatureCell
from vflpriv.run.recordings.views import feature_table, seen_records, view_of, without_model
from vflpriv.run.summary.cells import budget_fields, feature_cell

__all__ = ["feature_cells", "feature_work", "untested_features"]

_VICTIMS = 4
"""The features of so many devices are attacked, at most."""
_MOST_RECORDS = 2000
"""Of more records a sample is attacked."""
_WORK = 3
"""How long attacks on one device's features take for each message, beside an attack on labels that reads it."""
_CELLS = JsonForm(list[FeatureCell])
_KNOWN: int = FeatureConfig.model_fields["known_records"].default
_UNRECORDED = "needs recorded features to be scored by: call wire.features(device, block) while recording"
_NO_MODELS = "needs the parameters of the victim's model; a recording holds messages, not models"


def feature_cells(
    system: RecordedSystem, attacks: Sequence[FeatureAttack], sealed: Sealed, steps: Steps
) -> list[FeatureCell]:
    """Every attack on the features of the first devices whose features were recorded, through every view of them.

    Without any, one cell for each attack that the ledger names says what to record. The cells of one device are one
    step.
    """
    if not system.blocks:
        named, server = attacks if system.config.attacks is not None else (), Adversary("server")
        refused = [Attempt.of(attack, server, victim=0, refusal=_UNRECORDED) for attack in named]
        return [feature_cell({"system": system.key, "defence": NO_DEFENCE}, attempt) for attempt in refused]
    whole = _Part.whole(system, sealed, _sample(system))
    rows = whole.cut() if int(whole.sample.sum()) == _MOST_RECORDS else whole
    cells: list[FeatureCell] = []
    for victim in _victims(system):
        compute = partial(_cells_of, victim, attacks, rows, whole)
        own = steps.result(f"features of device {victim}", _CELLS, compute, work=_WORK * len(system.messages))
        cells += own
    return cells


def feature_work(system: RecordedSystem) -> int:
    """How much work attacks on features are, for the progress bar."""
    return _WORK * len(system.messages) * len(_victims(system))


def _victims(system: RecordedSystem) -> list[int]:
    return sorted(system.blocks)[:_VICTIMS]


def untested_features(system: RecordedSystem) -> list[str]:
    """What of the features was not tested, and what would have to be recorded."""
    if not system.blocks:
        how = "wire.features(device, block) while recording lets attacks on them be scored"
        return [f"features: none were recorded; {how}"]
    devices, attacked, lines = system.schedule.devices, sorted(system.blocks)[:_VICTIMS], []
    others = [m for m in range(devices) if m not in attacked]
    if others:
        named = ", ".join(map(str, others[:8])) + (", …" if len(others) > 8 else "")
        why = f"wire.features records them, and those of {_VICTIMS} devices are attacked at most"
        lines.append(f"features of device{'s' if len(others) > 1 else ''} {named}: {why}")
    most = max(len(block.records) for block in system.blocks.values())
    if most > _MOST_RECORDS:
        lines.append(f"features of {most - _MOST_RECORDS} of {most} records: {_MOST_RECORDS} were drawn at random")
    return lines


@dataclass(frozen=True, eq=False, kw_only=True)
class _Part:
    """What attacks are given of a recording: all of it, or the rows of a sample, whose records are numbered anew."""

    system: RecordedSystem
    sealed: Sealed
    transcript: Transcript
    sample: Tensor
    """(N,) whether each record is attacked."""
    blocks: Mapping[int, Tensor]
    """A row for each number of a record."""
    numbers: Tensor
    """(N,) the number of each record that is attacked."""

    @classmethod
    def whole(cls, system: RecordedSystem, sealed: Sealed, sample: Tensor) -> _Part:
        """All messages, and all rows of all devices."""
        numbers = torch.arange(len(sample))
        blocks = {m: feature_table(block, numbers) for m, block in system.blocks.items()}
        messages = [readable(m, system.classes) for m in system.messages]
        transcript = Transcript(messages=messages)
        return cls(system=system, sealed=sealed, transcript=transcript, sample=sample, blocks=blocks, numbers=numbers)

    def cut(self) -> _Part:
        """The same with the rows of the sample alone."""
        chosen, numbers = self.sample.nonzero().flatten(), self.sample.cumsum(0) - 1
        messages = [_cut(m, self.sample, numbers) for m in self.transcript.messages]
        blocks = {m: rows[chosen] for m, rows in self.blocks.items()}
        return replace(self, transcript=Transcript(messages=messages), blocks=blocks, numbers=numbers)

    def view(self, adversary: Adversary) -> View:
        """What an adversary sees, and the features of its own devices that were recorded."""
        members = adversary.members(self.system.schedule.devices)
        own = {m: without_model(self.blocks[m]) for m in members if m in self.blocks}
        return replace(view_of(self.system, adversary, self.sealed, self.transcript), own=own)

    def secret(self, victim: int) -> Features:
        """This device's features as what attacks guess."""
        block, config = self.system.blocks[victim], self.system.config
        return Features(
            blocks=self.blocks,
            victim=victim,
            known=_KNOWN,
            seed=config.seed,
            confidence=config.confidence,
            attribute=block.sensitive_column,
            records=self.numbers[block.records[self.sample[block.records]]].sort().values,
            noise_std=_noise_std(config),
            tolerant=True,
        )


def _cells_of(victim: int, attacks: Sequence[FeatureAttack], rows: _Part, whole: _Part) -> list[FeatureCell]:
    """Every attack on one device's features; those that read each record by itself are given the sample's rows."""
    system = whole.system
    parts = {True: (rows, rows.secret(victim)), False: (whole, whole.secret(victim))}
    cells = []
    for adversary in _adversaries(system, victim):
        fields = {"system": system.key, "defence": NO_DEFENCE}
        fields |= budget_fields(system.config.accountant, system, adversary, Unit.FEATURES)
        views = {by_record: part.view(adversary) for by_record, (part, _) in parts.items()}
        for attack in attacks:
            by_record = bool(getattr(attack, "by_record", False))
            attempt = _tried(attack, views[by_record], parts[by_record][1])
            cells.append(feature_cell(fields, attempt))
    return cells


def _sample(system: RecordedSystem) -> Tensor:
    """(N,) whether each record is attacked: those that messages name and whose features are known, or some of them."""
    known = torch.zeros(system.recording.head.records, dtype=torch.bool)
    for block in system.blocks.values():
        known[block.records] = True
    candidates = (known & seen_records(system)).nonzero().flatten()
    order = host_generator(system.config.seed, "auxiliary", len(candidates)).permutation(len(candidates))
    chosen = torch.zeros_like(known)
    chosen[candidates[torch.from_numpy(order[:_MOST_RECORDS])]] = True
    return chosen


def _cut(message: Message, sample: Tensor, numbers: Tensor) -> Message:
    """The message with the rows of these records alone, under their new numbers, if attacks read it."""
    if message.records is None:
        return message
    if message.kind not in names_of():
        return replace(message, tensors={}, records=None, batch=None)
    places, size = sample[message.records].nonzero().flatten(), len(message.records)

    def rows(name: str, value: Tensor) -> Tensor:
        axis = row_axis(message.kind, name, value.shape[1:], size)
        return value if axis is None else value.index_select(1 + axis, places)

    tensors = LazyTensors(message.tensors, rows)
    return replace(message, tensors=tensors, records=numbers[message.records[places]], batch=None)


def _tried(attack: FeatureAttack, view: View, secret: Features) -> Attempt:
    if "model" in attack.knows:
        return Attempt.of(attack, view.adversary, victim=secret.victim, refusal=_NO_MODELS)
    attempt = secret.attempt(attack, view)
    if attempt.refusal is not None and view.adversary.is_device and not view.own:
        return replace(attempt, refusal=f"{attempt.refusal} (features of {view.adversary} itself were not recorded)")
    return attempt


def _adversaries(system: RecordedSystem, victim: int) -> list[Adversary]:
    """The server, an eavesdropper, one other device and all together, those it sent to, the adversaries of claims."""
    devices = system.schedule.devices
    others = tuple(m for m in range(devices) if m != victim)
    sent_to = sorted({m.receiver.index for m in system.messages if m.across and m.sender.index == victim})
    claimed = [c.adversary for c in system.claims if c.unit.implies(Unit.FEATURES) and c.adversary.knows_batches]
    single = [member for adversary in claimed for member in adversary.each(devices)[:_VICTIMS]]
    alone = [Adversary("device", (m,)) for m in (*others[:1], *sent_to[:_VICTIMS])]
    usual = [Adversary("server"), Adversary("eavesdropper"), *alone]
    together = [Adversary("devices", others)] if len(others) > 1 else []
    adversaries = dict.fromkeys((*usual, *single, *together))
    return [adversary for adversary in adversaries if victim not in adversary.members(devices)]


def _noise_std(config: LedgerConfig) -> float:
    """The std of the Gaussian noise that the ledger declares on embeddings, which is public."""
    outputs = names_of(content=Content.OUTPUTS)
    stds: list[Any] = [r.scale for r in config.release if r.noise == "gaussian" and r.kind in outputs]
    return float(max(stds, default=0.0))
