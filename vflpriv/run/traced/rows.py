"""Rows of a trace's report: the state of each kind of message, what pairs cost, and what to change."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import torch

from vflpriv.audits.flow.draws.families import FAMILIES, LAPLACE, NORMAL
from vflpriv.audits.flow.draws.registry import Draws
from vflpriv.audits.flow.tracer.events import Choice, Seal
from vflpriv.common import formatting
from vflpriv.core.budgets import epsilon_of
from vflpriv.core.claims import Claim
from vflpriv.core.ledger import Exposure
from vflpriv.report.trace import PairRow, TracedKindRow
from vflpriv.run.calibrate import safe_side
from vflpriv.run.traced.budgets import DerivedBudgets
from vflpriv.run.traced.followed import Followed, own_seals

__all__ = ["advice", "kind_rows", "pair_row"]

_WORST = ("clean", "sealed", "unexplained", "bare")
_NAMES = {NORMAL.name: "Gaussian, std", LAPLACE.name: "Laplace, scale"}
_SAME = 1e-6


def kind_rows(followed: Followed) -> Iterator[TracedKindRow]:
    """A row for each kind of message that the view sees."""
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


def pair_row(followed: Followed, budgets: DerivedBudgets, claim: Claim | None) -> PairRow:
    """The exact loss of the traced pair, infinite where a message is bare, beside what is claimed and accounted."""
    observation, delta = followed.observation, budgets.delta if claim is None else claim.delta
    reasons = [] if followed.bare else _reasons(followed)
    branches = followed.branches
    loss, least = observation.loss, followed.least(delta)
    mu, pure = (math.inf if followed.bare else loss.mu), loss.epsilon
    epsilon = math.inf if math.isinf(mu) else pure + (epsilon_of(mu, delta) if mu > 0 else 0.0)
    if math.isinf(mu) and not followed.bare and not reasons:
        reasons = [followed.leak or "the noise on some values hides them by no law that is known here"]
    exposure, budget = budgets.budget(followed.unit, followed.view_name, delta)
    accounted: float | None = math.inf if followed.bare else budget.upper
    if reasons or (branches and not followed.bare):
        accounted = None
    elif accounted is not None and (cost := least if pure else epsilon) > accounted * (1 + _SAME) + _SAME:
        # A sum of pure losses is not the ε at a δ, and may be more than is accounted.
        reasons = [f"this pair costs ε = {formatting.epsilon(cost)}, more than the derived ledger accounts for"]
        accounted = None
    return PairRow(
        unit=followed.unit_name,
        view=followed.view_name,
        what=followed.what,
        mu=mu,
        pure=pure,
        epsilon=epsilon,
        least=least,
        reasons=tuple(dict.fromkeys(reasons)),
        accounted=accounted,
        open=tuple(branches) if accounted is None else tuple(_open(followed, exposure, budgets)),
        claimed=None if claim is None else claim.epsilon,
        delta=delta,
    )


def _reasons(followed: Followed) -> list[str]:
    """What was not explained."""
    return [
        *followed.observation.unknown,
        *(
            f"{message.trail.where}: {message.trail.message.kind}: {message.why}"
            for message in followed.shown
            if message.state == "unexplained"
        ),
    ]


def _open(followed: Followed, exposure: Exposure, budgets: DerivedBudgets) -> Iterator[str]:
    """Why no finite ε is accounted, by kind."""
    if followed.bare:
        return
    for derived in budgets.kinds:
        moved = derived.units.get(followed.unit)
        if moved is None or not any(line.startswith(f"{derived.kind} (") for line in exposure.unprotected):
            continue
        lines = ", ".join(moved.lines) or moved.where
        if moved.state == "bare":
            continue
        if derived.law is None and moved.reused:
            yield f"{lines}: {derived.kind}: the same draws are on several values, which no accountant counts"
        elif derived.law is None:
            yield f"{lines}: {derived.kind}: no accountant knows the law of its noise ({moved.laws})"
        elif moved.state == "sealed":
            yield f"{lines}: {derived.kind}: nothing bounds what comes under the noise: {moved.why}"


def advice(followed: Followed, row: PairRow, budgets: DerivedBudgets, aim: float) -> Iterator[str]:
    """What to change: the line that lets something out, a clip that is missing, or how much noise an ε takes."""
    for kind in kind_rows(followed):
        if kind.state == "bare":
            yield (
                f"{kind.where}: {kind.kind} leaves without noise on what it tells of one {followed.unit}; clip and "
                "noise it before that line, or do not send it"
            )
    for derived in budgets.kinds:
        moved = derived.units.get(followed.unit)
        if moved is not None and moved.lines and math.isinf(moved.ratio) and moved.state == "sealed":
            yield (
                f"{', '.join(moved.lines)}: clip what is noised, row by row or record by record, before the noise: "
                f"nothing bounds it ({moved.why})"
            )
    if row.accounted is None or not aim < row.accounted < math.inf:
        return
    times = budgets.times(followed.unit, followed.view_name, aim, row.delta)
    if times is None:
        return
    for derived in budgets.kinds:
        moved = derived.units.get(followed.unit)
        if moved is None or not moved.lines:
            continue
        lines = ", ".join(moved.lines)
        if derived.law == "rr":
            much = f"responses of ε = {safe_side(derived.scale / times, up=False):.4g} instead of {derived.scale:.4g}"
        else:
            size = "std" if derived.law == "gaussian" else "scale"
            much = f"noise of {size} {safe_side(derived.scale * times):.4g} instead of {derived.scale:.4g}"
        yield (
            f"{lines}: for ε = {aim:g} at δ = {row.delta:g} ({followed.unit}, seen by {followed.view_name}) {much}, or "
            "a clip as much smaller"
            if derived.law != "rr"
            else f"{lines}: for ε = {aim:g} ({followed.unit}, seen by {followed.view_name}) {much}"
        )
