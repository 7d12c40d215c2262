"""What verdicts rest on, in plain words: what was checked, what was taken on trust, and what may still go wrong."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from vflpriv.common.formatting import clean, count, epsilon, percent
from vflpriv.core.claims import Verdict
from vflpriv.render.shared import best_attack
from vflpriv.report.audit import ClaimRow, Report, SuccessClaimRow, SystemRow
from vflpriv.report.rows import USEFUL

__all__ = ["checked", "number_of", "observer", "risks", "strongest", "trusted", "what_of"]

_OBSERVERS = {
    "device": "any one device",
    "devices(all)": "all devices together",
    "eavesdropper": "an eavesdropper",
    "model": "whoever has the trained model",
    "outsider": "an outsider without the batches",
    "server": "the server",
}
_UNITS = {
    "label": "one record's label",
    "record": "one record",
    "features": "one record's features at a device",
    "add-remove": "whether a record was used",
    "client-zero": "whether a device has data at all",
    "client": "one device's data",
}


def observer(adversary: str) -> str:
    """An adversary.

    >>> observer("devices(all)"), observer("device(2)")
    ('all devices together', 'device(2)')
    """
    return _OBSERVERS.get(adversary, clean(adversary))


def what_of(unit: str) -> str:
    """What is protected.

    >>> what_of("label")
    "one record's label"
    """
    return _UNITS.get(unit, clean(unit))


def number_of(number: int, noun: str) -> str:
    """
    >>> number_of(1, "claim"), number_of(2_000, "claim")
    ('1 claim', '2,000 claims')
    """
    return f"{count(number)} {noun}{'' if number == 1 else 's'}"


def checked(report: Report) -> list[str]:
    """What was looked at, and how much of it held."""
    claims = [claim for system in report.systems for claim in system.claims]
    return [*_tested(claims), *_premises(report), *_attacked(report), _accounted(report.systems)]


def _tested(claims: Sequence[ClaimRow]) -> Iterator[str]:
    tools = dict.fromkeys(row.tool for claim in claims for row in claim.measurements)
    for tool in tools:
        tried = [rows for claim in claims if (rows := [row for row in claim.measurements if row.tool == tool])]
        refuted = sum(any(row.refutes for row in rows) for rows in tried)
        most = max((row.trials or 0 for rows in tried for row in rows if row.errors is not None), default=0)
        trials = f", up to 2 × {count(most)} each" if most else ""
        yield f"{number_of(len(tried), 'claim')} tested by {clean(tool)}{trials}: {refuted or 'none'} refuted"


def _premises(report: Report) -> Iterator[str]:
    checks = [check for system in report.systems for check in system.checks]
    for audit in dict.fromkeys(check.audit for check in checks):
        verdicts = Counter(check.verdict for check in checks if check.audit == audit)
        outcomes = [f"{number} {verdict}" for verdict, number in verdicts.items()]
        yield f"{clean(audit)}, {number_of(sum(verdicts.values()), 'check')}: {', '.join(outcomes)}"


def _attacked(report: Report) -> Iterator[str]:
    successes = [row.success for system in report.systems for row in system.attacks]
    successes += [cell.success for cell in report.features]
    if successes:
        applied = sum(success is not None for success in successes)
        yield f"{applied} of {len(successes)} pairs of an attack and a view apply, and were run"


def _accounted(systems: Iterable[SystemRow]) -> str:
    budgets = [row for system in systems for row in system.budgets if row.not_applicable is None]
    finite = sum(math.isfinite(row.epsilon_upper) for row in budgets)
    return f"{number_of(len(budgets), 'budget')} accounted from the ledger, {finite or 'none'} of them finite"


def trusted(report: Report) -> list[str]:
    """What nobody checked and the verdicts take for granted, with the assumptions of the accounted budgets."""
    lines = ["every party follows the protocol, and learns what it can from what it sees"]
    if report.ledger_trusted:
        lines.append("the ledger, on the request of whoever ran this audit")
    unmeasured = [claim for claim in report.claims if claim.verdict is Verdict.UNMEASURED]
    if unmeasured:
        lines.append(f"the ledger, for {number_of(len(unmeasured), 'claim')} that nothing measured")
    noised = [s for s in report.systems if s.noise_source and any(release.protects for release in s.releases)]
    lines += [f"the noise: {clean(system.noise_source)}" for system in noised]
    budgets = [c.accounted for s in report.systems for c in s.claims if c.accounted.not_applicable is None]
    lines += [f"if {clean(line)}" for budget in budgets for line in budget.assumed]
    lines += [_general(line) for budget in budgets for line in budget.assumptions if "unprotected:" not in line]
    return list(dict.fromkeys(lines))


def _general(assumption: str) -> str:
    """An assumption without the adversary that it was printed for, so that adversaries share a line."""
    parts = clean(assumption).split()
    named = ("device(", "devices(", "eavesdropper")
    return " ".join("the adversary" if word.startswith(named) else word for word in parts)


def risks(report: Report) -> list[str]:
    """What may still go wrong, whatever is changed."""
    failed = sum(claim.verdict in (Verdict.VIOLATED, Verdict.UNSUPPORTED) for claim in report.claims)
    lines = []
    if failed:
        claims = f"{number_of(failed, 'claim')} {'protects' if failed == 1 else 'protect'} nobody"
        lines.append(f"{claims} until the changes above are made and audited again")
    lines += [_kept(claim) for claim in report.claims if claim.verdict is Verdict.CONSISTENT]
    lines += [line for system in report.systems if (line := _unbounded(system))]
    lines += [f"{clean(s.key)}: {reached}" for s in report.systems if (reached := strongest(s))]
    return lines


def _kept(claim: ClaimRow | SuccessClaimRow) -> str:
    """What a claim that was not refuted still allows, and how likely trials would have missed more."""
    if isinstance(claim, SuccessClaimRow):
        return f"{clean(claim.key)}: other attacks than {clean(claim.attack)} may be right more often"
    best, missed = claim.deciding, ""
    if best is not None and best.power is not None:
        excess = f"{best.power_excess:g} × the claimed {best.measure}"
        missed = f"; a system with {excess} passes so many trials with a chance of {percent(1 - best.power)} or more"
    return f"{clean(claim.key)}: not refuted is not proven, and ε = {epsilon(claim.epsilon)} is allowed to leak{missed}"


def _unbounded(system: SystemRow) -> str:
    """Who is not bounded usefully in what the claims are about, and no claim names; empty where there are no claims."""
    claimed = {_kind(claim.adversary) for claim in system.claims}
    for unit in dict.fromkeys(claim.unit for claim in system.claims):
        views = dict.fromkeys(
            "device" if _kind(row.adversary) == "device" else row.adversary
            for row in system.budgets
            if row.unit == unit and row.not_applicable is None and not row.epsilon_upper <= USEFUL
        )
        others = [observer(view) for view in views if _kind(view) not in claimed]
        if others:
            learned = f"what {_joined(others)} can learn of {what_of(unit)}"
            return f"{clean(system.key)}: nothing is claimed about, and nothing useful bounds, {learned}"
    return ""


def _kind(adversary: str) -> str:
    return adversary.partition("(")[0]


def _joined(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def strongest(system: SystemRow) -> str:
    """What the attack that gains most reaches; empty where none gains anything."""
    attack = best_attack(system)
    if attack is None or attack.leakage <= 0:
        return ""
    alone = max(attack.chance or 0.0, attack.blind or 0.0)
    reached = f"{clean(attack.attack)} ({clean(attack.adversary)}) gets {percent(attack.success)}"
    return f"{reached} of the {clean(attack.target)} right, {percent(alone)} without the protocol"
