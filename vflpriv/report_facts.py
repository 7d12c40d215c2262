"""The report's facts about one training: attacks, sensitivities, utility, staleness, traffic."""

from __future__ import annotations

import shlex
from pathlib import Path

from vflpriv.audits._bounds import interval
from vflpriv.audits.sensitivity import Finding
from vflpriv.audits.server_state import StateFinding
from vflpriv.report import AttackRow, CheckRow, SensitivityRow, Staleness, Traffic, Utility
from vflpriv.run import Attempt, Audited
from vflpriv.schedules import Schedule
from vflpriv.units import Unit
from vflpriv.verdicts import Word

__all__ = ["attack_row", "check_rows", "sensitivity_row", "staleness_row", "traffic_row", "utility_row"]


def sensitivity_row(finding: Finding, saved: Path | None = None) -> SensitivityRow:
    return SensitivityRow(
        mechanism=finding.mechanism,
        unit=finding.unit.value,
        declared=finding.declared,
        observed=finding.observed,
        searched=finding.searched,
        witness=finding.witness,
        holds=finding.holds,
        replay="" if saved is None else f"vflpriv replay {shlex.quote(f'{saved.parent.name}/{saved.name}')}",
    )


def check_rows(audited: Audited, reproduce: str) -> list[CheckRow]:
    """The noise that left, and what state carries into rounds that a record is not in."""
    noise = [
        CheckRow(
            audit="noise",
            subject=f.kind,
            unit="",
            figure=f.ratio,
            verdict=Word.CONSISTENT if f.holds else Word.VIOLATED,
            reason=f.sentence,
            reproduce=reproduce,
        )
        for f in audited.noise
    ]
    emptied = [
        CheckRow(
            audit="server-state",
            subject=f.kind,
            unit=Unit.CLIENT_ZERO.value,
            figure=f.largest,
            verdict=Word.CONSISTENT if f.holds else Word.VIOLATED,
            reason=f.sentence,
            reproduce=reproduce,
        )
        for f in audited.emptied
    ]
    return [*noise, *(_state_row(f, reproduce) for f in audited.state), *emptied]


def _state_row(f: StateFinding, reproduce: str) -> CheckRow:
    """Something carried over is against the ledger, or against the proofs that leave it out of account."""
    word = Word.CONSISTENT if not f.moved else Word.UNSUPPORTED if f.holds else Word.VIOLATED
    if not f.outside:
        word = Word.NOT_APPLICABLE
    known = f"; the ledger says so: {f.carrier}" if f.carrier and f.moved else ""
    return CheckRow(
        audit="server-state",
        subject=f.kind,
        unit=f.unit.value,
        figure=f.mu,
        verdict=word,
        reason=f.sentence + known,
        reproduce=reproduce,
    )


def attack_row(attempt: Attempt) -> AttackRow:
    found = attempt.success
    return AttackRow(
        attack=attempt.attack,
        adversary=str(attempt.adversary),
        target=attempt.target,
        success=found.rate if found else None,
        low=found.low if found else None,
        high=found.high if found else None,
        chance=found.chance if found else None,
        blind=found.blind if found else None,
        guesses=found.guesses if found else 0,
        not_applicable=attempt.refusal,
    )


def utility_row(audited: Audited, confidence: float) -> Utility | None:
    if audited.before is None or audited.after is None:
        return None
    tests = len(audited.system.data.test_labels)
    accuracy = float(audited.after.accuracy[0])
    low, high = interval(round(accuracy * tests), tests, confidence)
    return Utility(
        tests=tests,
        accuracy=accuracy,
        accuracy_low=low,
        accuracy_high=high,
        loss_before=float(audited.before.loss[0]),
        loss_after=float(audited.after.loss[0]),
    )


def staleness_row(schedule: Schedule) -> Staleness | None:
    """From the schedule alone; None where every device takes part in every round."""
    ages = schedule.staleness()
    if not ages:
        return None
    sent = sorted(age for age in ages.elements() if age >= 0)
    return Staleness(
        reads=ages.total(),
        never_sent=ages[-1] / ages.total(),
        median=sent[len(sent) // 2] if sent else 0,
        largest=sent[-1] if sent else 0,
    )


def traffic_row(audited: Audited) -> Traffic | None:
    if audited.traffic is None:
        return None
    t = audited.traffic
    return Traffic(up=t.up.total(), down=t.down.total(), ids=t.id_bytes, messages=dict(sorted(t.messages.items())))
