"""One unit of a traced script towards one adversary: what pairs of worlds show, and what is accounted for all data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vflpriv.audits.bounds.proved import Following
from vflpriv.audits.flow.observation import observe
from vflpriv.audits.flow.plain.wire import Party, View
from vflpriv.common.machine import single_threaded
from vflpriv.core.units import Unit
from vflpriv.core.views import Adversary
from vflpriv.errors import InputError
from vflpriv.report.trace import PairRow
from vflpriv.run.traced.budgets import DerivedBudgets
from vflpriv.run.traced.derived import derive
from vflpriv.run.traced.followed import Followed
from vflpriv.run.traced.rows import advice, kind_rows, pair_row
from vflpriv.run.traced.script import Script
from vflpriv.run.traced.training import TracedScript

__all__ = ["Seen", "enough_rounds", "follow", "followed_by", "look"]

_AGAIN = 200
"""Rounds that are followed at most so that a record comes twice: noise that is drawn once is known by that."""


def enough_rounds(traced: TracedScript, rounds: int) -> int:
    """So many rounds, or more where no record comes a second time before."""
    return rounds if traced.again > _AGAIN else max(rounds, traced.again)


def follow(traced: TracedScript, unit: Unit, device: int | None, view: View, rounds: int) -> Followed:
    """One pair of worlds as one view sees it, with how far any pair can be moved."""
    worlds = traced.worlds(unit, device, rounds)
    if isinstance(worlds, str):
        raise InputError("script", traced.script.name, worlds)
    observation = observe(traced.program(worlds, rounds), view, traced.seed, bounding=Following)
    return Followed(unit=unit, device=device, view=view, what=worlds.what, observation=observation)


def followed_by(traced: TracedScript, unit: Unit, adversary: Adversary, rounds: int) -> list[Followed]:
    """The unit as this adversary sees it: of each party whose features it does not hold, or the labels."""
    members: frozenset[Party] = frozenset(adversary.members(traced.devices)) if adversary.is_device else frozenset()
    view: View = members if adversary.is_device else adversary.kind
    owners = [None] if unit is Unit.LABEL else [m for m in sorted(traced.wire.rows) if m not in members]
    if not owners:
        raise InputError("view", str(adversary), "one that does not hold the features of all parties itself")
    return [follow(traced, unit, owner, view, rounds) for owner in owners]


@dataclass(frozen=True, kw_only=True)
class Seen:
    """One unit of a script towards one adversary."""

    followed: Followed
    row: PairRow
    bare: tuple[str, ...]
    """Kinds of messages that nothing hides, with their lines."""
    advice: tuple[str, ...]


def look(
    script: Script, *, unit: Unit, view: str, epsilon: float, delta: float, rounds: int, seed: int
) -> Sequence[Seen]:
    """Trace a script for one adversary; advice is about this ε."""
    with single_threaded():
        traced = TracedScript.of(script, seed)
        if unit not in traced.units:
            raise InputError("unit", str(unit), f"one of {', '.join(traced.units) or 'those that are handed over'}")
        rounds = enough_rounds(traced, rounds)
        (adversary, *_) = Adversary.parse(view).each(traced.devices)
        followed = followed_by(traced, unit, adversary, rounds)
    budgets = DerivedBudgets(traced, derive(list(traced.kinds), followed), delta)
    seen = []
    for own in followed:
        row = pair_row(own, budgets, None)
        bare = tuple(f"{kind.where}: {kind.kind}" for kind in kind_rows(own) if kind.state == "bare")
        seen.append(Seen(followed=own, row=row, bare=bare, advice=tuple(advice(own, row, budgets, epsilon))))
    return seen
