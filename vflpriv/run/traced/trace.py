"""The trace of a script: each unit towards each view in a pair of worlds, put together as a report."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import torch

from vflpriv import __version__
from vflpriv.audits.flow.draws.families import FAMILIES, LAPLACE, NORMAL
from vflpriv.audits.flow.draws.registry import Draws
from vflpriv.audits.flow.observation import observe
from vflpriv.audits.flow.plain.wire import Party, View
from vflpriv.audits.flow.tracer.events import Choice, Seal
from vflpriv.common.machine import single_threaded
from vflpriv.core.budgets import epsilon_of, mu_of
from vflpriv.core.units import Unit
from vflpriv.errors import InputError
from vflpriv.report.trace import PairRow, TracedKindRow, TraceReport
from vflpriv.run.progress import Task, progress_bar
from vflpriv.run.traced.followed import Followed, own_seals
from vflpriv.run.traced.ledger import derived_ledger
from vflpriv.run.traced.script import Script
from vflpriv.run.traced.training import TracedScript

__all__ = ["trace_script"]

_WORST = ("clean", "sealed", "unexplained", "bare")
_DEVICES = 3
"""Devices that are looked at one by one."""
_NAMES = {NORMAL.name: "Gaussian, std", LAPLACE.name: "Laplace, scale"}
_AIM = 1.0
"""The ε that advice aims at."""


def trace_script(
    script: Script, *, rounds: int, units: Sequence[Unit], delta: float, seed: int = 0, quiet: bool | None = None
) -> TraceReport:
    """Run a script once, then follow its first rounds in a pair of worlds for each unit and view."""
    with progress_bar(quiet) as bar, single_threaded():
        task = Task(bar, None)
        task.stage(f"{script.name}: one plain run")
        traced = TracedScript.of(script, seed)
        asked = list(units) or ([Unit.LABEL] if Unit.LABEL in traced.units else traced.units)
        followed: list[Followed] = []
        for unit, device, view in _pairs(traced, asked):
            task.stage(f"{script.name}: {unit}, seen by {view if isinstance(view, str) else 'devices'}")
            followed.append(_follow(traced, unit, device, view, rounds))
    return TraceReport(
        tool_version=__version__,
        script=script.name,
        records=traced.wire.head.records,
        devices=traced.devices,
        rounds=traced.rounds,
        followed=min(rounds, traced.rounds),
        delta=delta,
        messages=tuple(row for own in followed for row in _rows(own)),
        pairs=tuple(_pair_row(own, delta) for own in followed),
        advice=tuple(dict.fromkeys(line for own in followed for line in _advice(own, delta))),
        notes=tuple(_notes(script, followed)),
        ledger=derived_ledger(traced, followed, rounds),
    )


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


def _follow(traced: TracedScript, unit: Unit, device: int | None, view: View, rounds: int) -> Followed:
    worlds = traced.worlds(unit, device, rounds)
    if isinstance(worlds, str):
        raise InputError("script", traced.script.name, worlds)
    observation = observe(traced.program(worlds, rounds), view, traced.seed)
    return Followed(unit=unit, device=device, view=view, what=worlds.what, observation=observation)


def _rows(followed: Followed) -> Iterator[TracedKindRow]:
    for kind in dict.fromkeys(message.trail.message.kind for message in followed.shown):
        own = [message for message in followed.shown if message.trail.message.kind == kind]
        worst = max(own, key=lambda message: _WORST.index(message.state))
        state, where, noise = worst.state, worst.trail.where, ""
        if state == "sealed":
            seals, trace = own_seals(followed, kind), followed.observation.trace
            assert trace is not None
            noise = _laws(seals, trace.draws)
            where = ", ".join(dict.fromkeys(seal.where for seal in seals if seal.where)) or where
            noise = noise or "that of messages before it"
        yield TracedKindRow(
            unit=followed.unit_name,
            view=followed.view_name,
            kind=kind,
            state=state,
            messages=len(own),
            noise=noise,
            where=where,
            why=worst.why if state in ("bare", "unexplained") else "",
        )


def _laws(seals: Sequence[Seal | Choice], draws: Draws) -> str:
    """The laws of seals with the sizes of their noise: the scale, which is the std of Gaussian noise."""
    sizes: dict[str, list[float]] = {}
    for seal in seals:
        if isinstance(seal, Choice):
            sizes.setdefault(f"choice by {seal.kind}", [])
            continue
        numbers = torch.unique(draws.families(seal.rows.used)).tolist()
        name = " + ".join(_NAMES.get(FAMILIES[number].name, FAMILIES[number].name) for number in numbers)
        sizes.setdefault(name, []).extend(seal.rows.scales.square().sum(1).sqrt().tolist())
    return "; ".join(f"{name}{_spread(own)}" for name, own in sizes.items())


def _spread(sizes: Sequence[float]) -> str:
    if not sizes:
        return ""
    low, high = f"{min(sizes):.4g}", f"{max(sizes):.4g}"
    return f" {low}" if low == high else f" {low} to {high}"


def _pair_row(followed: Followed, delta: float) -> PairRow:
    """The exact loss; infinite where a message is bare, and no figure where something is not explained."""
    observation = followed.observation
    bare = any(message.state == "bare" for message in followed.shown) or observation.form is not None
    reasons = list(observation.unknown)
    reasons += [
        f"{message.trail.where}: {message.trail.message.kind}: {message.why}"
        for message in followed.shown
        if message.state == "unexplained"
    ]
    loss = observation.loss
    if bare:
        mu, pure, epsilon, reasons = math.inf, loss.epsilon, math.inf, []
    else:
        mu, pure = loss.mu, loss.epsilon
        epsilon = pure + (math.inf if math.isinf(mu) else epsilon_of(mu, delta) if mu > 0 else 0.0)
        if math.isinf(mu) and not reasons:
            reasons = [loss.leak or "the noise on some values hides them by no law that is known here"]
    return PairRow(
        unit=followed.unit_name,
        view=followed.view_name,
        what=followed.what,
        mu=mu,
        pure=pure,
        epsilon=epsilon,
        reasons=tuple(dict.fromkeys(reasons)),
    )


def _advice(followed: Followed, delta: float) -> Iterator[str]:
    """What to change: the line that lets something out, or how much noise an ε of 1 takes."""
    for row in _rows(followed):
        if row.state == "bare":
            yield (
                f"{row.where}: {row.kind} leaves without noise on what it tells of one {followed.unit}; clip and noise "
                "it before that line, or do not send it"
            )
    loss = followed.observation.loss
    aim = mu_of(_AIM, delta)
    if not any(message.state == "bare" for message in followed.shown) and aim < loss.mu < math.inf:
        yield (
            f"for ε = {_AIM:g} at δ = {delta:g} of this pair, {followed.unit_name} seen by {followed.view_name}: noise "
            f"{loss.mu / aim:.3g} times as large, or a clip as much smaller"
        )


def _notes(script: Script, followed: Sequence[Followed]) -> Iterator[str]:
    yield from script.seed_notes
    yield from dict.fromkeys(note for own in followed for note in own.observation.notes)
