"""The trace of a script: each unit towards each view in a pair of worlds, put together as a report."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from vflpriv import __version__
from vflpriv.audits.flow.plain.wire import Party, View
from vflpriv.common.machine import single_threaded
from vflpriv.core.claims import Claim
from vflpriv.core.units import Unit
from vflpriv.core.views import Adversary
from vflpriv.errors import InputError
from vflpriv.recording.ledger_file import LedgerConfig
from vflpriv.recording.system import read_recording
from vflpriv.report.trace import PairRow, TracedAttackRow, TraceReport
from vflpriv.run.progress import Task, progress_bar
from vflpriv.run.recorded import label_attempts
from vflpriv.run.traced.budgets import DerivedBudgets
from vflpriv.run.traced.declared import differences
from vflpriv.run.traced.derived import derive
from vflpriv.run.traced.followed import Followed
from vflpriv.run.traced.ledger import derived_ledger
from vflpriv.run.traced.rows import advice, kind_rows, pair_row
from vflpriv.run.traced.script import Script
from vflpriv.run.traced.training import TracedScript
from vflpriv.run.traced.view import enough_rounds, follow

__all__ = ["trace_script"]

_DEVICES = 3
"""Devices that are looked at one by one."""
_FIRST = 3
"""Rounds that are followed first: where all views see something bare in them, the others add nothing."""


def trace_script(
    script: Script,
    *,
    rounds: int,
    units: Sequence[Unit],
    delta: float,
    declared: LedgerConfig | None = None,
    seed: int = 0,
    quiet: bool | None = None,
) -> TraceReport:
    """Run a script once, then follow its first rounds in a pair of worlds for each unit and view."""
    claims = () if declared is None else tuple(own.claim({}) for own in declared.claim)
    with progress_bar(quiet) as bar, single_threaded():
        task = Task(bar, None)
        task.stage(f"{script.name}: one plain run")
        traced = TracedScript.of(script, seed)
        views = list(_pairs(traced, _units(traced, units, claims)))
        followed, rounds = _followed(traced, views, enough_rounds(traced, rounds), task)
        task.stage(f"{script.name}: attacks")
        attacks = _attacks(script, followed, seed)
    kinds = derive(list(traced.kinds), followed)
    budgets = DerivedBudgets(traced, kinds, delta)
    pairs = [_confirmed(traced, own, pair_row(own, budgets, _claim(own, claims)), rounds) for own in followed]
    changes = [line for own, row in _worst(followed, pairs) for line in advice(own, row, budgets, row.aim)]
    return TraceReport(
        tool_version=__version__,
        script=script.name,
        records=traced.wire.head.records,
        devices=traced.devices,
        rounds=traced.rounds,
        followed=rounds,
        delta=delta,
        messages=tuple(row for own in followed for row in kind_rows(own)),
        pairs=tuple(pairs),
        attacks=attacks,
        differences=() if declared is None else tuple(differences(declared, kinds)),
        advice=tuple(dict.fromkeys(changes)),
        notes=tuple(_notes(script, followed)),
        ledger=derived_ledger(traced, kinds, rounds),
    )


def _confirmed(traced: TracedScript, own: Followed, row: PairRow, rounds: int) -> PairRow:
    """A figure refutes a claim only if a training under other draws has one that does, too."""
    if not row.refutes or math.isinf(row.least):
        return row
    again = follow(replace(traced, seed=traced.seed + 1), own.unit, own.device, own.view, rounds)
    return row.model_copy(update={"least": min(row.least, again.least(row.delta))})


def _followed(
    traced: TracedScript, views: Sequence[tuple[Unit, int | None, View]], rounds: int, task: Task
) -> tuple[list[Followed], int]:
    """Every unit towards every view, in so many rounds or in the first few; and in how many."""
    rounds = min(rounds, traced.rounds)
    for count in dict.fromkeys((min(_FIRST, rounds), rounds)):
        followed: list[Followed] = []
        for unit, device, view in views:
            task.stage(f"{traced.script.name}: {unit}, seen by {view if isinstance(view, str) else 'devices'}")
            followed.append(follow(traced, unit, device, view, count))
            if count < rounds and not followed[-1].bare:
                break
        else:
            return followed, count
    raise AssertionError("The last count is that of all rounds, of which every view is followed.")


def _worst(followed: Sequence[Followed], pairs: Sequence[PairRow]) -> Iterator[tuple[Followed, PairRow]]:
    """Of each unit the view that learns most, which sees all that others see if they learn as much; of views that
    something is claimed about, where there are any."""
    rows = list(zip(followed, pairs, strict=True))
    rows = [entry for entry in rows if entry[1].claimed is not None] or rows
    for unit in dict.fromkeys(own.unit_name for own in followed):
        own = [entry for entry in reversed(rows) if entry[0].unit_name == unit]
        yield max(own, key=lambda entry: math.inf if entry[1].accounted is None else entry[1].accounted)


def _units(traced: TracedScript, asked: Sequence[Unit], claims: Sequence[Claim]) -> list[Unit]:
    """Those that were asked for; else those of claims, else labels."""
    known = [unit for unit in traced.units if any(claim.unit is unit for claim in claims)]
    return list(asked) or known or ([Unit.LABEL] if Unit.LABEL in traced.units else traced.units)


def _pairs(traced: TracedScript, units: Sequence[Unit]) -> Iterator[tuple[Unit, int | None, View]]:
    """Units with the views that do not hold what differs: each device, all together, and for features the server."""
    for unit in units:
        if unit not in traced.units:
            what = "labels" if unit is Unit.LABEL else "features, or modules to watch,"
            raise InputError("--unit", str(unit), f"a unit that the script hands over: it gives no {what} to vflpriv")
        owners = [None] if unit is Unit.LABEL else sorted(traced.wire.rows)[:_DEVICES]
        for owner in owners:
            others = [m for m in range(traced.devices) if m != owner]
            yield from ((unit, owner, m) for m in (others[:_DEVICES] if owner is None else ()))
            if owner is not None:
                yield unit, owner, "server"
            if len(others) > 1 or (owner is not None and others):
                yield unit, owner, frozenset[Party](others)


def _claim(followed: Followed, claims: Sequence[Claim]) -> Claim | None:
    """The strictest claim about this unit and view."""
    view = Adversary.parse(followed.view_name)
    own = [claim for claim in claims if claim.unit is followed.unit and _is_meant(claim.adversary, view)]
    return min(own, key=lambda claim: claim.epsilon, default=None)


def _is_meant(claimed: Adversary, view: Adversary) -> bool:
    """Whether a claim is about a view; of any device, it is about each."""
    if claimed.kind != view.kind:
        return False
    return not claimed.devices or claimed.devices == view.devices


def _attacks(script: Script, followed: Sequence[Followed], seed: int) -> tuple[TracedAttackRow, ...]:
    """The attack that reads most of the labels off each view that sees something bare."""
    bare = [own.view_name for own in followed if own.bare and own.unit is Unit.LABEL]
    if not bare:
        return ()
    with TemporaryDirectory(prefix="vflpriv-") as folder:
        script.record(Path(folder), seed)
        attempts = label_attempts(
            read_recording(Path(folder), LedgerConfig()), [Adversary.parse(view) for view in dict.fromkeys(bare)]
        )
    rows = []
    for view in dict.fromkeys(bare):
        scores = [(a.success, a.attack) for a in attempts if str(a.adversary) == view and a.success is not None]
        if scores:
            score, name = max(scores, key=lambda entry: entry[0].value)
            chance = score.value - score.leakage.value
            rows.append(TracedAttackRow(view=view, attack=name, success=score.value, chance=chance))
    return tuple(rows)


def _notes(script: Script, followed: Sequence[Followed]) -> Iterator[str]:
    yield from script.seed_notes
    yield from dict.fromkeys(note for own in followed for note in own.observation.notes)
