"""Audits of the systems of a configuration, and of a recorded training: from the input to the report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from vflpriv.audits.scoring.attempts import Attempt
from vflpriv.audits.scoring.labels import Labels
from vflpriv.audits.scoring.trainings import Watched, views_of
from vflpriv.common.devices import check_device, precise_device
from vflpriv.common.machine import single_threaded
from vflpriv.common.registry import available, find
from vflpriv.common.tasks import Executor, InProcess
from vflpriv.config.models import Config, SystemConfig
from vflpriv.core.attack import LabelAttack, made_for
from vflpriv.core.audit import AuditContext, Progress
from vflpriv.core.engine import Engine
from vflpriv.core.systems import System
from vflpriv.core.views import Adversary, View
from vflpriv.core.wire import Transcript, Wire
from vflpriv.recording.ledger_file import LedgerConfig
from vflpriv.recording.transcripts import read_hash
from vflpriv.report.attacks import FeatureCell
from vflpriv.report.audit import Report
from vflpriv.run.build import Audited, build_report
from vflpriv.run.features import FeaturePlan, trials_of
from vflpriv.run.kept import recorded_steps
from vflpriv.run.progress import LateTask, Task, progress_bar
from vflpriv.run.recorded import audit_recording
from vflpriv.run.registered import audit_work, run_audits
from vflpriv.run.summary.rows import utility_row
from vflpriv.run.systems import build_system, claims_of, load_data

__all__ = ["audit_config", "audit_context", "audit_system", "audit_transcript"]


@single_threaded()
def audit_config(
    config: Config,
    *,
    store: Path | None,
    command: str,
    quiet: bool | None,
    trust_ledger: bool = False,
    executor: Executor | None = None,
) -> Report:
    """Audit every system of a configuration; `store` is a folder for finished trials, `executor` runs trainings."""
    check_device(config.device)
    data = load_data(config)
    systems = [build_system(config, place, data) for place in range(len(config.system))]
    features = FeaturePlan.of(config, data)
    contexts = [audit_context(s, c, config, store=store) for s, c in zip(systems, config.system, strict=True)]
    sections = zip(systems, config.system, contexts, strict=True)
    work = sum(_work(system, section, context, features) for system, section, context in sections)
    with progress_bar(quiet) as bar:
        task = Task(bar, work)
        running = executor or InProcess()
        contexts = [replace(context, progress=task, executor=running) for context in contexts]
        audited = [
            audit_system(system, section, config, context, features=features)
            for system, section, context in zip(systems, config.system, contexts, strict=True)
        ]
        task.stage("accounting")
        return build_report(audited, config, reproduce=command, trust_ledger=trust_ledger)


@single_threaded()
def audit_transcript(
    transcript: Path,
    config: LedgerConfig,
    *,
    command: str,
    trust_ledger: bool = False,
    store: Path | None = None,
    quiet: bool | None = True,
    executor: Executor | None = None,
) -> Report:
    """Audit a recorded training by its transcript and its ledger file; `store` is a folder for finished attacks."""
    find("accountant", config.accountant)  # refused before the work, not after it
    with LateTask(quiet) as task:
        steps = recorded_steps(store, transcript, config, task, task.expect)
        audited = [audit_recording(transcript, config, steps=steps, executor=executor)]
        task.stage("accounting")
        return build_report(
            audited,
            config,
            reproduce=command,
            select=False,
            trust_ledger=trust_ledger,
            own={"transcript": read_hash(transcript)},
        )


def audit_context(system: System, section: SystemConfig, config: Config, *, store: Path | None = None) -> AuditContext:
    """What the audits of one system may ask for; witnesses are saved beside the folder of finished trials."""
    return AuditContext(
        claims=claims_of(system, section),
        confidence=config.confidence,
        verdict_confidence=config.verdict_confidence,
        seed=config.seed,
        min_trials=section.audit.min_trials,
        systems=len(config.system),
        store=store,
        witnesses=None if store is None else store.parent / "witnesses",
    )


def _work(system: System, section: SystemConfig, context: AuditContext, features: FeaturePlan) -> int:
    """Replica-rounds of all trainings of this system, for the progress bar."""
    audits = audit_work(system, context, section.audit.tables)
    repeated = bool(_claimed_attacks(system, _label_attacks(section.audit.attacks, system)))
    others = sum(find("attack", claim.attack).target != "labels" for claim in system.success_claims)
    work: int = system.schedule.rounds * (1 + repeated + others) + features.work(system) + audits
    return work


def audit_system(
    system: System,
    section: SystemConfig,
    config: Config,
    context: AuditContext,
    *,
    features: FeaturePlan | None = None,
) -> Audited:
    """Train once for utility, traffic and attacks; attack features; run every registered audit."""
    features, progress = features or FeaturePlan.of(config, system.data), context.progress
    attacks = _label_attacks(section.audit.attacks, system)
    watched = Watched(frozenset().union(*(attack.needs for attack in attacks)) & _sent(system))
    wire = Wire(watched)
    progress.stage(f"{system.key}: one training, attacks")
    engine = system.train([0])
    before = engine.evaluate()
    engine.run(wire, advance=progress.advance)
    after = engine.evaluate()
    views = _views(system, watched.whole, engine)
    trier = _attempts(system, config.confidence)
    attempts = [trier.attempt(attack, view) for attack in attacks for view in views]
    claimed = _claimed_attacks(system, attacks)
    if claimed:
        progress.stage(f"{system.key}: {section.audit.success_trainings} trainings, attacks that claims are about")
    repeated = _repeat(system, claimed, section.audit.success_trainings, config.confidence, progress)
    on_features = _on_claimed_features(system, section.audit.success_trainings, config, progress)
    cells: list[FeatureCell] = []
    if features.trainings():
        progress.stage(f"{system.key}: features")
        cells = features.cells(system.key, system, advance=progress.advance)
    findings, not_tested = run_audits(system, context, section.audit.tables)
    importance = engine.importance()
    return Audited(
        system=system,
        claims=context.claims,
        success_claims=system.success_claims,
        findings=tuple(findings),
        not_tested=tuple(not_tested),
        min_trials=context.min_trials,
        attempts=(*attempts, *on_features),
        repeated=(*repeated, *on_features),
        utility=utility_row(before, after, tests=len(system.data.test_labels), confidence=config.confidence),
        traffic=wire.traffic,
        importance=() if importance is None else tuple(importance.norms[0].tolist()),
        importance_caveat=None if importance is None else importance.caveat(),
        features=tuple(cells),
    )


def _claimed_attacks(system: System, attacks: Sequence[LabelAttack]) -> list[LabelAttack]:
    """Those of the attacks that the system makes claims about."""
    names = {claim.attack for claim in system.success_claims}
    return [attack for attack in attacks if attack.name in names]


def _repeat(
    system: System, attacks: Sequence[LabelAttack], trainings: int, confidence: float, progress: Progress
) -> tuple[Attempt, ...]:
    """These attacks in several trainings at once, each training with noise and initial weights of its own."""
    if not attacks:
        return ()
    watched = Watched(frozenset().union(*(attack.needs for attack in attacks)) & _sent(system))
    engine = system.train(range(trainings))
    engine.run(Wire(watched), advance=progress.advance)
    trier = replace(_attempts(system, confidence), seeds=trainings)
    views = _views(system, watched.whole, engine)
    return tuple(trier.attempt(attack, view) for attack in attacks for view in views)


def _on_claimed_features(system: System, trainings: int, config: Config, progress: Progress) -> tuple[Attempt, ...]:
    """Attacks on features that claims are about, through the views of these, in several trainings at once.

    `audit.attacks` names attacks on labels alone, so that these are always tried.
    """
    attempts: list[Attempt] = []
    for claim in system.success_claims:
        attack = find("attack", claim.attack)
        if attack.target != "labels":
            progress.stage(f"{system.key}: {trainings} trainings, {attack.name}")
            trials = replace(trials_of(config, system), seeds=trainings)
            attempts += trials.run([attack()], claim.adversary.each(system.data.devices), advance=progress.advance)
    return tuple(attempts)


def _sent(system: System) -> frozenset[str]:
    """The kinds of messages that the ledger lists."""
    return frozenset(release.kind for release in system.ledger.releases)


def _label_attacks(names: tuple[str, ...] | None, system: System) -> list[LabelAttack]:
    """The attacks on labels with these names; if None, all but those that take long or are made against other
    defences than the system's."""
    if names is not None:
        return [attack() for attack in (find("attack", name) for name in names) if attack.target == "labels"]
    light = [a() for a in available("attack").values() if a.target == "labels" and not a.heavy]
    return [attack for attack in light if made_for(attack, system.defences)]


def _views(system: System, transcript: Transcript, engine: Engine) -> list[View]:
    """The views of one device, with its own model and features, and of an eavesdropper."""
    adversaries = [Adversary.parse(text) for text in ("device(0)", "eavesdropper")]
    return list(views_of(transcript, engine, system.data, adversaries).values())


def _attempts(system: System, confidence: float) -> Labels:
    """How attacks on this system are tried and scored."""
    return Labels(
        truth=system.data.labels.to(precise_device(system.torch_device)),
        classes=system.data.classes,
        seed=system.seed,
        confidence=confidence,
        defences=system.defences,
        honest_only="needs a device that scales its steps up; an audit trains honest ones, `vflpriv attack` others too",
    )
