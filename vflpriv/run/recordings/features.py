"""Attacks on the features of a recorded training, scored by the blocks that `wire.features` has kept.

An attack is told the rows of a few records, which are not scored, and reads what its adversary sees: the server and an
eavesdropper the embeddings, another device the replies that it received, its own features, and what others sent to it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from vflpriv.audits.scoring.features import FeatureAttempt, FeatureAttempts
from vflpriv.config.models import FeatureConfig
from vflpriv.core.attack import FeatureAttack
from vflpriv.core.kinds import Content, names_of
from vflpriv.core.units import Unit
from vflpriv.core.views import Adversary, Belongings, View
from vflpriv.recording.checks import readable
from vflpriv.recording.ledger_file import LedgerConfig
from vflpriv.recording.scoring_files import FeatureBlock
from vflpriv.recording.system import RecordedSystem
from vflpriv.report.attacks import FeatureCell
from vflpriv.run.budgets import accounted
from vflpriv.run.features import NO_DEFENCE, feature_cell
from vflpriv.run.recordings.views import view_of

__all__ = ["feature_cells", "untested_features"]

_VICTIMS = 4
"""The features of so many devices are attacked, at most."""
_KNOWN: int = FeatureConfig.model_fields["known_records"].default
_UNRECORDED = "needs recorded features to be scored by: call wire.features(device, block) while recording"
_NO_MODELS = "needs the parameters of the victim's model; a recording holds messages, not models"


def feature_cells(system: RecordedSystem, attacks: Sequence[FeatureAttack]) -> list[FeatureCell]:
    """Every attack on the features of the first devices whose features were recorded, through every view of them.

    Without any, one cell for each attack that the ledger names says what to record.
    """
    if not system.blocks:
        named, server = attacks if system.config.attacks is not None else (), Adversary("server")
        refused = [_attempt(attack, server, 0, refusal=_UNRECORDED) for attack in named]
        return [feature_cell({"system": system.key, "defence": NO_DEFENCE}, attempt) for attempt in refused]
    seen, blocks = _seen(system), {m: _table(block, system) for m, block in system.blocks.items()}
    return [
        cell
        for victim in sorted(system.blocks)[:_VICTIMS]
        for cell in _cells_of(system, attacks, _attempts(system, victim, blocks, seen))
    ]


def untested_features(system: RecordedSystem) -> list[str]:
    """What of the features was not tested, and what would have to be recorded."""
    if not system.blocks:
        how = "wire.features(device, block) while recording lets attacks on them be scored"
        return [f"features: none were recorded; {how}"]
    devices, attacked = system.schedule.devices, sorted(system.blocks)[:_VICTIMS]
    others = [m for m in range(devices) if m not in attacked]
    if not others:
        return []
    named = ", ".join(map(str, others[:8])) + (", …" if len(others) > 8 else "")
    why = f"wire.features records them, and those of {_VICTIMS} devices are attacked at most"
    return [f"features of device{'s' if len(others) > 1 else ''} {named}: {why}"]


def _cells_of(
    system: RecordedSystem, attacks: Sequence[FeatureAttack], attempts: FeatureAttempts
) -> Iterator[FeatureCell]:
    """Every attack on one device's features."""
    victim, accountant = attempts.victim, system.config.accountant
    for adversary in _adversaries(system, victim):
        view, budget = (
            _view(system, adversary, attempts.blocks),
            accounted(accountant, system, adversary, Unit.FEATURES),
        )
        names = {"system": system.key, "defence": NO_DEFENCE, "unit": Unit.FEATURES}
        fields = {**names, "epsilon": budget.upper, "delta": budget.delta}
        for attack in attacks:
            yield feature_cell(fields, _tried(attack, view, attempts))


def _tried(attack: FeatureAttack, view: View, attempts: FeatureAttempts) -> FeatureAttempt:
    if "model" in attack.knows:
        return _attempt(attack, view.adversary, attempts.victim, refusal=_NO_MODELS)
    attempt = attempts.attempt(attack, view)
    if attempt.refusal is not None and view.adversary.is_device and not view.own:
        return replace(attempt, refusal=f"{attempt.refusal} (features of {view.adversary} itself were not recorded)")
    return attempt


def _attempt(attack: FeatureAttack, adversary: Adversary, victim: int, *, refusal: str) -> FeatureAttempt:
    return FeatureAttempt(
        attack=attack.name,
        target=attack.target,
        adversary=adversary,
        victim=victim,
        knows=attack.knows,
        refusal=refusal,
    )


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
    found = dict.fromkeys((*usual, *single, *together))
    return [adversary for adversary in found if victim not in adversary.members(devices)]


def _view(system: RecordedSystem, adversary: Adversary, blocks: Mapping[int, Tensor]) -> View:
    """What an adversary sees, as attacks compute with it, and the features of its own devices that were recorded."""
    view, members = view_of(system, adversary), adversary.members(system.schedule.devices)
    own = {m: _belongings(blocks[m]) for m in members if m in blocks}
    messages = tuple(readable(m, system.classes) for m in view.messages)
    return replace(view, messages=messages, own=own)


def _belongings(features: Tensor) -> Belongings:
    return Belongings(features=features, apply=_no_model, initial={}, trained={})


def _no_model(parameters: Mapping[str, Tensor], rows: Tensor) -> Tensor:
    del parameters, rows
    raise ValueError(_NO_MODELS)


def _table(block: FeatureBlock, system: RecordedSystem) -> Tensor:
    """(N, …) a row for every record: where none was recorded, the mean of the others."""
    table = block.rows.mean(0).expand(system.recording.head.records, *block.rows.shape[1:]).clone()
    table[block.records] = block.rows
    return table


def _seen(system: RecordedSystem) -> Tensor:
    """(N,) whether any message says that it is about a record."""
    seen = torch.zeros(system.recording.head.records, dtype=torch.bool)
    for message in system.messages:
        if message.records is not None:
            seen[message.records] = True
    return seen


def _attempts(system: RecordedSystem, victim: int, blocks: Mapping[int, Tensor], seen: Tensor) -> FeatureAttempts:
    block, config = system.blocks[victim], system.config
    return FeatureAttempts(
        blocks=blocks,
        victim=victim,
        known=_KNOWN,
        seed=config.seed,
        confidence=config.confidence,
        attribute=block.sensitive_column,
        records=block.records[seen[block.records]].sort().values,
        noise_std=_noise_std(config),
        tolerant=True,
    )


def _noise_std(config: LedgerConfig) -> float:
    """The std of the Gaussian noise that the ledger declares on embeddings, which is public."""
    outputs = names_of(content=Content.OUTPUTS)
    stds: list[Any] = [r.scale for r in config.release if r.noise == "gaussian" and r.kind in outputs]
    return float(max(stds, default=0.0))
