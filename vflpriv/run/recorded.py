"""One audit of a recorded training: account from the ledger file, attack the transcript's views, test the claims."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from vflpriv.audits.noise import RecordedNoise, recorded_noises
from vflpriv.audits.one_run import OneRun, guess_coins
from vflpriv.audits.scoring.labels import Attempt, LabelAttempts
from vflpriv.common.registry import available, find
from vflpriv.config.models import AuditConfig, SystemConfig
from vflpriv.core.attack import LabelAttack, LabelGuess
from vflpriv.core.claims import Claim
from vflpriv.core.units import Unit
from vflpriv.core.views import Adversary, View
from vflpriv.core.wire import Wire
from vflpriv.errors import InputError
from vflpriv.recording.ledger_file import LedgerConfig
from vflpriv.recording.schedule import RecordedSchedule
from vflpriv.recording.system import read_recording
from vflpriv.recording.transcripts import Answers, Recording
from vflpriv.run.results import Audited

__all__ = ["Recorded", "audit_recording"]

_DEVICES_TRIED = 4
_Guesses = dict[Adversary, dict[str, LabelGuess]]


@dataclass(frozen=True, eq=False, kw_only=True)
class Recorded:
    """What was found about a recorded training, and in what."""

    audited: Audited
    recording: Recording
    noises: tuple[RecordedNoise, ...]


def audit_recording(folder: Path, config: LedgerConfig) -> Recorded:
    """Everything found about a recorded training."""
    found = read_recording(folder, config)
    recording, answers, system, recorded = found.recording, found.answers, found.system, found.schedule
    head, messages = recording.head, recording.transcript.messages
    noises = tuple(recorded_noises(system.ledger, messages, shared=found.shared, confidence=config.confidence))
    claims = tuple(system.engine.claims(system.settings, system.schedule))
    about_attacks = tuple(c.claim(head.classes) for c in config.attack_claim)
    views = _views(recording, [*(c.adversary for c in claims), *(c.adversary for c in about_attacks)])
    attempts, guesses = _attack(views, config, answers)
    wire = Wire()
    for message in messages:
        wire.send(message)
    audited = Audited(
        system=system,
        config=SystemConfig(
            key=config.key, title=config.title or head.name, engine={"name": "recorded"}, audit=AuditConfig(trials=0)
        ),
        claims=claims,
        success_claims=about_attacks,
        one_run=_measure(claims, guesses, answers, head.devices),
        attempts=attempts,
        traffic=wire.traffic,
        skipped=_not_tested(recording, config, answers, recorded),
        broken=tuple(noise.sentence for noise in noises if not noise.holds),
    )
    return Recorded(audited=audited, recording=recording, noises=noises)


def _views(recording: Recording, asked: Sequence[Adversary]) -> list[View]:
    """Those of claims (of "any device", the first few), one device, all of them, and an eavesdropper."""
    head = recording.head
    usual = [Adversary.parse(text) for text in ("device(0)", "devices(all)", "eavesdropper")]
    each = [one for a in asked for one in a.each(head.devices)[:_DEVICES_TRIED]]
    whole, devices, classes = recording.transcript, head.devices, head.classes
    return [View.of(whole, a, devices=devices, classes=classes) for a in dict.fromkeys((*each, *usual))]


def _attack(
    views: Sequence[View], config: LedgerConfig, answers: Answers | None
) -> tuple[tuple[Attempt, ...], _Guesses]:
    """Every attack through every view, and what it guessed."""
    asked = {name: find("attack", name) for name in config.attack_names}
    for name, attack in asked.items():
        if attack.target != "labels":
            raise InputError("ledger.attacks", name, "attacks on labels: a transcript has no features to score by")
    usual = {n: a for n, a in available("attack").items() if a.target == "labels" and not a.heavy}
    attacks: list[LabelAttack] = [a() for a in (asked if config.attacks is not None else usual | asked).values()]
    attempts, guesses = [], _Guesses()
    for attack in attacks:
        for view in views:
            attempt = _attempt(attack, view, config, answers)
            attempts.append(attempt)
            if attempt.guess is not None:
                guesses.setdefault(view.adversary, {})[attack.name] = attempt.guess
    return tuple(attempts), guesses


def _attempt(attack: LabelAttack, view: View, config: LedgerConfig, answers: Answers | None) -> Attempt:
    if answers is None:
        unscored = "needs recorded labels to be scored by: call wire.labels(...) while recording"
        refusal = attack.refusal(view) or unscored
        return Attempt(attack=attack.name, target=attack.target, adversary=view.adversary, refusal=refusal)
    attempts = LabelAttempts(
        truth=answers.labels,
        classes=view.classes,
        seed=config.seed,
        confidence=config.confidence,
        withheld=() if answers.canaries is None else answers.canaries.records,
        honest_only="needs a device that scales its steps up; the recorded ones are taken to be honest",
        tolerant=True,
    )
    return attempts.attempt(attack, view)


def _measure(claims: Sequence[Claim], guesses: _Guesses, answers: Answers | None, devices: int) -> dict[str, OneRun]:
    """A test of each claim about labels by the canaries' coins, where there are any."""
    if answers is None or answers.canaries is None:
        return {}
    found = {}
    for claim in claims:
        views = {a: guesses[a] for a in claim.adversary.each(devices) if a in guesses}
        once = guess_coins(answers.canaries, views) if views and claim.unit.implies(Unit.LABEL) else None
        if once is not None:
            found[claim.key] = once
    return found


def _not_tested(
    recording: Recording, config: LedgerConfig, answers: Answers | None, recorded: RecordedSchedule
) -> tuple[str, ...]:
    listed = {r.kind: r for r in config.release}
    lines = [
        "noise, sensitivities and state are taken at the ledger's word; vflpriv.testing has checks for mechanisms",
        "trials in two worlds: they train the system again and again, and a transcript is of one training; "
        "an engine of your own (entry point vflpriv.engines) or vflpriv.testing.assert_training_epsilon adds them",
    ]
    if answers is None or answers.canaries is None:
        lines.append("ε from below: no canaries were recorded; vflpriv.plant(...) and wire.labels(...) add them")
    if not recording.head.finished:
        lines.append(f"rounds after {recording.rounds}: the recording was cut off")
    if recorded.note:
        lines.append(recorded.note)
    lines += [
        f"{kind}: recorded, but not in the ledger; counted as an exact release of everything"
        for kind in recorded.kinds
        if kind not in listed and kind not in config.public
    ]
    lines += [f"{kind}: in the ledger, but never recorded" for kind in listed if kind not in recorded.kinds]
    return tuple(lines)
