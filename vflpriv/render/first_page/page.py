"""The page that a reviewer signs, as data: findings worst first, what each means, and what to change."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from vflpriv.common.formatting import clean, epsilon, percent
from vflpriv.core.claims import SEVERITY, Verdict
from vflpriv.render.first_page.comparable import cause, measured
from vflpriv.render.first_page.grounds import observer, strongest, what_of
from vflpriv.report.audit import CheckRow, ClaimRow, Report, SuccessClaimRow, SystemRow
from vflpriv.report.rows import USEFUL, ChangeRow

__all__ = ["FirstPage", "Group", "Line", "meaning"]

AnyClaim = ClaimRow | SuccessClaimRow
_PASSED = (Verdict.CONSISTENT, Verdict.NOT_APPLICABLE)
_AGAIN = "Not computed in this report: audit again with this version."


def meaning(claim: AnyClaim) -> str:
    """What the verdict on a claim means, in one plain sentence."""
    if isinstance(claim, SuccessClaimRow):
        return _success_meaning(claim)
    who, what = observer(claim.adversary), what_of(claim.unit)
    if claim.verdict is Verdict.VIOLATED and cause(claim):
        void = f"the claimed bound on what {who} can learn of {what} is void"
        return f"The claim rests on the {clean(claim.broken[0])}, which does not hold: {void}."
    if claim.verdict is Verdict.VIOLATED and claim.deciding is None:
        return f"Refuted: {clean(claim.reason)}."
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
    shown = "No test showed more than the claim allows" if claim.measurements else "Nothing was tested"
    if upper <= USEFUL:
        return f"{shown}, and what can be proven is ε ≤ {epsilon(upper)}, not {epsilon(claim.epsilon)}."
    return f"{shown}, and nothing useful bounds what {who} can learn of {what}."


def _success_meaning(claim: SuccessClaimRow) -> str:
    if claim.success is None:
        return f"Nobody measured how often {clean(claim.attack)} is right."
    reached = f"{clean(claim.attack)} is right in {percent(claim.success)} of its guesses"
    return f"{reached}; at most {percent(claim.rate)} is claimed."


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
    def lines(self) -> list[Line]:
        """All claims, system by system."""
        return [line for system, place in self._places for line in self._lines(system, place)]

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
        for check in system.checks:
            if check.audit == "watched" and check.changes:
                yield Group(system, place, check.verdict, (), _changes(check), clean(check.reason))

    @cached_property
    def passed(self) -> list[Line]:
        """The claims that are consistent or do not apply."""
        return [line for line in self.lines if line.claim.verdict in _PASSED]

    @property
    def passed_summary(self) -> str:
        """How many claims passed, in one line."""
        counts = Counter(line.claim.verdict for line in self.passed)
        numbers = [f"{number} {verdict}" for verdict, number in counts.items()]
        return f"{', '.join(numbers)}: {', '.join(dict.fromkeys(clean(line.claim.key) for line in self.passed))}"

    @cached_property
    def unclaimed(self) -> list[tuple[str, str, str]]:
        """Systems without a claim: place, title, and what the strongest attack reaches."""
        return [(place, clean(s.title), strongest(s)) for s, place in self._places if not s.all_claims]


def _key(changes: Sequence[ChangeRow]) -> str:
    """Changes that are the same in effect: the same settings, or else the same words."""
    settings = [sorted(change.settings.items()) for change in changes if change.settings]
    return repr(settings or [change.sentence for change in changes])


def _broken(system: SystemRow) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """The broken premises of a system: name, what was seen, and what to change."""
    for check in system.checks:
        if check.verdict is Verdict.VIOLATED:
            yield f"{check.audit} of {check.subject}", clean(check.reason), _changes(check)


def _changes(check: CheckRow) -> tuple[str, ...]:
    return tuple(clean(change.sentence) for change in check.changes) or (_AGAIN,)
