"""The trade-off curves of a claim: claimed and accounted bounds on a test's errors, and the errors of our tests."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from vflpriv.common.formatting import confidence, delta, epsilon, mu, percent, shorten
from vflpriv.common.numerics import interval
from vflpriv.core.tradeoff import curve
from vflpriv.render.plots.svg import COLOURS, STYLE, Plot, svg
from vflpriv.render.shared import tabled
from vflpriv.report.audit import BudgetRow, ClaimRow, MeasurementRow

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["tradeoff_plot", "tradeoff_svg"]

_CANARIES = {"natural": ("natural", "o"), "crafted": ("crafted", "s"), "worst-case": ("worst-case", "D")}
# Dense where the curve of a large mu bends.
_RATES: NDArray[np.float64] = np.concatenate([[0.0], ndtr(np.linspace(-4.5, 4.5, 121)), [1.0]])
_LISTED: NDArray[np.float64] = np.array([0.001, 0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9])
_CAPTION = "If the claim holds, the errors of every test lie on or above the claimed curve."
_TWO_WORLDS = " The box is the exact interval of both error rates; thin lines are the same trials at other thresholds."
_ONCE = " A dotted curve refutes every Gaussian curve above it."


def tradeoff_plot(claim: ClaimRow, *, prefix: str = "") -> Plot:
    """The curve, and the least false-negative rate at some false-positive rates."""
    columns = [("Claimed", curve(claim.mu, _LISTED))]
    if claim.paper_reading is not None and claim.paper_reading.not_applicable is None:
        columns.append(("Accounted, paper’s reading", _errors(claim.paper_reading, _LISTED)))
    if claim.accounted.not_applicable is None:
        columns.append(("Accounted, rigorous", _errors(claim.accounted, _LISTED)))
    columns += [(f"At most, by {_name(row)}", curve(row.mu or 0.0, _LISTED)) for row in _curves(claim)]
    return Plot(
        svg=tradeoff_svg(claim, prefix=prefix),
        caption=_CAPTION + _TWO_WORLDS * bool(tabled(claim)) + _ONCE * bool(_curves(claim)),
        header=("False-positive rate", *(f"{name}: false-negative rate" for name, _ in columns)),
        rows=[(percent(x), *(percent(y[i]) for _, y in columns)) for i, x in enumerate(_LISTED.tolist())],
    )


def tradeoff_svg(claim: ClaimRow, *, prefix: str = "") -> str:
    """The least errors of any test under the claim and the accounted budgets, and the errors of the audit's tests.

    `prefix` keeps the ids of several plots of one page apart.
    """
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context(STYLE):
        rows = 4 + (claim.paper_reading is not None) + len(tabled(claim)) + len(_curves(claim))
        legend = 0.2 * rows + 0.05
        height = legend + 3.7
        figure = Figure(figsize=(5.0, height))
        axes = figure.add_axes((0.7 / 5, (legend + 0.5) / height, 4.0 / 5, 3.1 / height))
        _bounds(axes, claim)
        for row in tabled(claim):
            _measured(axes, row, boxed=row.decides)
        for row in _curves(claim):
            _once(axes, row)
        _frame(axes)
        handles, labels = axes.get_legend_handles_labels()
        figure.legend(handles, labels, loc="lower left", frameon=False, handlelength=2.6, labelspacing=0.35)
        return svg(figure, f"Trade-off curve of claim {claim.key}", _description(claim), prefix)


def _bounds(axes: Axes, claim: ClaimRow) -> None:
    """The claimed curve with the region that refutes it, the accounted curves, and blind guessing."""
    claimed = curve(claim.mu, _RATES)
    label = f"claimed μ={mu(claim.mu)} (ε={epsilon(claim.epsilon)} at δ={delta(claim.delta)})"
    red = COLOURS["worst-case"]
    axes.plot([0, 1], [1, 0], color=COLOURS["frame"], lw=1, ls=(0, (2, 3)), label="blind guessing")
    axes.plot(_RATES, claimed, color=COLOURS["claimed"], lw=2.2, label=label)
    axes.fill_between(_RATES, claimed, color=red, alpha=0.13, lw=0, label="below the claimed curve: refutes the claim")
    if claim.paper_reading is not None:
        _accounted(axes, claim.paper_reading, "paper", "paper’s reading", (0, (6, 2)))
    _accounted(axes, claim.accounted, "rigorous", "rigorous", (0, (4, 1.5, 1, 1.5)))


def _accounted(axes: Axes, budget: BudgetRow, colour: str, name: str, dashes: Any) -> None:
    """A budget's curve. Where it has no mu, the two lines that (epsilon, delta) allows."""
    if budget.not_applicable is not None:
        return
    label = f"accounted, {name}: ε ≤ {epsilon(budget.epsilon_upper)}"
    if budget.mu is not None and math.isfinite(budget.mu):
        label += f" (μ={mu(budget.mu)})"
    errors = _errors(budget, _RATES)
    axes.plot(_RATES, errors, color=COLOURS[colour], lw=1.8, ls=dashes, clip_on=False, label=label)


def _errors(budget: BudgetRow, rates: NDArray[np.float64]) -> NDArray[np.float64]:
    """The least false-negative rate that the budget allows at these false-positive rates."""
    if budget.mu is not None and math.isfinite(budget.mu):
        return np.asarray(curve(budget.mu, rates))
    # e^700 is the largest that a float holds; the line is on the axis long before.
    steep, room = math.exp(min(budget.epsilon_upper, 700.0)), 1 - budget.delta
    return np.maximum(0.0, np.maximum(room - steep * rates, (room - rates) / steep))


def _curves(claim: ClaimRow) -> list[MeasurementRow]:
    """The measurements that give a curve and no point."""
    return [row for row in claim.measurements if row.errors is None and row.mu is not None]


def _name(row: MeasurementRow) -> str:
    return shorten(row.subject, 16).replace("-", " ")


def _once(axes: Axes, row: MeasurementRow) -> None:
    """The Gaussian curve of a bound on μ: it refutes every curve above."""
    label = f"measured, {_name(row)}: μ {row.relation} {mu(row.mu)} ({confidence(row.confidence)} confidence)"
    axes.plot(_RATES, curve(row.mu or 0.0, _RATES), color=COLOURS["crafted"], lw=1.6, ls=(0, (1, 1.2)), label=label)


def _measured(axes: Axes, row: MeasurementRow, *, boxed: bool) -> None:
    """The test fixed in advance as a point, all thresholds as a thin line; the headline one with its intervals."""
    errors, (colour, marker) = row.errors, _CANARIES.get(row.subject, ("natural", "^"))
    ink = COLOURS[colour]
    if row.curve:
        axes.plot(*zip(*row.curve, strict=True), color=ink, lw=1.1, alpha=0.75)
    if errors is None:
        return
    x, y = errors.rates
    label = f"measured, {shorten(row.subject, 16)}: μ ≥ {mu(row.mu)} ({confidence(row.confidence)} confidence)"
    if boxed:
        left, right = interval(errors.false_positives, errors.negatives, row.confidence)
        low, high = interval(errors.false_negatives, errors.positives, row.confidence)
        axes.fill_between([left, right], low, high, facecolor=ink, alpha=0.28, lw=0)
        axes.plot([left, right, right, left, left], [low, low, high, high, low], color=ink, lw=0.9)
    axes.plot(x, y, marker, ms=6.5 if boxed else 5.5, color=ink, mew=0, label=label, ls="none", zorder=5)


def _frame(axes: Axes) -> None:
    axes.set(xlim=(0, 1), ylim=(0, 1), xlabel="false-positive rate", ylabel="false-negative rate")
    ticks = [0, 0.25, 0.5, 0.75, 1]
    axes.set_xticks(ticks, [f"{t:.0%}" for t in ticks])
    axes.set_yticks(ticks, [f"{t:.0%}" for t in ticks])
    axes.grid(color=COLOURS["frame"], alpha=0.22, lw=0.6)
    axes.spines[["top", "right"]].set_visible(False)


def _description(claim: ClaimRow) -> str:
    """What the plot shows, for screen readers."""
    text = f"Claimed μ {mu(claim.mu)}; accounted ε at most {epsilon(claim.accounted.epsilon_upper)}"
    if not claim.measurements:
        return f"{text}; not measured."
    text += "".join(f"; {_name(row)} shows μ at least {mu(row.mu)}" for row in _curves(claim))
    best = next((row for row in tabled(claim) if row.decides), None)
    if best is None or best.errors is None:
        return f"{text}."
    fpr, fnr = map(percent, best.errors.rates)
    return f"{text}; the {best.subject} canary’s test has {fpr} false positives and {fnr} false negatives."
