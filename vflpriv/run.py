"""Everything an audit does to one system: train, attack, search, measure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from vflpriv.attempts import Attack
from vflpriv.audits._world_trials import Trials
from vflpriv.audits.attack_success import NOTHING_TO_SCORE, Success, draw_auxiliary, label_success, untold
from vflpriv.audits.attack_trials import Watched
from vflpriv.audits.noise import NoiseAudit, NoiseFinding
from vflpriv.audits.one_run import OneRun
from vflpriv.audits.sensitivity import Finding, SensitivityAudit
from vflpriv.audits.server_state import EmptiedFinding, StateAudit, StateFinding
from vflpriv.audits.witnesses import save_witnesses
from vflpriv.canaries import CanaryKind
from vflpriv.claims import Claim, SuccessClaim
from vflpriv.config import Config, SystemConfig
from vflpriv.registry import available, find
from vflpriv.report_attacks import FeatureCell
from vflpriv.run_features import FeatureAttempts
from vflpriv.run_systems import claims_of
from vflpriv.run_trials import Progress, one_run, trainings, two_worlds
from vflpriv.systems import System
from vflpriv.training._base import Evaluation
from vflpriv.views import Adversary, View
from vflpriv.wire import Traffic, Wire

__all__ = ["Attempt", "Audited", "audit_system", "workload"]


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One attack through one view, or the reason why it was not tried."""

    attack: str
    target: str
    adversary: Adversary
    success: Success | None
    refusal: str | None


@dataclass(frozen=True, kw_only=True)
class Audited:
    """Everything found about one system."""

    system: System
    config: SystemConfig
    claims: tuple[Claim, ...]
    success_claims: tuple[SuccessClaim, ...] = ()
    trials: dict[str, list[tuple[CanaryKind, Trials]]] = field(default_factory=dict)
    """By claim key."""
    one_run: dict[str, OneRun] = field(default_factory=dict)
    """By claim key."""
    findings: tuple[Finding, ...] = ()
    witnesses: dict[int, Path] = field(default_factory=dict)
    """Files of findings, by their identity."""
    noise: tuple[NoiseFinding, ...] = ()
    state: tuple[StateFinding, ...] = ()
    emptied: tuple[EmptiedFinding, ...] = ()
    attempts: tuple[Attempt, ...] = ()
    before: Evaluation | None = None
    after: Evaluation | None = None
    traffic: Traffic | None = None
    importance: tuple[float, ...] = ()
    features: tuple[FeatureCell, ...] = ()
    skipped: tuple[str, ...] = ()
    broken: tuple[str, ...] = ()
    """Further premises of every guarantee that do not hold, in words."""


def workload(system: System, section: SystemConfig, features: FeatureAttempts) -> int:
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
    features: FeatureAttempts | None = None,
) -> Audited:
    """Train once for utility, traffic and attacks; search sensitivities; attack features; measure every claim."""
    features = features or FeatureAttempts.of(config, system.data)
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
    tried: list[Attack] = [attack() for attack in labels if chosen is not None or not attack.heavy]
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
    measured = getattr(engine, "importance", None)
    importance = () if measured is None else tuple(float(x) for x in measured()[0])
    found = replace(audited, before=before, after=after, traffic=wire.traffic, importance=importance)
    return replace(found, attempts=tuple(attempts))


_LABELS_PER_CLASS = 4


def _attempt(attack: Attack, view: View, system: System, confidence: float) -> Attempt:
    refusal, success = attack.refusal(view), None
    if refusal is None and attack.conduct is not None and attack.conduct.gain:
        refusal = "needs a device that scales its steps up; an audit trains honest ones, `vflpriv attack` others too"
    if refusal is None:
        truth, per_class = system.data.labels.to(system.torch_device), _LABELS_PER_CLASS if attack.auxiliary else 0
        auxiliary = draw_auxiliary(truth, system.data.classes, per_class=per_class, seed=system.seed)
        guess, blind = attack.run(view, auxiliary), attack.blind(view.silent(), auxiliary)
        if bool(untold(guess, auxiliary).any()):
            success = label_success(guess, truth, confidence=confidence, auxiliary=auxiliary, blind=blind)
        else:
            refusal = NOTHING_TO_SCORE
    return Attempt(attack=attack.name, target=attack.target, adversary=view.adversary, success=success, refusal=refusal)
