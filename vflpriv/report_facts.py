"""The report's facts about one training: attacks, sensitivities, utility, staleness, traffic."""

from __future__ import annotations

from vflpriv.audits._bounds import interval
from vflpriv.audits.sensitivity import Finding
from vflpriv.report import AttackRow, SensitivityRow, Staleness, Traffic, Utility
from vflpriv.run import Attempt, Audited
from vflpriv.schedules import Schedule

__all__ = ["attack_row", "sensitivity_row", "staleness_row", "traffic_row", "utility_row"]


def sensitivity_row(finding: Finding) -> SensitivityRow:
    return SensitivityRow(
        mechanism=finding.mechanism,
        unit=finding.unit.value,
        declared=finding.declared,
        observed=finding.observed,
        searched=finding.searched,
        witness=finding.witness,
        holds=finding.holds,
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
