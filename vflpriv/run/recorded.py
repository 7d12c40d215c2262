"""The audit of a recorded training: attacks on its views, tests of its claims, and checks of its ledger."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from vflpriv.audits.ciphertexts import Sealed, recorded_ciphertexts
from vflpriv.audits.learned.recorded import LEAST_CANARIES, Split, learned_scores
from vflpriv.audits.one_run import OneRunAudit, guess_coins
from vflpriv.audits.recorded.transcript import NOISE_WORK
from vflpriv.audits.scoring.attempts import Attempt
from vflpriv.audits.scoring.labels import Labels, Targets
from vflpriv.common.numerics import Floats
from vflpriv.common.store import Steps, TensorForm
from vflpriv.core.attack import Guess, LabelAttack, TargetAttack
from vflpriv.core.audit import AuditContext, Finding, untested
from vflpriv.core.canaries import Canaries
from vflpriv.core.claims import Claim
from vflpriv.core.units import Unit
from vflpriv.core.views import Adversary, View
from vflpriv.core.wire import Message, Wire
from vflpriv.recording.files.checks import readable
from vflpriv.recording.ledger_file import LedgerConfig
from vflpriv.recording.system import RecordedSystem, read_recording
from vflpriv.recording.transcripts import Answers
from vflpriv.run.build import Audited
from vflpriv.run.kept import kept_by
from vflpriv.run.recordings.attacks import chosen_attacks
from vflpriv.run.recordings.features import feature_cells, feature_work, untested_features
from vflpriv.run.recordings.members import try_membership
from vflpriv.run.recordings.views import DEVICES_TRIED, own_features, seen_records, view_of
from vflpriv.run.registered import check_tables, run_audits

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["audit_recording"]

_SCORE_WORK = 1
"""How long a learned score takes, beside an attack that reads the message."""
_COVERED = frozenset({"one-run", "two-world"})
"""Audits of engines in whose place coins are guessed, and trials of a training function are made."""
_Guesses = dict[Adversary, dict[str, Guess]]


def _context(config: LedgerConfig) -> AuditContext:
    return AuditContext(confidence=config.confidence, verdict_confidence=config.verdict_confidence, seed=config.seed)


def audit_recording(
    folder: Path, config: LedgerConfig, *, steps: Steps | None = None, trained: bool = False
) -> Audited:
    """Attack every view of a recorded training, test its claims, and check its ledger against the transcript.

    `steps` keeps what is finished, and shows the progress. With `trained`, trials in two worlds are run beside it, so
    that they are not said to be missing.
    """
    steps = steps or Steps()
    check_tables(config.audit, "ledger.audit")
    system = read_recording(folder, config)
    claims, success_claims, answers = system.claims, system.success_claims, system.answers
    ciphertexts = recorded_ciphertexts(system.ledger, system.messages, claims)
    claimed = [*(c.adversary for c in claims), *(c.adversary for c in success_claims)]
    sealed = Sealed(system.ledger, ciphertexts)
    views = _views(system, claimed, sealed)
    split = _split(system)
    attacks = _attacks(config)
    steps.expect(_work(system, views, attacks, split) + feature_work(system))
    attempts, guesses = _attack(views, attacks, config, answers, split, steps)
    others = [attack for attack in chosen_attacks(config) if attack.target != "labels"]
    cells = feature_cells(system, [attack for attack in others if attack.target != "membership"], sealed, steps)
    steps.progress.stage("membership")
    membership = try_membership(system, [attack for attack in others if attack.target == "membership"], sealed)
    coins = _coin_findings(system, views, guesses, split, steps)
    measured = {finding.claim for finding in membership.findings}
    coins = [finding for finding in coins if not (finding.is_untested and finding.claim in measured)]
    context = replace(_context(config), claims=claims, steps=steps, attempts=attempts, progress=steps.progress)
    registered, missing = run_audits(system, context, config.audit, covered=_COVERED)
    wire = Wire()
    for message in system.messages:
        wire.send(message)
    return Audited(
        system=system,
        claims=claims,
        success_claims=success_claims,
        findings=(*coins, *membership.findings, *registered),
        not_tested=(
            *missing,
            *_not_tested(system, coins, attempts, trained=trained),
            *untested_features(system),
            *([] if trained else membership.not_tested),
        ),
        attempts=attempts,
        features=(*cells, *membership.cells),
        traffic=wire.traffic,
    )


def _views(system: RecordedSystem, claimed: Sequence[Adversary], sealed: Sealed) -> list[View]:
    """Views of the claims' adversaries (of "any device", the first few), one device, all devices, an eavesdropper."""
    devices = system.recording.head.devices
    usual = [Adversary.parse(text) for text in ("device(0)", "devices(all)", "eavesdropper")]
    single = [member for adversary in claimed for member in adversary.each(devices)[:DEVICES_TRIED]]
    adversaries, seen = dict.fromkeys((*single, *usual)), seen_records(system)
    return [replace(view_of(system, a, sealed), own=own_features(system, a, seen)) for a in adversaries]


def _work(system: RecordedSystem, views: Sequence[View], attacks: Sequence[LabelAttack], split: Split | None) -> int:
    """How many messages are read, those counted several times that take longer; for the progress bar."""
    noised = {r.kind for r in system.ledger.releases if not r.once and r.noise.bounds_size}
    work = NOISE_WORK * sum(m.kind in noised for m in system.messages)
    if split is not None:
        claimed = _claimed(system)
        work += _SCORE_WORK * sum(len(view.messages) for view in views if view.adversary in claimed)
    return work + sum(_attack_work(attack, view) for attack in attacks for view in views)


def _attack_work(attack: LabelAttack, view: View) -> int:
    return sum(view.counts[kind] for kind in attack.needs)


def _attacks(config: LedgerConfig) -> list[LabelAttack]:
    """The attacks on labels that are tried."""
    attacks: list[LabelAttack] = [attack for attack in chosen_attacks(config) if attack.target == "labels"]
    attacks.sort(key=lambda attack: attack.auxiliary)  # of two that succeed alike, the one that is told nothing counts
    return attacks


def _attack(
    views: Sequence[View],
    attacks: Sequence[LabelAttack],
    config: LedgerConfig,
    answers: Answers | None,
    split: Split | None,
    steps: Steps,
) -> tuple[tuple[Attempt, ...], _Guesses]:
    """Every attack through every view, and what it guessed."""
    attempts, guesses, computable = [], _Guesses(), _computable(views)
    for attack in attacks:
        for view in computable:
            attempt = _attempt(attack, view, config, answers, split, steps)
            steps.progress.advance(_attack_work(attack, view))
            attempts.append(attempt)
            if attempt.guess is not None:
                guesses.setdefault(view.adversary, {})[attack.name] = attempt.guess
    return tuple(attempts), guesses


def _computable(views: Sequence[View]) -> list[View]:
    """The views with their messages as attacks compute with them; messages that views share are made once."""
    made: dict[int, Message] = {}
    for view in views:
        for message in view.messages:
            if id(message) not in made and not message.is_ciphertext:
                made[id(message)] = readable(message, view.classes)
    return [replace(view, messages=tuple(made[id(m)] for m in view.messages if id(m) in made)) for view in views]


def _attempt(
    attack: LabelAttack,
    view: View,
    config: LedgerConfig,
    answers: Answers | None,
    split: Split | None,
    steps: Steps,
) -> Attempt:
    if answers is not None and answers.targets is not None and isinstance(attack, TargetAttack):
        targets = Targets(truth=answers.targets, seed=config.seed, confidence=config.confidence, tolerant=True)
        return targets.attempt(attack, view)
    if answers is None or answers.targets is not None:
        unscored = "needs recorded labels to be scored by: call wire.labels(...) while recording"
        regression = "needs labels that are classes; the recorded ones are the targets of a regression"
        refusal = (attack.refusal(view) or unscored) if answers is None else regression
        return Attempt.of(attack, view.adversary, refusal=refusal)
    labels = Labels(
        keep=kept_by(steps),
        truth=answers.labels,
        classes=view.classes,
        seed=config.seed,
        confidence=config.confidence,
        withheld=_withheld(answers.canaries, split),
        honest_only="needs a device that scales its steps up; the recorded ones are taken to be honest",
        tolerant=True,
    )
    attempt = labels.attempt(attack, view)
    if attempt.refusal is None or view.own or not view.adversary.is_device or "own-model" not in attack.needs:
        return attempt
    return replace(attempt, refusal=f"{attempt.refusal} (features of {view.adversary} itself were not recorded)")


def _withheld(canaries: Canaries | None, split: Split | None) -> Sequence[int]:
    """The canaries whose label no attack is told."""
    if canaries is None:
        return ()
    told = set() if split is None else set(split.told.tolist())
    return [record for position, record in enumerate(canaries.records) if position not in told]


def _split(system: RecordedSystem) -> Split | None:
    """Which canaries are set aside and which are counted; None where there are none, or too few."""
    answers = system.answers
    if answers is None or answers.canaries is None:
        return None
    return Split.of(answers.canaries, answers.labels, seed=system.config.seed)


def _about_labels(system: RecordedSystem) -> list[Claim]:
    """The claims that canaries in labels can measure."""
    return [claim for claim in system.claims if claim.unit.implies(Unit.LABEL)]


def _claimed(system: RecordedSystem) -> frozenset[Adversary]:
    """The adversaries of these claims."""
    devices = system.schedule.devices
    return frozenset(adversary for claim in _about_labels(system) for adversary in claim.adversary.each(devices))


def _coin_findings(
    system: RecordedSystem, views: Sequence[View], guesses: _Guesses, split: Split | None, steps: Steps
) -> list[Finding]:
    """A test of each claim about labels by the canaries' coins; of every other claim, why nothing measured it."""
    answers, config, devices = system.answers, system.config, system.schedule.devices
    context = _context(config)
    canaries = None if answers is None else answers.canaries
    if answers is None or canaries is None or split is None:
        return [untested(OneRunAudit.name, claim, _no_coins(canaries)) for claim in system.claims]
    about_labels, claimed = _about_labels(system), _claimed(system)
    scores: dict[Adversary, Floats] = {}
    for view in views:
        if view.adversary in claimed:
            score = _learned(system, canaries, answers.labels, view, split, steps)
            scores |= {} if score is None else {view.adversary: score}
    findings = []
    for claim in system.claims:
        each = claim.adversary.each(devices) if claim in about_labels else ()
        own = {a: guesses[a] for a in each if a in guesses}
        coins = guess_coins(canaries, split, own, {a: scores[a] for a in each if a in scores})
        if coins is None:
            findings.append(untested(OneRunAudit.name, claim, _not_guessed(claim)))
        else:
            findings.append(coins.finding(claim, context))
    return findings


def _learned(
    system: RecordedSystem, canaries: Canaries, labels: Tensor, view: View, split: Split, steps: Steps
) -> Floats | None:
    """The learned score of each canary in a view, or None."""
    import torch

    def compute() -> dict[str, Tensor]:
        scores = learned_scores(canaries, labels, view, split, seed=system.config.seed)
        return {"scores": torch.empty(0) if scores is None else torch.from_numpy(scores)}

    name = f"score learned from canaries, {view.adversary}"
    scores = steps.result(name, TensorForm(), compute, work=_SCORE_WORK * len(view.messages))["scores"]
    return scores.numpy() if len(scores) else None


def _no_coins(canaries: Canaries | None) -> str:
    """Why there are no coins to guess."""
    if canaries is None:
        return "nothing measured it: no canaries were recorded"
    planted = len(canaries.records)
    return f"nothing measured it: {planted} canaries were recorded, and fewer than {LEAST_CANARIES} say nothing"


def _not_guessed(claim: Claim) -> str:
    """Why no coin was guessed about a claim, although there are canaries."""
    if not claim.unit.implies(Unit.LABEL):
        differs = f"the claim is about {claim.unit.description}, and the recorded canaries are in labels"
        members = ", and so do canaries of vflpriv.plant_members" if claim.unit is Unit.ADD_REMOVE else ""
        return f"nothing measured it: {differs}; `vflpriv audit --train` measures other units{members}"
    return f"nothing measured it: no message that {claim.adversary} sees says which records it is about"


_PLANT = (
    "labels, canaries = vflpriv.plant(labels, classes=…, canaries=200, seed=…) before training and "
    "wire.labels(labels, canaries=canaries) while recording measure claims about labels"
)


def _on_samples(attempts: Sequence[Attempt]) -> list[str]:
    """A line for each attack that was made on a sample of the records."""
    samples = {a.attack: a.success for a in attempts if a.success is not None and a.success.population is not None}
    return [
        f"{name} on all records: it was made on a sample of {s.guesses} of {s.population} records that were drawn at "
        "random, and its interval is that of the sample"
        for name, s in samples.items()
    ]


def _unmeasured(system: RecordedSystem, coins: Sequence[Finding]) -> list[str]:
    """What one training without trials leaves unmeasured; `coins` are of claims that no other canaries measure."""
    answers, untested_claims = system.answers, [finding for finding in coins if finding.is_untested]
    lines = [
        "trials in two worlds: they train the system again and again, and a transcript is of one training; "
        "`vflpriv audit --train`, vflpriv.testing.assert_training_epsilon or an engine of your own (entry point "
        "vflpriv.engines) adds them"
    ]
    if system.claims and not untested_claims:
        return lines
    if answers is None or answers.canaries is None or len(answers.canaries.records) < LEAST_CANARIES:
        missing = "no labels" if answers is None else "no canaries" if answers.canaries is None else "too few canaries"
        return [*lines, f"ε from below: {missing} were recorded; {_PLANT}"]
    return lines + [f"claim {f.claim} ({f.adversary}): {f.sentence}" for f in untested_claims]


def _not_tested(
    system: RecordedSystem, coins: Sequence[Finding], attempts: Sequence[Attempt], *, trained: bool
) -> tuple[str, ...]:
    config, recorded = system.config, system.recorded
    listed = {r.kind: r for r in config.release}
    lines = [
        "noise, sensitivities and state beyond what a transcript can contradict: the ledger is believed; "
        "vflpriv.testing has checks for mechanisms",
    ]
    lines += [*([] if trained else _unmeasured(system, coins)), *_on_samples(attempts)]
    lines += [
        f"{r.kind}: that only {', '.join(sorted(r.seen_by))} and the two ends of its link see it, as the ledger says"
        for r in config.release
        if r.seen_by is not None
    ]
    lines += [
        f"{r.kind}: that it tells nothing to those without its key: {r.assumption}, as the ledger says; it is "
        "ciphertext, which no attack reads and no test measures"
        for r in config.release
        if r.noise == "opaque"
    ]
    head = system.recording.head
    if head.sampled is not None:
        lines.append(
            f"rows of {head.records - head.sampled} of {head.records} records: {head.sampled} were drawn at random and "
            "kept; attacks and tests are made on these, while budgets count the participations of all"
        )
    if head.precision == "half":
        lines.append(
            "digits beyond 16 bits: values were rounded when they were recorded, and tests of noise allow for it"
        )
    if not head.finished:
        lines.append(f"rounds after {system.recording.rounds}: the recording was cut off")
    if recorded.note:
        lines.append(recorded.note)
    lines += [
        f"{kind}: recorded, but not in the ledger; counted as an exact release of everything"
        for kind in recorded.kinds
        if kind not in listed and kind not in config.public
    ]
    lines += [f"{kind}: in the ledger, but never recorded" for kind in listed if kind not in recorded.kinds]
    return tuple(lines)
