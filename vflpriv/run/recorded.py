"""The audit of a recorded training: attacks on its views, tests of its claims, and checks of its ledger."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from vflpriv.audits.ciphertexts import Sealed, recorded_ciphertexts
from vflpriv.audits.learned.recorded import Split
from vflpriv.audits.scoring.attempts import Attempt
from vflpriv.audits.scoring.labels import Labels, Targets
from vflpriv.common.files import SIGNING_KEY
from vflpriv.common.registry import available, find
from vflpriv.common.store import Steps
from vflpriv.common.tasks import Executor, InProcess
from vflpriv.core.attack import LabelAttack, TargetAttack, made_for
from vflpriv.core.audit import AuditContext
from vflpriv.core.canaries import Canaries
from vflpriv.core.views import DEVICES_TRIED, Adversary, View
from vflpriv.core.wire import Message, Wire
from vflpriv.errors import InputError
from vflpriv.recording.files.checks import readable
from vflpriv.recording.ledger_file import LedgerConfig
from vflpriv.recording.system import RecordedSystem, read_recording
from vflpriv.recording.transcripts import Answers, Recording
from vflpriv.run.build import Audited
from vflpriv.run.kept import kept_by
from vflpriv.run.recordings.features import feature_cells, feature_work, untested_features
from vflpriv.run.recordings.members import try_membership
from vflpriv.run.recordings.views import own_features, seen_records, view_of
from vflpriv.run.registered import audit_work, check_tables, run_audits

__all__ = ["audit_recorded", "audit_recording", "chosen_attacks", "label_attempts"]

_FEW_CLASSES, _SAMPLE, _MOST_CELLS = 100, 4000, 40_000_000
"""Classes that are never too many, records of a sample that attacks are made on, pairs of both that they may weigh."""
_CUT_OFF = "the recording was cut off, and they are in no budget"


def audit_recording(
    folder: Path, config: LedgerConfig, *, steps: Steps | None = None, executor: Executor | None = None
) -> Audited:
    """Read a transcript, attack and audit it; `steps` keeps what is finished, and shows the progress."""
    check_tables(config.audit, "ledger.audit")
    return audit_recorded(read_recording(folder, config), steps=steps or Steps(), executor=executor)


def audit_recorded(
    system: RecordedSystem, *, steps: Steps, store: Path | None = None, executor: Executor | None = None
) -> Audited:
    """Attack every view of a recorded training, and run every audit on it; `store` and `executor` are for trials."""
    config, claims, success_claims = system.config, system.claims, system.success_claims
    sealed = Sealed(system.ledger, recorded_ciphertexts(system.ledger, system.messages, claims))
    claimed = [*(c.adversary for c in claims), *(c.adversary for c in success_claims)]
    views = _views(system, claimed, sealed)
    attacks, others = _attacks(config), [attack for attack in chosen_attacks(config) if attack.target != "labels"]
    context = AuditContext(
        claims=claims,
        confidence=config.confidence,
        verdict_confidence=config.verdict_confidence,
        seed=config.seed,
        store=store,
        executor=executor or InProcess(),
        steps=steps,
        progress=steps.progress,
        views=views,
    )
    reading = sum(_attack_work(attack, view) for attack in attacks for view in views)
    steps.expect(reading + feature_work(system) + audit_work(system, context, config.audit))
    attempts = _attack(views, attacks, config, system.answers, _split(system), steps)
    cells = feature_cells(system, [attack for attack in others if attack.target != "membership"], sealed, steps)
    steps.progress.stage("membership")
    membership = try_membership(system, [attack for attack in others if attack.target == "membership"], sealed)
    context = replace(context, asked_views=membership.views, attempts=(*attempts, *membership.attempts))
    findings, untested = run_audits(system, context, config.audit)
    wire = Wire()
    for message in system.messages:
        wire.send(message)
    return Audited(
        system=system,
        claims=claims,
        success_claims=success_claims,
        findings=tuple(findings),
        not_tested=(
            *untested,
            *_not_tested(system, attempts),
            *untested_features(system),
            *membership.not_tested,
        ),
        attempts=attempts,
        features=(*cells, *membership.cells),
        traffic=wire.traffic,
        assumed=_unrecorded(system),
    )


def label_attempts(system: RecordedSystem, adversaries: Sequence[Adversary]) -> tuple[Attempt, ...]:
    """The attacks on labels, through the views of some adversaries."""
    sealed = Sealed(system.ledger, recorded_ciphertexts(system.ledger, system.messages, ()))
    views = [view_of(system, adversary, sealed) for adversary in adversaries]
    return _attack(views, _attacks(system.config), system.config, system.answers, _split(system), Steps())


def _unrecorded(system: RecordedSystem) -> tuple[str, ...]:
    """What budgets take for granted of rounds that the transcript lacks.

    Numbers that leave out the same number of rounds every time are a way to count; empty Poisson batches send nothing.
    """
    cut = () if system.recording.head.finished else (f"that there were no rounds after {system.rounds}: {_CUT_OFF}",)
    steps = np.diff(np.unique([message.round for message in system.messages]))
    count, batches = int((steps // steps.min() - 1).sum()) if len(steps) else 0, system.config.batches
    if count <= batches.unrecorded_rounds or batches.batching == "poisson":
        return cut
    lacking = f"that nothing was sent in {count} rounds between others, which are not recorded"
    return (*cut, f"{lacking}: batches.unrecorded_rounds counts them")


def _views(system: RecordedSystem, claimed: Sequence[Adversary], sealed: Sealed) -> list[View]:
    """Views of the claims' adversaries (of "any device", the first few), one device, all devices, an eavesdropper."""
    devices = system.recording.head.devices
    usual = [Adversary.parse(text) for text in ("device(0)", "devices(all)", "eavesdropper")]
    single = [member for adversary in claimed for member in adversary.each(devices)[:DEVICES_TRIED]]
    adversaries, seen = dict.fromkeys((*single, *usual)), seen_records(system)
    return [replace(view_of(system, a, sealed), own=own_features(system, a, seen)) for a in adversaries]


def _attack_work(attack: LabelAttack, view: View) -> int:
    return sum(view.counts[kind] for kind in attack.needs)


def chosen_attacks(config: LedgerConfig) -> list[Any]:
    """The attacks that the ledger names; if it names none, all but those that take long, and those of claims.

    What defends a recorded training is not known: attacks that are made against defences are tried if they are named. A
    claim about an attack is about its share of right guesses, which only attacks on labels have.
    """
    asked = {name: find("attack", name) for name in config.attack_names}
    for claim in config.attack_claim:
        if asked[claim.attack].target != "labels":
            expected = "an attack on labels: others are measured by R² or AUC, not by a rate of right guesses"
            raise InputError("ledger.attack_claim.attack", claim.attack, expected)
    # A recording has no published weights beside it, from which texts are read, and cannot be trained anew.
    others = ("tokens", "property", "integrity")
    light = {name: kind for name, kind in available("attack").items() if not kind.heavy and kind.target not in others}
    tried = {name: kind for name, kind in light.items() if not getattr(kind, "forges", False)}
    usual = {name: kind for name, kind in tried.items() if made_for(kind, {})}
    return [attack() for attack in (asked if config.attacks is not None else usual | asked).values()]


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
) -> tuple[Attempt, ...]:
    """Every attack through every view."""
    attempts, computable = [], _computable(views)
    for attack in attacks:
        for view in computable:
            attempts.append(_attempt(attack, view, config, answers, split, steps))
            steps.progress.advance(_attack_work(attack, view))
    return tuple(attempts)


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
    too_many = _too_many_classes(view.classes, len(answers.labels))
    if too_many is not None:
        return Attempt.of(attack, view.adversary, refusal=attack.refusal(view) or too_many)
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


def _too_many_classes(classes: int, records: int) -> str | None:
    """Why attacks that weigh each class for each record would not end, or None.

    The number of classes is what the head of a transcript says, whatever was recorded.
    """
    if classes > max(records, _FEW_CLASSES):
        return f"{classes} classes are more than the {records} records: no attack has a record of each"
    rows = min(records, _SAMPLE)
    if classes * rows > _MOST_CELLS:
        return f"{classes} classes for each of {rows} records are more than the {_MOST_CELLS} that attacks may weigh"
    return None


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


def _on_samples(attempts: Sequence[Attempt]) -> list[str]:
    """A line for each attack that was made on a sample of the records."""
    samples = {a.attack: a.success for a in attempts if a.success is not None and a.success.population is not None}
    return [
        f"{name} on all records: it was made on a sample of {s.guesses} of {s.population} records that were drawn at "
        "random, and its interval is that of the sample"
        for name, s in samples.items()
    ]


def _evidence_lines(recording: Recording) -> list[str]:
    """What the transcript itself leaves open."""
    lines = []
    if not recording.protected:
        lines.append(
            f"whether the transcript is what was recorded: it is unprotected ({recording.head.schema_version} has no "
            "hashes), so that messages can be changed or taken out of it; record it again"
        )
    elif not recording.signed:
        lines.append(
            "whether somebody wrote the transcript anew: its hashes find damage and single changes, but it is not "
            f"signed, or {SIGNING_KEY} is not set here"
        )
    if not recording.head.finished:
        lines.append(f"rounds after {recording.rounds}: {_CUT_OFF}")
    if recording.silent_rounds:
        lines.append(f"{recording.silent_rounds} of {recording.rounds} rounds: no message of them was recorded")
    return lines


def _not_tested(system: RecordedSystem, attempts: Sequence[Attempt]) -> tuple[str, ...]:
    config, recorded = system.config, system.recorded
    listed = {r.kind: r for r in config.release}
    lines = [
        "noise, sensitivities and state beyond what a transcript can contradict: the ledger is believed; "
        "vflpriv.testing has checks for mechanisms",
    ]
    lines += _on_samples(attempts)
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
    lines += _evidence_lines(system.recording)
    lines += system.recording.head.remarks
    if recorded.note:
        lines.append(recorded.note)
    lines += [
        f"{kind}: recorded, but not in the ledger; counted as an exact release of everything"
        for kind in recorded.kinds
        if kind not in listed and kind not in config.public
    ]
    lines += [f"{kind}: in the ledger, but never recorded" for kind in listed if kind not in recorded.kinds]
    return tuple(lines)
