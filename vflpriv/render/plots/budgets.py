"""Small plots of one system: ε over rounds and over records, participations of records, importance of devices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from vflpriv.common.formatting import count, delta, epsilon, exact, power
from vflpriv.common.numerics import Floats
from vflpriv.render.plots.svg import COLOURS, Plot, drawing, drawn, svg, titled
from vflpriv.report.audit import BudgetRow, ClaimRow, Spending, SystemRow

__all__ = ["importance_plot", "participation_plot", "records_plot", "rounds_plot"]


_WIDTH, _HEIGHT = 3.9, 2.5
_READINGS = {"rigorous": ("rigorous", "rigorous", "-"), "paper": ("paper", "paper’s reading", (0, (6, 2)))}
_LOG_FROM = 40.0
"""The ratio of the largest to the smallest value above which an axis is logarithmic."""


def rounds_plot(claim: ClaimRow, *, prefix: str = "") -> Plot | None:
    """ε after so many rounds, beside the claimed ε; None where no budget is finite."""
    if not claim.spending:
        return None
    descriptions = []
    with drawing(_WIDTH, _HEIGHT + 0.2 * (1 + len(claim.spending))) as (figure, axes):
        from matplotlib.ticker import MaxNLocator

        room = 0.2 * (1 + len(claim.spending)) / figure.get_figheight()
        box = axes.get_position()
        axes.set_position((box.x0, box.y0 + room, box.width, box.height - room))
        for spent in claim.spending:
            colour, name, dashes = _READINGS.get(spent.reading, _READINGS["rigorous"])
            last = spent.epsilon_upper[-1]
            label = f"{name}: ε ≤ {epsilon(last)} in the end"
            axes.plot(
                spent.rounds, _shown(spent.epsilon_upper), color=COLOURS[colour], lw=2, ls=dashes, label=label,
                marker="o", ms=2.5,
            )  # fmt: skip
            ends = f"{epsilon(spent.epsilon_upper[0])} after round {spent.rounds[0]}, {epsilon(last)}"
            descriptions.append(f"{name}: ε {ends} after round {spent.rounds[-1]}")
        claimed = f"claimed: ε = {epsilon(claim.epsilon)}"
        axes.axhline(claim.epsilon, color=COLOURS["claimed"], lw=1.6, ls=(0, (2, 1.5)), label=claimed)
        finite = [e for s in claim.spending for e in (s.epsilon_upper[-1], claim.epsilon) if 0 < e < math.inf]
        wide = bool(finite) and max(finite) > _LOG_FROM * min(finite)
        axes.set(xlabel="rounds", ylabel=f"ε at δ = {delta(claim.delta)}", yscale="log" if wide else "linear")
        axes.set_xlim(left=0)
        if wide:
            axes.yaxis.set_major_formatter(lambda value, _: power(math.log10(value)))
            axes.yaxis.set_minor_formatter(lambda *_: "")
        else:
            axes.set_ylim(bottom=0)
        axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        axes.grid(color=COLOURS["frame"], alpha=0.22, lw=0.6)
        figure.legend(loc="lower left", frameon=False, labelspacing=0.3, handlelength=2.4)
        description = f"Claimed ε {epsilon(claim.epsilon)}; {'; '.join(descriptions)}."
        picture = svg(figure, f"ε over rounds of claim {claim.key}", description, prefix)
    rows = [
        (count(t), _READINGS.get(s.reading, ("", s.reading))[1], exact(low), exact(high))
        for s in claim.spending
        for t, low, high in zip(s.rounds, s.epsilon_lower, s.epsilon_upper, strict=True)
    ]
    caption = "What the run would have cost, had it stopped earlier."
    return Plot(svg=picture, caption=caption, header=("Rounds", "Reading", "ε ≥", "ε ≤"), rows=rows)


def _shown(values: Sequence[float]) -> list[float]:
    """The values with gaps for infinities and zeros, which a logarithmic axis cannot show."""
    return [v if 0 < v < math.inf else math.nan for v in values]


def records_plot(claim: ClaimRow, spent: Spending, *, prefix: str = "") -> Plot | None:
    """A histogram of the records' own ε; None where records have none."""
    if not spent.records:
        return None
    bins = np.array(spent.records, dtype=np.float64)
    worst, least, total = float(bins[-1, 1]), float(bins[0, 0]), int(bins[:, 2].sum())
    centres, numbers, width = _bars(bins[:, :2].mean(axis=1), bins[:, 2])
    name = _READINGS.get(spent.reading, ("", spent.reading))[1]
    with drawing(_WIDTH, _HEIGHT) as (figure, axes):
        from matplotlib.ticker import MaxNLocator

        axes.bar(centres, numbers, width=width, color=COLOURS["natural"])
        axes.axvline(worst, color=COLOURS["worst-case"], lw=1.4, ls=(0, (4, 2)))
        axes.set_ylim(top=1.2 * axes.get_ylim()[1])
        axes.annotate(
            f"worst: {epsilon(worst)}", (worst, 1), xycoords=("data", "axes fraction"), xytext=(-4, -2),
            textcoords="offset points", ha="right", va="top",
        )  # fmt: skip
        axes.set(xlabel=f"a record’s own ε at δ = {delta(spent.delta)}", ylabel="records")
        axes.xaxis.set_major_locator(MaxNLocator(4))
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.4g}" if abs(value) < 1e4 else epsilon(value))
        axes.yaxis.set_major_locator(MaxNLocator(4, integer=True))
        description = f"{total} records spend between {epsilon(least)} and {epsilon(worst)}."
        picture = svg(figure, f"ε over records of claim {claim.key}, {name}", description, prefix)
    rows = [(exact(low), exact(high), count(int(n))) for low, high, n in spent.records]
    caption = f"What each record spends by itself, {name}. The budget is the worst one’s."
    return Plot(svg=picture, caption=caption, header=("ε from", "ε to", "Records"), rows=rows)


def _bars(places: Floats, numbers: Floats) -> tuple[Floats, Floats, float]:
    """Places, heights and width of bars that do not overlap; bars too close to tell apart are added up."""
    span = float(places[-1] - places[0]) or 0.5 * float(places[-1]) or 1.0
    width = 0.8 * float(np.diff(places).min(initial=span))
    if width >= 0.015 * span:
        return places, numbers, min(width, 0.15 * span)
    heights, edges = np.histogram(places, bins=40, weights=numbers)
    return (edges[:-1] + edges[1:]) / 2, heights, 0.8 * float(edges[1] - edges[0])


def participation_plot(budgets: Sequence[BudgetRow]) -> Plot:
    """A histogram of how often these adversaries, who all see the same, see each record."""
    counts = tuple(sorted(budgets[0].participation_histogram.items()))
    picture, rows = _drawn_histogram(counts)
    views = ", ".join(dict.fromkeys(budget.adversary for budget in budgets))
    readings = ", ".join(dict.fromkeys(budget.reading for budget in budgets))
    total = sum(records for _, records in counts)
    description = f"{total} records take part between {counts[0][0]} and {counts[-1][0]} times."
    picture = titled(picture, f"Participations seen by {views}", description, "")
    caption = f"{views}: {readings}"
    return Plot(svg=picture, caption=caption, header=("Times from", "to", "Records"), rows=list(rows))


@lru_cache(maxsize=64)
def _drawn_histogram(counts: tuple[tuple[int, int], ...]) -> tuple[str, tuple[tuple[str, ...], ...]]:
    """The drawing and the table of a histogram: many adversaries of a system have the same, which is drawn once."""
    times, records = np.array(counts, dtype=np.float64).T
    span = float(times[-1] - times[0]) + 1
    bins = np.linspace(times[0] - 0.5, times[-1] + 0.5, int(min(span, 40)) + 1)
    with drawing(_WIDTH, 2.0) as (figure, axes):
        from matplotlib.ticker import MaxNLocator

        shown, _, _ = axes.hist(times, bins=bins.tolist(), weights=records, color=COLOURS["claimed"], rwidth=0.86)
        axes.set(xlabel="participations", ylabel="records")
        axes.set_xlim(bins[0] - 0.05 * span - 0.5, bins[-1] + 0.05 * span + 0.5)
        axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        axes.yaxis.set_major_locator(MaxNLocator(3, integer=True))
        picture = drawn(figure)
    ends = zip(np.ceil(bins[:-1]), np.floor(bins[1:]), np.asarray(shown), strict=True)
    return picture, tuple((count(int(low)), count(int(high)), count(int(n))) for low, high, n in ends if n)


def importance_plot(system: SystemRow, *, prefix: str = "") -> Plot:
    """One bar per device: the norm of its head."""
    weights = np.array(system.importance)
    with drawing(_WIDTH, 2.0) as (figure, axes):
        from matplotlib.ticker import MaxNLocator

        axes.bar(np.arange(len(weights)), weights, color=COLOURS["claimed"])
        axes.set(xlabel="device", ylabel="head norm")
        axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))
        axes.yaxis.set_major_locator(MaxNLocator(3))
        least, most = int(weights.argmin()), int(weights.argmax())
        description = f"Device {most} weighs most, {weights[most]:.3g}; device {least} least, {weights[least]:.3g}."
        picture = svg(figure, "Importance of each device", description, prefix)
    rows = [(str(device), f"{weight:.3g}") for device, weight in enumerate(system.importance)]
    return Plot(svg=picture, caption="Norm of each device’s head.", header=("Device", "Head norm"), rows=rows)
