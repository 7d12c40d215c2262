"""Small plots of one system: ε over rounds and over records, participations of records, importance of devices."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from vflpriv.common.formatting import count, delta, epsilon, exact
from vflpriv.common.numerics import Floats
from vflpriv.render.document import Plot
from vflpriv.render.plots.chart import Axis, Chart, decades, nice_ticks
from vflpriv.report.audit import BudgetRow, ClaimRow, Spending, SystemRow

__all__ = ["importance_plot", "participation_plot", "records_plot", "rounds_plot", "seen_by"]


_WIDTH, _HEIGHT, _LOW = 281.0, 180.0, 144.0
_READINGS = {"rigorous": ("rigorous", "rigorous", ""), "paper": ("paper", "paper’s reading", "12 4")}
_LOG_FROM = 40.0
"""The ratio of the largest to the smallest value above which an axis is logarithmic."""


def rounds_plot(claim: ClaimRow) -> Plot | None:
    """ε after so many rounds, beside the claimed ε; None where no budget is finite."""
    if not claim.spending:
        return None
    last_round = max(spent.rounds[-1] for spent in claim.spending)
    ticks = nice_ticks(0, last_round, 5, whole=True)
    chart = Chart(
        Axis(low=0, high=last_round, name="rounds", ticks=ticks), _epsilon_axis(claim), width=_WIDTH, height=_HEIGHT
    )
    descriptions = []
    for spent in claim.spending:
        colour, name, dashes = _READINGS.get(spent.reading, _READINGS["rigorous"])
        ends = f"{epsilon(spent.epsilon_upper[0])} after round {spent.rounds[0]}, {epsilon(spent.epsilon_upper[-1])}"
        descriptions.append(f"{name}: ε {ends} after round {spent.rounds[-1]}")
        label = f"{name}: ε ≤ {epsilon(spent.epsilon_upper[-1])} in the end"
        places = zip(spent.rounds, _shown(spent.epsilon_upper), strict=True)
        chart.line(places, colour, width=2, dashes=dashes, label=label)
    if 0 < claim.epsilon < math.inf:
        claimed = [(0, claim.epsilon), (last_round, claim.epsilon)]
        chart.line(claimed, "claimed", width=1.6, dashes="3 2.4", label=f"claimed: ε = {epsilon(claim.epsilon)}")
    description = f"Claimed ε {epsilon(claim.epsilon)}; {'; '.join(descriptions)}."
    several, bounds = len(claim.spending) > 1, any(s.epsilon_lower != s.epsilon_upper for s in claim.spending)
    header = ("Rounds", *(["Reading"] * several), *(["ε ≥", "ε ≤"] if bounds else ["ε"]))
    rows = [
        (count(t), *([_name(s)] * several), *((exact(low), exact(high)) if bounds else (exact(high),)))
        for s in claim.spending
        for t, low, high in zip(s.rounds, s.epsilon_lower, s.epsilon_upper, strict=True)
    ]
    return Plot(
        svg=chart.svg(f"ε over rounds of claim {claim.key}", description),
        caption="What the run would have cost, had it stopped earlier.",
        header=header,
        rows=rows,
    )


def _name(spent: Spending) -> str:
    return _READINGS.get(spent.reading, ("", spent.reading))[1]


def _epsilon_axis(claim: ClaimRow) -> Axis:
    """From 0, or logarithmic where ends differ much."""
    name = f"ε at δ = {delta(claim.delta)}"
    ends = [e for s in claim.spending for e in (s.epsilon_upper[-1], claim.epsilon) if 0 < e < math.inf]
    every = [e for s in claim.spending for e in s.epsilon_upper if 0 < e < math.inf] + ends
    if not ends or max(ends) <= _LOG_FROM * min(ends):
        most = 1.05 * max(every, default=1.0)
        return Axis(low=0, high=most, name=name, ticks=nice_ticks(0, most, 6))
    return decades(min(every), max(every), name)


def _shown(values: Sequence[float]) -> list[float]:
    """The values with gaps for infinities and zeros, which a logarithmic axis cannot show."""
    return [v if 0 < v < math.inf else math.nan for v in values]


def records_plot(claim: ClaimRow, spent: Spending) -> Plot | None:
    """A histogram of the records' own ε; None where records have none, or all the same."""
    if len(spent.records) < 2:
        return None
    bins = np.array(spent.records, dtype=np.float64)
    worst, least, total = float(bins[-1, 1]), float(bins[0, 0]), int(bins[:, 2].sum())
    centres, numbers, width = _bars(bins[:, :2].mean(axis=1), bins[:, 2])
    name = _name(spent)
    low, high = float(centres[0]) - width, max(float(centres[-1]) + width, worst)
    across = Axis(
        low=low,
        high=high + 0.05 * (high - low),
        name=f"a record’s own ε at δ = {delta(spent.delta)}",
        ticks=nice_ticks(low, high, 4),
        text=lambda value: f"{value:,.4g}" if abs(value) < 1e4 else epsilon(value),
    )
    chart = Chart(across, _numbers_axis(float(numbers.max())), width=_WIDTH, height=_HEIGHT)
    halves = zip(centres - width / 2, centres + width / 2, numbers, strict=True)
    chart.bars([(float(start), float(end), float(top)) for start, end, top in halves], "natural")
    top = 1.2 * float(numbers.max())
    chart.line([(worst, 0), (worst, top)], "worst-case", width=1.4, dashes="5.6 2.8")
    chart.at(f"worst: {epsilon(worst)}", worst, 0.95 * top, anchor="end")
    description = f"{total} records spend between {epsilon(least)} and {epsilon(worst)}."
    return Plot(
        svg=chart.svg(f"ε over records of claim {claim.key}, {name}", description),
        caption=f"What each record spends by itself, {name}. The budget is the worst one’s.",
        header=("ε from", "ε to", "Records"),
        rows=[(exact(low), exact(high), count(int(n))) for low, high, n in spent.records],
    )


def _numbers_axis(most: float) -> Axis:
    """An axis of numbers of records, with room for words above the highest bar."""
    return Axis(low=0, high=1.2 * most, name="records", ticks=nice_ticks(0, 1.2 * most, 4, whole=True))


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
    counts = sorted(budgets[0].participation_histogram.items())
    times, records = np.array(counts, dtype=np.float64).T
    span = float(times[-1] - times[0]) + 1
    edges = np.linspace(times[0] - 0.5, times[-1] + 0.5, int(min(span, 40)) + 1)
    heights, _ = np.histogram(times, bins=edges, weights=records)
    low, high = float(edges[0]) - 0.05 * span - 0.5, float(edges[-1]) + 0.05 * span + 0.5
    ticks = nice_ticks(low, high, 5, whole=True)
    across = Axis(low=low, high=high, name="participations", ticks=ticks)
    chart = Chart(across, _numbers_axis(float(heights.max())), width=_WIDTH, height=_LOW)
    gap = 0.07 * float(edges[1] - edges[0])
    bins = [(float(a), float(b), float(n)) for a, b, n in zip(edges[:-1], edges[1:], heights, strict=True) if n]
    chart.bars([(start + gap, end - gap, number) for start, end, number in bins], "claimed")
    views = ", ".join(dict.fromkeys(budget.adversary for budget in budgets))
    description = f"{int(records.sum())} records take part between {counts[0][0]} and {counts[-1][0]} times."
    return Plot(
        svg=chart.svg(f"Participations seen by {views}", description),
        caption=seen_by(budgets),
        header=("Times from", "to", "Records"),
        rows=[(count(math.ceil(start)), count(math.floor(end)), count(int(n))) for start, end, n in bins],
    )


def seen_by(budgets: Sequence[BudgetRow]) -> str:
    """The views and the readings of budgets, each once."""
    views, readings = (dict.fromkeys(getattr(b, name) for b in budgets) for name in ("adversary", "reading"))
    return f"{', '.join(views)} ({', '.join(readings)})"


def importance_plot(system: SystemRow) -> Plot:
    """One bar per device: the norm of its head."""
    weights = system.importance
    top = 1.05 * max(weights) or 1.0
    ticks = nice_ticks(0, len(weights) - 1, 8, whole=True)
    across = Axis(low=-0.6, high=len(weights) - 0.4, name="device", ticks=ticks)
    up = Axis(low=0, high=top, name="head norm", ticks=nice_ticks(0, top, 4))
    chart = Chart(across, up, width=_WIDTH, height=_LOW)
    chart.bars([(device - 0.4, device + 0.4, weight) for device, weight in enumerate(weights)], "claimed")
    least, most = (choose(range(len(weights)), key=weights.__getitem__) for choose in (min, max))
    description = f"Device {most} weighs most, {weights[most]:.3g}; device {least} least, {weights[least]:.3g}."
    return Plot(
        svg=chart.svg("Importance of each device", description),
        caption="Norm of each device’s head.",
        header=("Device", "Head norm"),
        rows=[(str(device), f"{weight:.3g}") for device, weight in enumerate(weights)],
    )
