"""An audit as data: from a configuration, or from a recorded training, to the report."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from vflpriv.audits.noise import NoiseAudit
from vflpriv.audits.one_run import OneRun, OneRunAudit
from vflpriv.audits.scoring.labels import Attempt, LabelAttempts, Watched
from vflpriv.audits.sensitivity import SensitivityAudit, save_witnesses
from vflpriv.audits.server_state import StateAudit
from vflpriv.audits.two_world import TwoWorldAudit
from vflpriv.audits.worlds.store import TrialStore
from vflpriv.audits.worlds.trials import Trials
from vflpriv.common.registry import available, find
from vflpriv.config.models import AuditConfig, Config, DataConfig, OneRunConfig, SystemConfig
from vflpriv.core.attack import LabelAttack
from vflpriv.core.canaries import CanaryKind
from vflpriv.core.claims import Claim, Verdict
from vflpriv.core.systems import System
from vflpriv.core.units import Unit
from vflpriv.core.views import Adversary, View
from vflpriv.core.wire import Wire
from vflpriv.recording.format import Head
from vflpriv.recording.ledger_file import LedgerConfig
from vflpriv.report.audit import Report
from vflpriv.run.build import build_report, ledger_checks
from vflpriv.run.features import FeaturePlan
from vflpriv.run.progress import Task, progress_bar
from vflpriv.run.recorded import audit_recording
from vflpriv.run.results import Audited
from vflpriv.run.systems import build_system, claims_of, load_data

__all__ = [
    "Progress",
    "audit_config",
    "audit_system",
    "audit_transcript",
    "one_run",
    "trainings",
    "two_worlds",
    "workload",
]


def workload(system: System, section: SystemConfig, features: FeaturePlan) -> int:
    """Replica-rounds of all trainings of this system, for the progress bar."""
    claims, audit = claims_of(system, section), section.audit
    one = 1 + features.trainings() + bool(claims and audit.one_run)
    return system.schedule.rounds * (one + trainings(system, claims, audit))


def audit_system(
    system: System,
    section: SystemConfig,
    config: Config,
    *,
    store: Path | None,
    progress: Progress,
    features: FeaturePlan | None = None,
) -> Audited:
    """Train once for utility, traffic and attacks; search sensitivities; attack features; measure every claim."""
    features = features or FeaturePlan.of(config, system.data)
    about_attacks = system.engine.success_claims(system.settings, system.schedule)
    claims = claims_of(system, section)
    audited = Audited(system=system, config=section, claims=claims, success_claims=about_attacks)
    if section.audit.sensitivity:
        progress.stage(f"{section.key}: sensitivity search")
        mechanisms = system.engine.mechanisms(system.settings, system.schedule)
        size = system.schedule.batch_size
        findings = SensitivityAudit().run(mechanisms, batch_size=size, seed=config.seed)
        saved = {} if store is None else save_witnesses(store.parent / "witnesses", section.key, mechanisms, findings)
        audited = replace(audited, findings=tuple(findings), witnesses=saved)
    progress.stage(f"{section.key}: noise and state")
    noise = NoiseAudit().run(system, confidence=config.confidence) if section.audit.noise else ()
    state = StateAudit().run(system) if section.audit.state else ()
    emptied = StateAudit().emptied(system) if section.audit.state else ()
    audited = replace(audited, noise=tuple(noise), state=tuple(state), emptied=tuple(emptied))
    progress.stage(f"{section.key}: one training, attacks")
    audited = _train_and_attack(audited, config, progress.advance)
    if features.trainings():
        progress.stage(f"{section.key}: features")
        found = features.cells(section.key, system, advance=progress.advance)
        audited = replace(audited, features=tuple(found))
    if any(section.audit.trials_of(kind) for kind in CanaryKind):
        trials, skipped = two_worlds(system, claims, section.audit, config, store, progress)
        audited = replace(audited, trials=trials, skipped=skipped)
    if section.audit.one_run is not None and claims:
        once, skipped = one_run(system, claims, section.audit.one_run, store, progress)
        audited = replace(audited, one_run=once, skipped=(*audited.skipped, *skipped))
    return audited


def _train_and_attack(audited: Audited, config: Config, advance: Callable[[int], None]) -> Audited:
    system = audited.system
    chosen = audited.config.audit.attacks
    attacks = available("attack") if chosen is None else {name: find("attack", name) for name in chosen}
    labels = [attack for attack in attacks.values() if attack.target == "labels"]
    tried: list[LabelAttack] = [attack() for attack in labels if chosen is not None or not attack.heavy]
    sent = frozenset(release.kind for release in system.ledger.releases)
    watched = Watched(frozenset().union(*(a.needs for a in tried)) & sent)
    engine = system.train([0])
    wire = Wire(watched)
    before = engine.evaluate()
    engine.run(wire, advance=advance)
    after = engine.evaluate()
    data, whole, own = system.data, watched.whole, {0: engine.belongings(0)}
    views = [
        View.of(whole, Adversary.parse(text), devices=data.devices, classes=data.classes, own=own)
        for text in ("device(0)", "eavesdropper")
    ]
    attempts = [_attempt(a, view, system, config.confidence) for a in tried for view in views]
    measured = engine.importance()
    importance = () if measured is None else tuple(float(x) for x in measured[0])
    found = replace(audited, before=before, after=after, traffic=wire.traffic, importance=importance)
    return replace(found, attempts=tuple(attempts))


def _attempt(attack: LabelAttack, view: View, system: System, confidence: float) -> Attempt:
    attempts = LabelAttempts(
        truth=system.data.labels.to(system.torch_device),
        classes=system.data.classes,
        seed=system.seed,
        confidence=confidence,
        honest_only="needs a device that scales its steps up; an audit trains honest ones, `vflpriv attack` others too",
    )
    return attempts.attempt(attack, view)


# The trainings by which an audit measures a system's claims: in two worlds, and in one run with many canaries.

TrialsByClaim = dict[str, list[tuple[CanaryKind, Trials]]]


class Progress(Protocol):
    """Who wants to know how far an audit is."""

    def stage(self, text: str) -> None: ...
    def advance(self, work: int) -> None: ...


@dataclass(frozen=True, kw_only=True)
class _Plan:
    """The claims about one unit that a canary of one kind can try, all views in the same trainings."""

    kind: CanaryKind
    trials: int
    unit: Unit
    claims: tuple[Claim, ...]

    @property
    def views(self) -> list[Adversary]:
        return list(dict.fromkeys(c.adversary for c in self.claims))


def _plans(system: System, claims: Sequence[Claim], audit: AuditConfig) -> list[_Plan]:
    plans = []
    for kind in (k for k in CanaryKind if audit.trials_of(k)):
        for unit in dict.fromkeys(c.unit for c in claims):
            found = tuple(
                c
                for c in claims
                if c.unit is unit and TwoWorldAudit.refusal(system, c.adversary, unit=unit, kind=kind) is None
            )
            plans += [_Plan(kind=kind, trials=audit.trials_of(kind), unit=unit, claims=found)] if found else []
    return plans


def trainings(system: System, claims: Sequence[Claim], audit: AuditConfig) -> int:
    """How many trainings the two-world trials of these claims take."""
    return sum(
        TwoWorldAudit.trainings(system, p.views, p.kind, trials=p.trials, unit=p.unit)
        for p in _plans(system, claims, audit)
    )


def two_worlds(
    system: System,
    claims: Sequence[Claim],
    audit: AuditConfig,
    config: Config,
    store: Path | None,
    progress: Progress,
) -> tuple[TrialsByClaim, tuple[str, ...]]:
    """Trials of every claim whose view can be tried; and what was skipped."""
    two_world = TwoWorldAudit(store=TrialStore(store))
    trials: TrialsByClaim = {c.key: [] for c in claims}
    plans = _plans(system, claims, audit)
    # If the other systems have as many tests, Holm's procedure rejects whatever is below this level.
    level = (1 - config.confidence) / max(1, len(config.system) * sum(len(p.claims) for p in plans))
    for one in plans:
        progress.stage(f"{system.key}: {one.kind} canary, {one.unit}, 2 × {one.trials} trials")
        found = two_world.run(
            system,
            one.views,
            one.kind,
            trials=one.trials,
            unit=one.unit,
            confidence=config.confidence,
            reach=audit.reach,
            advance=progress.advance,
            stop=_refuted(one.claims, audit.min_trials, level) if audit.stop_early else None,
        )
        for claim in one.claims:
            trials[claim.key].append((one.kind, found[claim.adversary]))
    kinds = [k for k in CanaryKind if audit.trials_of(k)]
    refusals = {c.key: two_world.refusal(system, c.adversary, unit=c.unit, kind=kinds[0]) for c in claims if kinds}
    return trials, _skipped([c for c in claims if not trials[c.key]], refusals)


def _refuted(claims: Sequence[Claim], min_trials: int, level: float) -> Callable[[Mapping[Adversary, Trials]], bool]:
    def refuted(found: Mapping[Adversary, Trials]) -> bool:
        """Whether every claim that these trials speak of is refuted, whatever the report's other tests say."""
        seen = [(c, found[c.adversary]) for c in claims if c.adversary in found]
        spoken = [(c, t) for c, t in seen if c.unit.implies(t.unit)]
        enough = all(len(t.scores[0]) >= min_trials for _, t in spoken)
        return bool(spoken) and enough and all(t.p_value(c) <= level for c, t in spoken)

    return refuted


def one_run(
    system: System, claims: Sequence[Claim], asked: OneRunConfig, store: Path | None, progress: Progress
) -> tuple[dict[str, OneRun], tuple[str, ...]]:
    """One training for every claim whose view can be tried, all views in it; and what was skipped."""
    audit = OneRunAudit(store=TrialStore(store))
    refusals = {c.key: audit.refusal(system, c.adversary) for c in claims}
    open_claims = [c for c in claims if refusals[c.key] is None and c.unit.implies(Unit.LABEL)]
    found: Mapping[Adversary, OneRun] = {}
    if open_claims:
        progress.stage(f"{system.key}: one run, {asked.canaries} canaries")
        views = list(dict.fromkeys(c.adversary for c in open_claims))
        found = audit.run(system, views, canaries=asked.canaries, guesses=asked.guesses, advance=progress.advance)
    return {c.key: found[c.adversary] for c in open_claims}, _skipped(claims, refusals)


def _skipped(claims: Sequence[Claim], refusals: Mapping[str, str | None]) -> tuple[str, ...]:
    return tuple(f"{c.where} ({c.adversary}): {refusals[c.key]}" for c in claims if refusals.get(c.key))


# An audit as data: from a configuration, or from a recorded training, to the report.


def audit_config(config: Config, *, store: Path | None, command: str, quiet: bool | None) -> Report:
    """Audit every system of a configuration; `store` is a folder for finished trials."""
    data = load_data(config)
    systems = [build_system(config, place, data) for place in range(len(config.system))]
    features = FeaturePlan.of(config, data)
    total = sum(workload(s, c, features) for s, c in zip(systems, config.system, strict=True))
    with progress_bar(quiet) as bar:
        task = Task(bar, total)
        audited = [
            audit_system(system, section, config, store=store, progress=task, features=features)
            for system, section in zip(systems, config.system, strict=True)
        ]
        task.stage("accounting")
        return build_report(audited, config, reproduce=command)


def audit_transcript(transcript: Path, config: LedgerConfig, *, command: str) -> Report:
    """Audit a recorded training by its transcript and its ledger file."""
    found = audit_recording(transcript, config)
    audited, head = found.audited, found.recording.head
    whole = Config(
        seed=config.seed,
        confidence=config.confidence,
        accountant=config.accountant,
        data=DataConfig(name=head.name, devices=head.devices),
        system=(audited.config,),
    )
    report = build_report([audited], whole, reproduce=command, select=False)
    checks = tuple(ledger_checks(found, config, command))
    facts = {"rounds": found.recording.rounds, "data": _facts(head), "staleness": None, "checks": checks}
    words = [*report.verdicts, *(check.verdict for check in checks)]
    return report.model_copy(
        update={
            "systems": tuple(system.model_copy(update=facts) for system in report.systems),
            "config": json.loads(config.model_dump_json()),
            "exit_code": 1 if Verdict.VIOLATED in words else 3 if Verdict.UNSUPPORTED in words else 0,
        }
    )


def _facts(head: Head) -> dict[str, object]:
    """What is known of the data: no features are in a transcript."""
    facts: dict[str, object] = {"name": head.name, "records": head.records, "devices": head.devices}
    facts |= {"classes": head.classes, "messages": dict(head.messages)}
    return facts if head.accuracy is None else facts | {"accuracy": head.accuracy, "tests": head.tests}
