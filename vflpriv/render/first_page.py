"""The page that a reviewer signs, as data: findings worst first with what to change, what was checked, what was not."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from vflpriv.common.formatting import clean, count, epsilon, percent
from vflpriv.core.claims import SEVERITY, Verdict
from vflpriv.render.comparable import cause, measured
from vflpriv.render.shared import best_attack, headline
from vflpriv.report.audit import CheckRow, ClaimRow, Report, SuccessClaimRow, SystemRow
from vflpriv.report.rows import USEFUL, ChangeRow

__all__ = ["FirstPage", "Group", "Line", "meaning", "observer"]

AnyClaim = ClaimRow | SuccessClaimRow
_PASSED = (Verdict.CONSISTENT, Verdict.NOT_APPLICABLE)
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
_MOST = 5
"""Lines of a list that the page shows; the rest is in the sections below it."""
_AGAIN = "Not computed in this report: audit again with this version."


def observer(adversary: str) -> str:
    """An adversary in plain words."""
    return _OBSERVERS.get(adversary, clean(adversary))


def meaning(claim: AnyClaim) -> str:
    """What the verdict on a claim means, in one plain sentence."""
    if isinstance(claim, SuccessClaimRow):
        return _success_meaning(claim)
    who, what = observer(claim.adversary), _UNITS.get(claim.unit, clean(claim.unit))
    if claim.verdict is Verdict.VIOLATED and cause(claim):
        premise = f"the {clean(claim.broken[0])}" if claim.broken else "a premise"
        return f"The claim rests on {premise}, which does not hold: nothing bounds what {who} can learn of {what}."
    if claim.verdict is Verdict.VIOLATED:
        return f"What {who} can see tells {what} apart more surely than claimed: {measured(claim).main} was measured."
    if claim.verdict is Verdict.UNSUPPORTED:
        return _unsupported(claim, who, what)
    if claim.verdict is Verdict.UNMEASURED:
        return "The number follows from the ledger; nothing measured whether what is sent is what the ledger says."
    if claim.verdict is Verdict.CONSISTENT:
        return "The accounted bound is within the claim, and nothing that was measured contradicts it."
    return f"The question does not arise: {clean(claim.reason)}."


def _unsupported(claim: ClaimRow, who: str, what: str) -> str:
    upper = claim.accounted.epsilon_upper
    shown = "No test showed more than the claim allows" if _tests(claim) else "Nothing was tested"
    if upper <= USEFUL:
        return f"{shown}, and what can be proven is ε ≤ {epsilon(upper)}, not {epsilon(claim.epsilon)}."
    return f"{shown}, and nothing useful bounds what {who} can learn of {what}."


def _success_meaning(claim: SuccessClaimRow) -> str:
    if claim.success is None:
        return f"Nobody measured how often {clean(claim.attack)} is right."
    reached = f"{clean(claim.attack)} is right in {percent(claim.success)} of its guesses"
    return f"{reached}; at most {percent(claim.rate)} is claimed."


def _tests(claim: ClaimRow) -> int:
    return len(claim.measurements) + (claim.one_run is not None)


@dataclass(frozen=True)
class Line:
    """One claim on the page."""

    claim: AnyClaim
    place: str
    """The id of its evidence on the HTML page."""
    system: SystemRow

    @property
    def meaning(self) -> str:
        return meaning(self.claim)


@dataclass(frozen=True)
class Group:
    """Claims of one system that the same changes mend, worst first; or a broken premise that no claim rests on."""

    system: SystemRow
    place: str
    verdict: Verdict
    lines: tuple[Line, ...]
    changes: tuple[str, ...]
    premise: str = ""

    @property
    def scope(self) -> str:
        """How many claims the changes are for, where there are several."""
        return f"for all {len(self.lines)}" if len(self.lines) > 1 else ""


class FirstPage:
    """Everything that the page says of a report."""

    def __init__(self, report: Report) -> None:
        self.report = report

    @cached_property
    def _places(self) -> list[tuple[SystemRow, str]]:
        return [(system, f"s{number}") for number, system in enumerate(self.report.systems, start=1)]

    def _lines(self, system: SystemRow, place: str) -> list[Line]:
        claims = [Line(c, f"{place}-c{n}", system) for n, c in enumerate(system.claims, start=1)]
        return claims + [Line(c, f"{place}-a{n}", system) for n, c in enumerate(system.success_claims, start=1)]

    @cached_property
    def findings(self) -> list[Group]:
        """The claims that did not pass and the broken premises beside them, worst first."""
        groups = [group for system, place in self._places for group in self._groups(system, place)]
        return sorted(groups, key=lambda group: SEVERITY.index(group.verdict))

    def _groups(self, system: SystemRow, place: str) -> Iterator[Group]:
        by_change: dict[str, list[Line]] = {}
        lines = [line for line in self._lines(system, place) if line.claim.verdict not in _PASSED]
        for line in sorted(lines, key=lambda line: SEVERITY.index(line.claim.verdict)):
            by_change.setdefault(_key(line.claim.changes), []).append(line)
        for several in by_change.values():
            first = several[0].claim
            changes = tuple(clean(change.sentence) for change in first.changes) or (_AGAIN,)
            yield Group(system, place, first.verdict, tuple(several), changes)
        named = {name for line in lines if isinstance(line.claim, ClaimRow) for name in line.claim.broken}
        for name, reason, changes in _broken(system):
            if name not in named:
                named.add(name)
                yield Group(system, place, Verdict.VIOLATED, (), changes, f"{name}: {reason}")

    @cached_property
    def passed(self) -> list[Line]:
        """The claims that are consistent or do not apply."""
        lines = [line for system, place in self._places for line in self._lines(system, place)]
        return [line for line in lines if line.claim.verdict in _PASSED]

    @property
    def passed_summary(self) -> str:
        """How many claims passed, in one line."""
        counts = Counter(line.claim.verdict for line in self.passed)
        words = [f"{number} {verdict}" for verdict, number in counts.items()]
        return f"{', '.join(words)}: {', '.join(dict.fromkeys(clean(line.claim.key) for line in self.passed))}"

    @cached_property
    def unclaimed(self) -> list[tuple[str, str, str]]:
        """Systems without a claim: place, title, and what the strongest attack reaches."""
        return [(place, clean(s.title), _strongest(s)) for s, place in self._places if not s.all_claims]

    @cached_property
    def checked(self) -> list[str]:
        """What was looked at, and how much of it held."""
        claims = [claim for system in self.report.systems for claim in system.claims]
        return [*self._tested(claims), *self._premises(), *self._attacked(), _accounted_line(self.report.systems)]

    def _tested(self, claims: Sequence[ClaimRow]) -> Iterator[str]:
        tried = [claim for claim in claims if claim.measurements]
        if tried:
            most = max(row.trials_per_world for claim in tried for row in claim.measurements)
            refuted = sum(any(row.refutes for row in claim.measurements) for claim in tried)
            yield (
                f"{_number(len(tried), 'claim')} tested by trials in two worlds, up to 2 × {count(most)} each: "
                f"{refuted} refuted"
            )
        once = [claim.one_run for claim in claims if claim.one_run is not None]
        if once:
            refuted = sum(row.refutes for row in once)
            yield f"{_number(len(once), 'claim')} tested by canaries in one training: {refuted} refuted"

    def _premises(self) -> Iterator[str]:
        rows = [row for system in self.report.systems for row in system.sensitivity]
        if rows:
            pairs, broken = max(row.searched for row in rows), sum(not row.holds for row in rows)
            yield (
                f"{_number(len(rows), 'sensitivity bound')} by a search of up to {count(pairs)} pairs: "
                f"{broken or 'none'} broken"
            )
        checks = [check for system in self.report.systems for check in system.checks]
        for audit in dict.fromkeys(check.audit for check in checks):
            verdicts = Counter(check.verdict for check in checks if check.audit == audit)
            outcomes = [f"{number} {verdict}" for verdict, number in verdicts.items()]
            yield f"{clean(audit)}, {_number(sum(verdicts.values()), 'check')}: {', '.join(outcomes)}"

    def _attacked(self) -> Iterator[str]:
        rows = [row for system in self.report.systems for row in system.attacks]
        cells = self.report.features
        applied = sum(row.success is not None for row in (*rows, *cells))
        if rows or cells:
            yield f"{applied} of {len(rows) + len(cells)} pairs of an attack and a view apply, and were run"

    @cached_property
    def trusted(self) -> list[str]:
        """What nobody checked and the verdicts take for granted, with the assumptions of the accounted budgets."""
        lines = ["every party follows the protocol, and learns what it can from what it sees"]
        if self.report.ledger_trusted:
            lines.append("the ledger, on the request of whoever ran this audit")
        unmeasured = [claim for claim in self.report.claims if claim.verdict is Verdict.UNMEASURED]
        if unmeasured:
            lines.append(f"the ledger, for {_number(len(unmeasured), 'claim')} that nothing measured")
        lines += [f"the noise: {clean(s.noise_source)}" for s in self.report.systems if s.noise_source]
        budgets = [c.accounted for s in self.report.systems for c in s.claims if c.accounted.not_applicable is None]
        lines += [f"if {clean(line)}" for budget in budgets for line in budget.assumed]
        lines += [_general(line) for budget in budgets for line in budget.assumptions if "unprotected:" not in line]
        return list(dict.fromkeys(lines))

    @cached_property
    def risks(self) -> list[str]:
        """What may still go wrong, whatever is changed."""
        failed = sum(claim.verdict in (Verdict.VIOLATED, Verdict.UNSUPPORTED) for claim in self.report.claims)
        lines = []
        if failed:
            lines.append(
                f"{_number(failed, 'claim')} protect nobody until the changes above are made and audited again"
            )
        lines += [_kept(line.claim) for line in self.passed if line.claim.verdict is Verdict.CONSISTENT]
        lines += [line for system in self.report.systems if (line := _unbounded(system))]
        lines += [f"{clean(s.key)}: {reached}" for s in self.report.systems if (reached := _strongest(s))]
        return lines

    @property
    def untested(self) -> list[str]:
        """What no part of the audit looked at."""
        return [clean(line) for line in self.report.not_tested]

    @staticmethod
    def first(lines: Sequence[str]) -> list[str]:
        """As many lines as the page has room for, and how many more there are."""
        if len(lines) <= _MOST + 1:
            return list(lines)
        return [*lines[:_MOST], f"and {len(lines) - _MOST} more, in the sections below"]


def _key(changes: Sequence[ChangeRow]) -> str:
    """Changes that are the same in effect: the same settings, or else the same words."""
    settings = [sorted(change.settings.items()) for change in changes if change.settings]
    return repr(settings or [change.sentence for change in changes])


def _broken(system: SystemRow) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """The broken premises of a system: name, what was seen, and what to change."""
    for row in system.sensitivity:
        if not row.holds:
            change = f"Bound what one {row.unit} moves, or declare {epsilon(row.observed)} and scale the noise with it."
            yield f"sensitivity of {row.mechanism}", f"moves by {epsilon(row.observed)}", (change,)
    for check in system.checks:
        if check.verdict is Verdict.VIOLATED:
            yield f"{check.audit} of {check.subject}", clean(check.reason), _changes(check)


def _changes(check: CheckRow) -> tuple[str, ...]:
    return tuple(clean(change.sentence) for change in check.changes) or (_AGAIN,)


def _number(number: int, noun: str) -> str:
    return f"{count(number)} {noun}{'' if number == 1 else 's'}"


def _general(assumption: str) -> str:
    """An assumption without the number of the device that it was printed for, so that devices share a line."""
    text = clean(assumption)
    for name in ("devices(all)", "eavesdropper"):
        text = text.replace(name, "the adversary")
    return " ".join("the adversary" if word.startswith("device(") else word for word in text.split())


def _strongest(system: SystemRow) -> str:
    """What the attack that gains most reaches; empty where none gains anything."""
    attack = best_attack(system)
    if attack is None or attack.leakage <= 0:
        return ""
    alone = max(attack.chance or 0.0, attack.blind or 0.0)
    return (
        f"{clean(attack.attack)} ({clean(attack.adversary)}) gets {percent(attack.success)} of the "
        f"{clean(attack.target)} right, {percent(alone)} without the protocol"
    )


def _kept(claim: AnyClaim) -> str:
    """What a claim that was not refuted still allows, and how likely trials would have found more."""
    if isinstance(claim, SuccessClaimRow):
        return f"{clean(claim.key)}: other attacks than {clean(claim.attack)} may be right more often"
    best = headline(claim)
    power = ""
    if best is not None and best.power is not None:
        missed = f"{best.power_excess:g} × the claimed {best.power_of}"
        power = f"; a system with {missed} passes so many trials with a chance of {percent(1 - best.power)} or more"
    return f"{clean(claim.key)}: not refuted is not proven, and ε = {epsilon(claim.epsilon)} is allowed to leak{power}"


def _unbounded(system: SystemRow) -> str:
    """Who is not bounded usefully in what the claims are about, and no claim names; empty where there are no claims."""
    claimed = {claim.adversary.partition("(")[0] for claim in system.claims}
    for unit in dict.fromkeys(claim.unit for claim in system.claims):
        views = dict.fromkeys(
            row.adversary.partition("(")[0] if row.adversary.startswith("device(") else row.adversary
            for row in system.budgets
            if row.unit == unit and row.not_applicable is None and not row.epsilon_upper <= USEFUL
        )
        others = [observer(view) for view in views if view.partition("(")[0] not in claimed]
        if others:
            learned = f"what {_joined(others)} can learn of {_UNITS.get(unit, clean(unit))}"
            return f"{clean(system.key)}: nothing is claimed about, and nothing useful bounds, {learned}"
    return ""


def _joined(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _accounted_line(systems: Iterable[SystemRow]) -> str:
    budgets = [row for system in systems for row in system.budgets if row.not_applicable is None]
    finite = sum(math.isfinite(row.epsilon_upper) for row in budgets)
    return f"{_number(len(budgets), 'budget')} accounted from the ledger, {finite} of them finite"
