"""The audit of a user's training function: the audit of one recorded training, and tests of its claims by trials."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from vflpriv.audits.ciphertexts import Sealed
from vflpriv.audits.two_world.findings import TWO_WORLD, whole_view_finding
from vflpriv.audits.two_world.plan import first_replica
from vflpriv.audits.two_world.whole_view import WholeViewScores
from vflpriv.common.machine import single_threaded
from vflpriv.common.registry import find
from vflpriv.common.store import Store
from vflpriv.common.tasks import Executor, InProcess, Progress
from vflpriv.core.audit import AuditContext, Finding, untested
from vflpriv.core.canaries import CanaryKind
from vflpriv.core.claims import Claim
from vflpriv.core.ledger import Ledger
from vflpriv.core.units import Unit
from vflpriv.core.views import Adversary
from vflpriv.errors import InputError
from vflpriv.recording.ledger_file import LedgerConfig
from vflpriv.recording.transcripts import read_hash
from vflpriv.recording.worlds_file import TrialsConfig
from vflpriv.report.audit import Report
from vflpriv.run.build import build_report
from vflpriv.run.kept import recorded_steps
from vflpriv.run.own_training.function import OwnTraining
from vflpriv.run.own_training.reference import Reference
from vflpriv.run.own_training.trials import TrainedFeatures, TrialPlan, trained_features, training_seed
from vflpriv.run.progress import Task, progress_bar
from vflpriv.run.recorded import audit_recording
from vflpriv.run.recordings.views import DEVICES_TRIED, hidden_kinds

__all__ = ["audit_training", "trials_of"]

_REFERENCES = 4


def trials_of(config: LedgerConfig, trials: object) -> LedgerConfig:
    """The ledger with so many trials in each world; an error if it does not say what the worlds differ in."""
    if config.trials is None:
        expected = "a section [trials] with unit, record, devices, records and classes: what the two worlds differ in"
        raise InputError("ledger.trials", "nothing", expected)
    if trials is None:
        return config
    if isinstance(trials, bool) or not isinstance(trials, int) or not 0 <= trials <= 1_000_000:
        raise InputError("--trials", trials, "a whole number from 0 to 1000000")
    return config.model_copy(update={"trials": config.trials.model_copy(update={"per_world": trials})})


@single_threaded()
def audit_training(
    training: OwnTraining,
    config: LedgerConfig,
    *,
    store: Path | None,
    command: str,
    quiet: bool | None,
    trust_ledger: bool = False,
    executor: Executor | None = None,
) -> Report:
    """Audit a training: one is recorded and audited as a transcript is, and many in two worlds test its claims."""
    find("accountant", config.accountant)
    worlds = trials_of(config, None).trials
    assert worlds is not None
    code = training.code()
    with TemporaryDirectory(prefix="vflpriv-") as folder, progress_bar(quiet) as bar:
        first = Task(bar, None)
        first.stage(f"{training.name}: one training in each world")
        seeds = [training_seed(config.seed, -1 - place) for place in range(_REFERENCES)]
        reference = Reference.of(training, worlds, Path(folder), seeds)
        steps = recorded_steps(store, Path(folder), config, first, first.expect)
        audited = audit_recording(Path(folder), config, steps=steps, trained=True)
        sealed = Sealed(audited.system.ledger, audited.findings)
        trials = _Trials(training, config, worlds, reference, audited.system.ledger, sealed)
        task = Task(bar, 2 * worlds.per_world)
        task.stage(f"{training.name}: 2 × {worlds.per_world} trainings in two worlds")
        findings = trials.findings(audited.claims, code, Store(store), executor or InProcess(), task)
        task.stage("accounting")
        whole = replace(
            audited,
            findings=(*findings, *audited.findings),
            not_tested=(*_notes(findings, reference, worlds), *audited.not_tested),
            min_trials=worlds.min_trials,
        )
        own = {"training function": code, "transcript": read_hash(Path(folder))}
        return build_report([whole], config, reproduce=command, select=False, trust_ledger=trust_ledger, own=own)


class _Trials:
    """The tests of claims by trials of one training."""

    def __init__(
        self,
        training: OwnTraining,
        config: LedgerConfig,
        worlds: TrialsConfig,
        reference: Reference,
        ledger: Ledger,
        sealed: Sealed,
    ) -> None:
        self._training, self._config, self._worlds = training, config, worlds
        self._reference, self._ledger, self._sealed = reference, ledger, sealed

    def findings(
        self, claims: Sequence[Claim], code: str | None, store: Store, executor: Executor, progress: Progress
    ) -> list[Finding]:
        """A test of every claim that the worlds can test; of the others, why there is none."""
        refusals = {claim.key: self._refusal(claim) for claim in claims}
        views = {claim.key: self._views(claim.adversary) for claim in claims if refusals[claim.key] is None}
        trained = self._train(views, code, store, executor, progress) if views else None
        context = AuditContext(
            claims=tuple(claims),
            confidence=self._config.confidence,
            verdict_confidence=self._config.verdict_confidence,
            seed=self._config.seed,
            min_trials=self._worlds.min_trials,
        )
        findings = []
        for claim in claims:
            reason = refusals[claim.key] or self._batches_refusal(claim, trained)
            if reason is not None or trained is None:
                findings.append(untested(TWO_WORLD, claim, reason or ""))
            else:
                findings.append(self._finding(claim, views[claim.key], trained, context))
        return findings

    def _train(
        self,
        views: Mapping[str, Sequence[Adversary]],
        code: str | None,
        store: Store,
        executor: Executor,
        progress: Progress,
    ) -> _Scored:
        watched = dict.fromkeys(view for several in views.values() for view in several)
        sent = [message for world in self._reference.worlds for message in world]
        hidden = {v: hidden_kinds(self._config, v) | self._sealed.kinds_in_clear(sent, v) for v in watched}
        plan = TrialPlan.of(self._training, self._worlds, self._reference, hidden, seed=self._config.seed)
        count = self._worlds.per_world
        # Another number of trials has other trainings: none is tested again because of what it showed.
        first = first_replica(count, 0, count)
        trained = trained_features(
            plan,
            range(first, first + 2 * count),
            code=code,
            digest=self._reference.digest,
            store=store,
            executor=executor,
            progress=progress,
        )
        return _Scored(trained, WholeViewScores(trained.features, canary=plan.canary, trials=count))

    def _finding(self, claim: Claim, views: Sequence[Adversary], trained: _Scored, context: AuditContext) -> Finding:
        whole = trained.scores.tested(views)
        assert whole is not None
        finding = whole_view_finding(claim, CanaryKind.NATURAL, whole, context)
        meant = len(claim.adversary.each(self._worlds.devices))
        if meant == 1:
            return finding
        return replace(finding, sentence=f"{finding.sentence}, the most telling of {len(views)} of {meant} devices")

    def _views(self, adversary: Adversary) -> list[Adversary]:
        """The views meant by an adversary, of any device the first few, without those that hold what differs."""
        devices, owners = self._worlds.devices, self._worlds.owners
        each = [view for view in adversary.each(devices) if not owners & set(view.members(devices))]
        return each[:DEVICES_TRIED]

    def _refusal(self, claim: Claim) -> str | None:
        """Why the trials say nothing about a claim, or None."""
        worlds, reference = self._worlds, self._reference
        if not worlds.per_world:
            return "no trials in two worlds were asked for"
        if not reference.differ:
            return (
                f"the two worlds do not differ: with each of {reference.seeds} seeds they sent the same messages; does "
                "train() use `world`, and does what differs take part?"
            )
        if not claim.unit.implies(worlds.unit):
            return f"the two worlds differ in {worlds.unit.description}, the claim is about {claim.unit.description}"
        return self._view_refusal(claim)

    def _view_refusal(self, claim: Claim) -> str | None:
        worlds, adversary = self._worlds, claim.adversary
        exposure = self._ledger.exposure(adversary, claim.unit)
        if exposure.not_applicable is not None:
            return f"two-world has nothing to tell: {exposure.not_applicable}"
        if adversary.holds_model:
            return "trials see what is sent, and the trained model is not"
        if worlds.label_differs and adversary.kind in self._ledger.label_holders:
            instead = "" if worlds.unit is Unit.LABEL else "; worlds of unit = 'features' test it"
            return f"{adversary} holds the labels, in which the two worlds may differ{instead}"
        if not self._views(adversary):
            instead = "; a device in [trials], or unit = 'label', says less" if worlds.device is None else ""
            return f"{adversary} holds what differs between the two worlds{instead}"
        return None

    def _batches_refusal(self, claim: Claim, trained: _Scored | None) -> str | None:
        """Why trials with the same batches do not test a claim that counts on secret ones."""
        if trained is None or claim.adversary.knows_batches or not trained.features.same_batches:
            return None
        events = self._ledger.exposure(claim.adversary, claim.unit).events
        if not any(event.sampling is not None for event in events):
            return None
        return f"all trials have the same batches, which are a secret to {claim.adversary}: draw them from the seed"


class _Scored:
    """Trials with their features and the scores learned from them."""

    def __init__(self, features: TrainedFeatures, scores: WholeViewScores) -> None:
        self.features, self.scores = features, scores


def _notes(findings: Sequence[Finding], reference: Reference, worlds: TrialsConfig) -> list[str]:
    """What the trials did not test, and what they take for granted."""
    where = "" if worlds.record is None else f", record {worlds.record}"
    lines = [
        f"other worlds than the two of train() ({worlds.unit.description}{where}): another record, device or value may "
        "show more"
    ]
    lines += [f"claim {f.claim} ({f.adversary}): {f.sentence}" for f in findings if f.is_untested]
    if not reference.repeats:
        lines.append(
            "whether trainings are independent: two with the same seed in the same world sent other bits, so train() "
            "has randomness that `seed` does not decide, or keeps state from one call to the next; this report cannot "
            "be repeated bit by bit, and a stopped audit starts again"
        )
    return lines
