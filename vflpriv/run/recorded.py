"""The audit of a recorded training: attacks on its views, tests of its claims, and checks of its ledger."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import Path

from vflpriv.audits.noise import recorded_noises
from vflpriv.audits.one_run import guess_coins
from vflpriv.audits.scoring.labels import Attempt, LabelAttempts
from vflpriv.audits.verdict import beyond_p_value
from vflpriv.audits.wire import recorded_tensors
from vflpriv.common.registry import available, find
from vflpriv.core.attack import LabelAttack, LabelGuess
from vflpriv.core.audit import Finding
from vflpriv.core.claims import Verdict
from vflpriv.core.units import Unit
from vflpriv.core.views import Adversary, View
from vflpriv.core.wire import Wire
from vflpriv.errors import InputError
from vflpriv.recording.ledger_file import LedgerConfig
from vflpriv.recording.system import RecordedSystem, read_recording
from vflpriv.recording.transcripts import Answers, Recording
from vflpriv.run.build import Audited

__all__ = ["audit_recording", "ledger_findings"]

_DEVICES_TRIED = 4
_Guesses = dict[Adversary, dict[str, LabelGuess]]


def audit_recording(folder: Path, config: LedgerConfig) -> Audited:
    """Attack every view of a recorded training, test its claims, and check its ledger against the transcript."""
    system = read_recording(folder, config)
    claims, success_claims, answers = system.claims, system.success_claims, system.answers
    views = _views(system.recording, [*(c.adversary for c in claims), *(c.adversary for c in success_claims)])
    attempts, guesses = _attack(views, config, answers)
    noises = recorded_noises(system.ledger, system.messages, shared=system.shared_kinds, confidence=config.confidence)
    findings = [
        *_coin_findings(system, guesses),
        *ledger_findings(system, attempts),
        *recorded_tensors(system.ledger, system.messages, [r.kind for r in config.release]),
        *(noise.finding for noise in noises),
    ]
    wire = Wire()
    for message in system.messages:
        wire.send(message)
    return Audited(
        system=system,
        claims=claims,
        success_claims=success_claims,
        findings=tuple(findings),
        not_tested=_not_tested(system),
        attempts=attempts,
        traffic=wire.traffic,
    )


def _views(recording: Recording, claimed: Sequence[Adversary]) -> list[View]:
    """Views of the claims' adversaries (of "any device", the first few), one device, all devices, an eavesdropper."""
    head = recording.head
    usual = [Adversary.parse(text) for text in ("device(0)", "devices(all)", "eavesdropper")]
    single = [member for adversary in claimed for member in adversary.each(head.devices)[:_DEVICES_TRIED]]
    whole, devices, classes = recording.transcript, head.devices, head.classes
    return [View.of(whole, a, devices=devices, classes=classes) for a in dict.fromkeys((*single, *usual))]


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


def _coin_findings(system: RecordedSystem, guesses: _Guesses) -> list[Finding]:
    """A test of each claim about labels by the canaries' coins, where there are any."""
    answers = system.answers
    if answers is None or answers.canaries is None:
        return []
    findings = []
    for claim in system.claims:
        views = {a: guesses[a] for a in claim.adversary.each(system.schedule.devices) if a in guesses}
        coins = guess_coins(answers.canaries, views) if views and claim.unit.implies(Unit.LABEL) else None
        if coins is not None:
            findings.append(coins.finding(claim, confidence=system.config.confidence))
    return findings


def ledger_findings(system: RecordedSystem, attempts: Sequence[Attempt]) -> list[Finding]:
    """Whether the ledger lists every recorded kind that is not public; one finding for each kind.

    A kind that is missing breaks the ledger if an attack learns from it, and leaves it unsupported otherwise. It is
    accounted for as an exact release of everything, so no claim rests on it and it counts by itself.
    """
    config = system.config
    counts = Counter(m.kind for m in system.messages if m.kind not in config.public)
    listed = {r.kind for r in config.release}
    findings = []
    for kind, count in sorted(counts.items()):
        verdict, sentence = Verdict.CONSISTENT, f"all {count} recorded messages are in the ledger"
        if kind not in listed:
            reader = _reader(kind, counts, attempts, 1 - config.confidence)
            verdict, sentence = _missing(count, reader)
        findings.append(
            Finding(
                audit="ledger",
                subject=kind,
                verdict=verdict,
                sentence=sentence,
                figure=count,
                measure="recorded messages",
                claim_units=frozenset(),
                decides_alone=True,
            )
        )
    return findings


def _missing(count: int, reader: Attempt | None) -> tuple[Verdict, str]:
    """The verdict on a kind that is not in the ledger, and why."""
    missing = f"{count} recorded messages are not in the ledger"
    if reader is None:
        return Verdict.UNSUPPORTED, f"{missing}: counted as exact, of everything"
    return Verdict.VIOLATED, f"{missing}, and {reader.attack} learns {reader.target} from them"


def _reader(kind: str, kinds: Collection[str], attempts: Sequence[Attempt], alpha: float) -> Attempt | None:
    """The first attack that reads this kind alone and is right beyond chance, Bonferroni over all attempts."""
    tried = [(a, a.success) for a in attempts if a.success is not None]
    for attempt, success in tried:
        alone = set(kinds) & find("attack", attempt.attack).needs == {kind}
        p = beyond_p_value(success, max(success.chance, success.blind or 0.0))
        if alone and p * len(tried) <= alpha:
            return attempt
    return None


def _not_tested(system: RecordedSystem) -> tuple[str, ...]:
    config, answers, recorded = system.config, system.answers, system.recorded
    listed = {r.kind: r for r in config.release}
    lines = [
        "noise, sensitivities and state are taken at the ledger's word; vflpriv.testing has checks for mechanisms",
        "trials in two worlds: they train the system again and again, and a transcript is of one training; "
        "an engine of your own (entry point vflpriv.engines) or vflpriv.testing.assert_training_epsilon adds them",
    ]
    if answers is None or answers.canaries is None:
        lines.append("ε from below: no canaries were recorded; vflpriv.plant(...) and wire.labels(...) add them")
    if not system.recording.head.finished:
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
