"""The audit of a user's script: one run is recorded and audited as any transcript is, and the script is traced."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import ClassVar

from vflpriv.audits.flow.plain.wire import View
from vflpriv.audits.flow.sources import TracedPair
from vflpriv.common.machine import single_threaded
from vflpriv.common.registry import find
from vflpriv.common.tasks import Executor
from vflpriv.core.claims import Claim
from vflpriv.core.systems import Offer
from vflpriv.core.units import Unit
from vflpriv.core.views import Adversary
from vflpriv.errors import InputError
from vflpriv.recording.ledger_file import LedgerConfig
from vflpriv.recording.system import RecordedSystem, read_recording
from vflpriv.recording.transcripts import read_hash
from vflpriv.report.audit import Report
from vflpriv.run.build import build_report
from vflpriv.run.kept import recorded_steps
from vflpriv.run.progress import Task, progress_bar
from vflpriv.run.recorded import audit_recorded
from vflpriv.run.registered import check_tables
from vflpriv.run.traced.declared import as_seen, differences
from vflpriv.run.traced.derived import derive
from vflpriv.run.traced.followed import Followed
from vflpriv.run.traced.script import Script
from vflpriv.run.traced.training import TracedScript
from vflpriv.run.traced.view import enough_rounds, followed_by

__all__ = ["ScriptTraining", "audit_script"]

_FOLLOWED = {Unit.LABEL: Unit.LABEL, Unit.FEATURES: Unit.FEATURES, Unit.RECORD: Unit.FEATURES}
"""By the unit of a claim what differs in the pair that is followed, where the view does not hold it."""


@dataclass(frozen=True, eq=False, kw_only=True)
class ScriptTraining(RecordedSystem):
    """A script with the recording of one run."""

    kind: ClassVar[str] = "a script"
    how_to_offer: ClassVar[Mapping[Offer, str]] = {
        Offer.WORLDS: "a function train(wire, world, seed) can be trained in two worlds: `vflpriv audit train.py:train`"
    }
    traced: TracedScript

    @classmethod
    def of(cls, recorded: RecordedSystem, traced: TracedScript) -> ScriptTraining:
        """The script whose run is recorded."""
        return cls(**{field.name: getattr(recorded, field.name) for field in fields(recorded)}, traced=traced)

    @property
    def offers(self) -> frozenset[Offer]:
        return super().offers | {Offer.TRACE}

    def traced_view(self, adversary: Adversary) -> View:
        """The view of a program that this adversary has; of any one device, that of the last."""
        if not adversary.is_device:
            return adversary.kind
        members = frozenset(adversary.each(self.traced.devices)[-1].members(self.traced.devices))
        return next(iter(members)) if len(members) == 1 else frozenset[str | int](members)

    def traced_pair(self, claim: Claim, rounds: int) -> TracedPair | str:
        """The pair about the record of most rounds; a record claim is followed in a party's features."""
        unit, view = _FOLLOWED.get(claim.unit), self.traced_view(claim.adversary)
        if unit is None:
            return f"of a script one label or one party's row is followed, the claim is about {claim.unit.description}"
        members = view if isinstance(view, frozenset) else {view}
        owner = next((m for m in range(self.traced.devices) if m not in members and m in self.traced.wire.rows), None)
        if claim.unit is Unit.RECORD and owner is None:
            unit = Unit.LABEL
        if unit is Unit.LABEL and claim.adversary.kind in self.ledger.label_holders:
            return f"{claim.adversary} holds the labels"
        if unit is Unit.FEATURES and owner is None:
            return f"{claim.adversary} holds the features of all devices that were watched"
        worlds = self.traced.worlds(unit, owner if unit is Unit.FEATURES else None, rounds)
        if isinstance(worlds, str):
            return worlds
        return TracedPair(what=worlds.what, program=lambda first: self.traced.program(worlds, first))


_ROUNDS = 20
"""Rounds in which a ledger is compared with what is seen."""


@dataclass(frozen=True, kw_only=True)
class _Compared:
    """A ledger as it counts beside what was seen."""

    ledger: LedgerConfig
    differences: tuple[str, ...]
    branches: tuple[str, ...]


def _compared(traced: TracedScript, config: LedgerConfig) -> _Compared:
    """Follow the units that claims are about, each towards the first view that is claimed not to learn it."""
    rounds, followed, units = enough_rounds(traced, _ROUNDS), list[Followed](), set[Unit]()
    for claim in (own.claim({}) for own in config.claim):
        unit = _FOLLOWED.get(claim.unit)
        if unit is None or unit in units or unit not in traced.units:
            continue
        if unit is Unit.LABEL and claim.adversary.kind in config.label_holders:
            continue
        adversary = claim.adversary.each(traced.devices)[-1]
        try:
            followed += followed_by(traced, unit, adversary, rounds)
        except InputError:
            continue  # it holds the features of all parties
        units.add(unit)
    kinds = derive(list(traced.kinds), followed)
    return _Compared(
        ledger=as_seen(config, kinds),
        differences=tuple(f"{line}; what was seen counts" for line in differences(config, kinds)),
        branches=tuple(dict.fromkeys(line for own in followed for line in own.branches)),
    )


@single_threaded()
def audit_script(
    script: Script,
    config: LedgerConfig,
    *,
    store: Path | None,
    command: str,
    quiet: bool | None,
    trust_ledger: bool = False,
    executor: Executor | None = None,
) -> Report:
    """Record a run of a script, audit the recording, and trace the script for each claim."""
    find("accountant", config.accountant)
    check_tables(config.audit, "ledger.audit")
    with TemporaryDirectory(prefix="vflpriv-") as folder, progress_bar(quiet) as bar:
        first = Task(bar, None)
        first.stage(f"{script.name}: one run is recorded")
        traced = TracedScript.of(script, config.seed)
        script.record(Path(folder), config.seed)
        first.stage(f"{script.name}: its ledger is compared with what is seen")
        seen = _compared(traced, config)
        source = ScriptTraining.of(read_recording(Path(folder), seen.ledger), traced)
        steps = recorded_steps(store, Path(folder), config, first, first.expect)
        audited = audit_recorded(source, steps=steps, store=store, executor=executor)
        first.stage("accounting")
        not_tested = (*script.seed_notes, *seen.differences, *audited.not_tested)
        audited = replace(audited, not_tested=not_tested, assumed=(*audited.assumed, *seen.branches))
        own = {"transcript": read_hash(Path(folder))}
        return build_report([audited], config, reproduce=command, select=False, trust_ledger=trust_ledger, own=own)
