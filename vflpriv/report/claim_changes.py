"""How the claims and budgets of one system differ between two reports, whatever the claims are called."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator

from vflpriv.common import formatting as f
from vflpriv.core.claims import SEVERITY, Verdict
from vflpriv.report.audit import BudgetRow, ClaimRow, SystemRow
from vflpriv.report.changes import Change, Figures, Tolerance, number, numbers
from vflpriv.report.matching import AnyClaim, Pair, accounted_at, claim_pairs, view_of

__all__ = ["epsilon_changes", "verdict_changes"]

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
        for rows, found in zip((before, after), figures, strict=True):
            row = rows.get(key) or rows.get((unit, view, "rigorous"))
            if row is not None and not (reading == "rigorous" and (unit, view, row.delta) in shown):
                found[where] = _value(row)
    return figures


def _key(budget: BudgetRow) -> tuple[str, str, str]:
    return budget.unit, view_of(budget.adversary), budget.reading


def _value(budget: BudgetRow) -> float | None:
    return None if budget.not_applicable is not None else budget.epsilon_upper
