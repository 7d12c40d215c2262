"""The trade-off curves of a claim: claimed and accounted bounds on a test's errors, and the errors of our tests."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from vflpriv.common.formatting import confidence, delta, epsilon, mu, percent, shorten
from vflpriv.common.numerics import interval
from vflpriv.core.budgets import curve
from vflpriv.render.document import Plot
from vflpriv.render.plots.chart import Axis, Chart
from vflpriv.report.audit import BudgetRow, ClaimRow, MeasurementRow

__all__ = ["tradeoff_plot", "tradeoff_svg"]

_CANARIES = {
    "natural": ("natural", "circle"),
    "crafted": ("crafted", "square"),
    "worst-case": ("worst-case", "diamond"),
}
# Dense where the curve of a large mu bends.
_RATES: NDArray[np.float64] = np.concatenate([[0.0], ndtr(np.linspace(-4.5, 4.5, 45)), [1.0]])
_LISTED: NDArray[np.float64] = np.array([0.001, 0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9])
_CAPTION = "If the claim holds, the errors of every test lie on or above the claimed curve."
_TWO_WORLDS = " The box is the exact interval of both error rates; thin lines are the same trials at other thresholds."
_ONCE = " A dotted curve refutes every Gaussian curve above it."


def tradeoff_plot(claim: ClaimRow) -> Plot:
    """The curve, and the least false-negative rate at some false-positive rates."""
    columns = [("Claimed", curve(claim.mu, _LISTED))]
    if claim.paper_reading is not None and claim.paper_reading.not_applicable is None:
        columns.append(("Accounted, paper’s reading", _errors(claim.paper_reading, _LISTED)))
    if claim.accounted.not_applicable is None:
        columns.append(("Accounted, rigorous", _errors(claim.accounted, _LISTED)))
    columns += [(f"At most, by {_name(row)}", curve(row.mu or 0.0, _LISTED)) for row in _curves(claim)]
    return Plot(
        svg=tradeoff_svg(claim),
        caption=_CAPTION + _TWO_WORLDS * bool(_trials(claim)) + _ONCE * bool(_curves(claim)),
        header=("False-positive rate", *(f"{name}: false-negative rate" for name, _ in columns)),
        rows=[(percent(x), *(percent(y[i]) for _, y in columns)) for i, x in enumerate(_LISTED.tolist())],
    )


def tradeoff_svg(claim: ClaimRow) -> str:
    """The least errors of any test under the claim and the accounted budgets, and the errors of the audit's tests."""
    ticks = [0, 0.25, 0.5, 0.75, 1]
    across, up = (
        Axis(low=0, high=1, name=f"false-{kind} rate", ticks=ticks, text=lambda share: f"{share:.0%}")
        for kind in ("positive", "negative")
    )
    chart = Chart(across, up, width=360, height=270)
    _bounds(chart, claim)
    for row in _trials(claim):
        _measured(chart, row, boxed=row.decides)
    for row in _curves(claim):
        sure = "" if row.proves else f" ({confidence(row.confidence)} confidence)"
        label = f"measured, {_name(row)}: μ {row.relation} {mu(row.mu)}{sure}"
        # It refutes every Gaussian curve above.
        chart.line(_places(curve(row.mu or 0.0, _RATES)), "crafted", width=1.6, dashes="1.6 1.9", label=label)
    return chart.svg(f"Trade-off curve of claim {claim.key}", _description(claim))


def _places(errors: NDArray[np.float64]) -> list[tuple[float, float]]:
    return list(zip(_RATES.tolist(), errors.tolist(), strict=True))


def _bounds(chart: Chart, claim: ClaimRow) -> None:
    """The claimed curve with the region that refutes it, the accounted curves, and blind guessing."""
    claimed = _places(curve(claim.mu, _RATES))
    label = f"claimed μ={mu(claim.mu)} (ε={epsilon(claim.epsilon)} at δ={delta(claim.delta)})"
    chart.line([(0, 1), (1, 0)], "frame", width=1, dashes="2 3", label="blind guessing")
    chart.line(claimed, "claimed", width=2.2, label=label)
    below = "below the claimed curve: refutes the claim"
    chart.area([(0, 0), *claimed, (1, 0)], "worst-case", opacity=0.13, label=below)
    if claim.paper_reading is not None:
        _accounted(chart, claim.paper_reading, "paper", "paper’s reading", "11 3.6")
    _accounted(chart, claim.accounted, "rigorous", "rigorous", "7.2 2.7 1.8 2.7")


def _accounted(chart: Chart, budget: BudgetRow, colour: str, name: str, dashes: str) -> None:
    """A budget's curve. Where it has no mu, the two lines that (epsilon, delta) allows."""
    if budget.not_applicable is not None:
        return
    label = f"accounted, {name}: ε ≤ {epsilon(budget.epsilon_upper)}"
    if budget.mu is not None and math.isfinite(budget.mu):
        label += f" (μ={mu(budget.mu)})"
    chart.line(_places(_errors(budget, _RATES)), colour, dashes=dashes, label=label)


def _errors(budget: BudgetRow, rates: NDArray[np.float64]) -> NDArray[np.float64]:
    """The least false-negative rate that the budget allows at these false-positive rates."""
    if budget.mu is not None and math.isfinite(budget.mu):
        return np.asarray(curve(budget.mu, rates))
    # e^700 is the largest that a float holds; the line is on the axis long before.
    steep, room = math.exp(min(budget.epsilon_upper, 700.0)), 1 - budget.delta
    return np.maximum(0.0, np.maximum(room - steep * rates, (room - rates) / steep))


def _trials(claim: ClaimRow) -> list[MeasurementRow]:
    """The measurements that count errors in two worlds, and give a point."""
    return [row for row in claim.measurements if row.errors is not None]


def _curves(claim: ClaimRow) -> list[MeasurementRow]:
    """The measurements that give a curve and no point."""
    return [row for row in claim.measurements if row.errors is None and row.mu is not None]


def _name(row: MeasurementRow) -> str:
    return shorten(row.subject, 16).replace("-", " ")


def _measured(chart: Chart, row: MeasurementRow, *, boxed: bool) -> None:
    """The test fixed in advance as a point, all thresholds as a thin line; the headline one with its intervals."""
    errors, (colour, kind) = row.errors, _CANARIES.get(row.subject, ("natural", "triangle"))
    if row.curve:
        chart.line(row.curve, colour, width=1.1, opacity=0.75)
    if errors is None:
        return
    label = f"measured, {shorten(row.subject, 16)}: μ ≥ {mu(row.mu)} ({confidence(row.confidence)} confidence)"
    if boxed:
        left, right = interval(errors.false_positives, errors.negatives, row.confidence)
        low, high = interval(errors.false_negatives, errors.positives, row.confidence)
        corners = [(left, low), (right, low), (right, high), (left, high)]
        chart.area(corners, colour, opacity=0.28)
        chart.line([*corners, corners[0]], colour, width=0.9)
    chart.mark(*errors.rates, kind, colour, label=label)


def _description(claim: ClaimRow) -> str:
    """What the plot shows, for screen readers."""
    text = f"Claimed μ {mu(claim.mu)}; accounted ε at most {epsilon(claim.accounted.epsilon_upper)}"
    if not claim.measurements:
        return f"{text}; not measured."
    text += "".join(
        f"; {_name(row)} shows μ {'of' if row.exact else 'at least'} {mu(row.mu)}" for row in _curves(claim)
    )
    best = next((row for row in _trials(claim) if row.decides), None)
    if best is None or best.errors is None:
        return f"{text}."
    fpr, fnr = map(percent, best.errors.rates)
    return f"{text}; the {best.subject} canary’s test has {fpr} false positives and {fnr} false negatives."
