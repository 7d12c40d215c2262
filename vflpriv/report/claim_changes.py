"""How the claims and budgets of one system differ between two reports, whatever the claims are called.

A claim of one report answers for one of the other by unit and view, not by name alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

from vflpriv.common import formatting as f
from vflpriv.core.claims import SEVERITY, Verdict
from vflpriv.core.units import Unit
from vflpriv.core.views import Adversary
from vflpriv.errors import InputError
from vflpriv.report.audit import BudgetRow, ClaimRow, SuccessClaimRow, SystemRow
from vflpriv.report.changes import Change, Figures, Tolerance, number, numbers

__all__ = ["Pair", "claim_pairs", "epsilon_changes", "verdict_changes"]

AnyClaim = ClaimRow | SuccessClaimRow


@dataclass(frozen=True, kw_only=True)
class Pair:
    """A claim of the old report and the one of the new report that answers for it; one of the two may be missing."""

    old: AnyClaim | None
    new: AnyClaim | None
    covered: bool = False
    """Whether the new claim promises more: against an adversary who sees more, or for a unit that implies the old."""

    @property
    def claim(self) -> AnyClaim:
        """The claim that says what was promised: the old one where there is one."""
        claim = self.old or self.new
        assert claim is not None
        return claim

    @property
    def place(self) -> str:
        """The unit and the view, for a claim about an attack with its name.

        >>> Pair(old=None, new=SuccessClaimRow.model_construct(unit="label", adversary="server", attack="a")).place
        'a of label seen by server'
        """
        attack = f"{self.claim.attack} of " if isinstance(self.claim, SuccessClaimRow) else ""
        return f"{attack}{self.claim.unit} seen by {self.claim.adversary}"

    @property
    def names(self) -> str:
        """The names of the claims, and how the second follows from the first where they differ."""
        if self.old is None or self.new is None:
            return f"{self.claim.key}, {'new' if self.old is None else 'no longer claimed'}"
        if self.covered:
            return f"{self.old.key}, now covered by {self.new.key}"
        return self.old.key if self.old.key == self.new.key else f"{self.old.key}, now {self.new.key}"


def claim_pairs(old: Sequence[AnyClaim], new: Sequence[AnyClaim]) -> list[Pair]:
    """All claims of both reports, each old one with what answers for it.

    A claim is answered by one on the same unit and view, preferably of the same name; else by one that promises at
    least as much: as small an ε and δ, for a unit that implies its own, against an adversary who sees no less.
    """
    free = list(new)
    partners: dict[int, AnyClaim] = {}
    for alike in (_same_name, _same_place):
        for i, claim in enumerate(old):
            if i not in partners and (partner := _take(claim, free, alike)) is not None:
                partners[i] = partner
    pairs = [Pair(old=claim, new=partners[i]) if i in partners else _covered(claim, new) for i, claim in enumerate(old)]
    return pairs + [Pair(old=None, new=claim) for claim in free]


def _covered(claim: AnyClaim, others: Sequence[AnyClaim]) -> Pair:
    cover = next((other for other in others if _covers(other, claim)), None)
    return Pair(old=claim, new=cover, covered=cover is not None)


def _take(claim: AnyClaim, free: list[AnyClaim], alike: Callable[[AnyClaim, AnyClaim], bool]) -> AnyClaim | None:
    """Remove and return the first free claim that is like this one."""
    for i, other in enumerate(free):
        if alike(claim, other):
            return free.pop(i)
    return None


def _same_name(a: AnyClaim, b: AnyClaim) -> bool:
    return a.key == b.key and _same_place(a, b)


def _same_place(a: AnyClaim, b: AnyClaim) -> bool:
    attacks = [claim.attack if isinstance(claim, SuccessClaimRow) else None for claim in (a, b)]
    return (a.unit, a.adversary) == (b.unit, b.adversary) and attacks[0] == attacks[1]


def _covers(claim: AnyClaim, other: AnyClaim) -> bool:
    """Whether a claim that is kept means that the other is kept too."""
    if not (isinstance(claim, ClaimRow) and isinstance(other, ClaimRow)):
        return False
    # Two claims of the same ε may differ in its last digits, if one was computed from μ.
    stronger = claim.epsilon <= other.epsilon * (1 + 1e-9) and claim.delta <= other.delta
    return stronger and _implies(claim.unit, other.unit) and _includes(claim.adversary, other.adversary)


def _implies(unit: str, other: str) -> bool:
    return unit == other or ({unit, other} <= set(Unit) and Unit(unit).implies(Unit(other)))


def _includes(view: str, other: str) -> bool:
    """Whether the first adversary sees all that the second sees.

    >>> _includes("devices(all)", "device"), _includes("devices(0, 2)", "device(2)"), _includes("device", "model")
    (True, True, False)
    """
    if view == other:
        return True
    try:
        whole, part = Adversary.parse(view), Adversary.parse(other)
    except InputError:
        return False
    if not (whole.is_device and part.is_device):
        return False
    # Without numbers, "devices" are all of them, and "device" is any single one.
    if not whole.devices:
        return whole.kind == "devices" or part.kind == "device"
    return bool(part.devices) and set(part.devices) <= set(whole.devices)


def view_of(adversary: str) -> str:
    """The view of a budget without a device number: a budget of any single device names the worst one."""
    return "device" if adversary.startswith("device(") else adversary


def accounted_at(claim: ClaimRow, system: SystemRow) -> float | None:
    """The rigorous ε of a system for a claim's unit, view and δ, whether or not it makes the claim; None if unknown."""
    place = (claim.unit, claim.adversary, claim.delta)
    return next((epsilon for *where, epsilon in _known(system) if tuple(where) == place), None)


def _known(system: SystemRow) -> Iterator[tuple[str, str, float, float]]:
    """Unit, view, δ and ε of every rigorous budget that applies."""
    for b in system.budgets:
        if b.reading == "rigorous" and b.not_applicable is None:
            yield b.unit, view_of(b.adversary), b.delta, b.epsilon_upper
    for claim in system.claims:
        for view in claim.views:
            if view.not_applicable is None:
                yield claim.unit, view.adversary, claim.delta, view.epsilon_upper


_ORDER = tuple(reversed(SEVERITY))
_CONSISTENT = _ORDER.index(Verdict.CONSISTENT)
_UNCLAIMED = "not claimed"
_Place = tuple[str, str, float]
"""Unit, view and δ."""


# Verdicts


def verdict_changes(old: SystemRow, new: SystemRow, tolerance: Tolerance) -> Iterator[Change]:
    """What became of every claim that either report has."""
    for pair in claim_pairs(old.all_claims, new.all_claims):
        kept = _still_kept(pair, new, tolerance)
        worse, better = _direction(pair, kept)
        yield Change(
            system=new.key,
            what="verdict",
            where=f"{pair.place} ({pair.names}{', though what is accounted keeps it' if kept else ''})",
            old=pair.old.verdict if pair.old else _UNCLAIMED,
            new=pair.new.verdict if pair.new else _UNCLAIMED,
            regression=worse,
            improvement=better,
        )


def _still_kept(pair: Pair, new: SystemRow, tolerance: Tolerance) -> bool:
    """Whether a claim is no longer made, and yet the ε that is accounted now is within it."""
    if pair.new is not None or not isinstance(pair.old, ClaimRow):
        return False
    accounted = accounted_at(pair.old, new)
    return accounted is not None and not tolerance.exceeded("epsilon", pair.old.epsilon, accounted)


def _direction(pair: Pair, kept: bool) -> tuple[bool, bool]:
    """Whether a claim is worse off now, and whether it is better off.

    A claim that is no longer made counts as unmeasured if what is accounted keeps it, else as unsupported: whoever
    drops a claim that held may hide a violation; whoever drops one that did not hold changes nothing.
    """
    if pair.old is None or (pair.new is None and pair.old.verdict is Verdict.NOT_APPLICABLE):
        return False, False
    dropped = Verdict.UNMEASURED if kept else Verdict.UNSUPPORTED
    before, after = _ORDER.index(pair.old.verdict), _ORDER.index(pair.new.verdict if pair.new else dropped)
    mended = pair.new is not None or kept
    return after > max(_CONSISTENT, before), mended and _CONSISTENT <= after < before


# Budgets


def epsilon_changes(old: SystemRow, new: SystemRow, tolerance: Tolerance) -> Iterator[Change]:
    """The claimed and accounted ε of every claim, then the accounted ε of every other unit and view."""
    shown: set[_Place] = set()
    for pair in claim_pairs(old.claims, new.claims):
        before, answer = _row(pair.old), None if pair.covered else _row(pair.new)
        where = pair.place + _deltas(before, answer)
        if before is not None and answer is not None:
            yield _promise(new.key, where, before.epsilon, answer.epsilon)
        claim = before or answer
        assert claim is not None
        now = _accounted(claim, answer, new)
        # What keeps a stronger claim bounds the ε of the weaker one.
        cover = _row(pair.new) if pair.covered and now is None else None
        values = _accounted(claim, before, old), now if cover is None else _value(cover.accounted)
        if values != (None, None):
            # The ε of a claim that is missing cannot be trusted.
            yield number("epsilon", new.key, where, values, tolerance, needed=before is not None)
        shown.add((claim.unit, claim.adversary, claim.delta))
    yield from numbers("epsilon", new.key, *_budgets(old, new, shown), tolerance)


def _row(claim: AnyClaim | None) -> ClaimRow | None:
    return claim if isinstance(claim, ClaimRow) else None


def _promise(system: str, where: str, old: float, new: float) -> Change:
    """The claimed ε: a weaker promise is neither better nor worse, since it may be the one that is true."""
    now = old if math.isclose(old, new) else new
    return Change(system=system, what="claimed", where=where, old=old, new=now, regression=False)


def _accounted(claim: ClaimRow, own: ClaimRow | None, system: SystemRow) -> float | None:
    """The ε accounted for a system's own claim; where it does not make this one, the ε of the same unit and view."""
    return accounted_at(claim, system) if own is None else _value(own.accounted)


def _deltas(old: ClaimRow | None, new: ClaimRow | None) -> str:
    """A note where the two claims have different δ, since their ε then cannot be compared as they are."""
    if old is None or new is None or old.delta == new.delta:
        return ""
    return f" (δ was {f.exact(old.delta)}, now {f.exact(new.delta)})"


def _budgets(old: SystemRow, new: SystemRow, shown: Collection[_Place]) -> tuple[Figures, Figures]:
    """The accounted ε by unit, view and reading, without those that claims have shown.

    The paper's reading has a row only where it differs from the rigorous one; where the other report has it, the
    rigorous one stands for both.
    """
    before, after = ({_key(b): b for b in system.budgets} for system in (old, new))
    figures: tuple[Figures, Figures] = ({}, {})
    for key in dict.fromkeys([*before, *after]):
        unit, view, reading = key
        where = f"{unit} seen by {view}{'' if reading == 'rigorous' else f' ({reading} reading)'}"
        for rows, by_place in zip((before, after), figures, strict=True):
            row = rows.get(key) or rows.get((unit, view, "rigorous"))
            if row is not None and not (reading == "rigorous" and (unit, view, row.delta) in shown):
                by_place[where] = _value(row)
    return figures


def _key(budget: BudgetRow) -> tuple[str, str, str]:
    return budget.unit, view_of(budget.adversary), budget.reading


def _value(budget: BudgetRow) -> float | None:
    return None if budget.not_applicable is not None else budget.epsilon_upper
