"""Plots over all systems of a report: accounted ε against accuracy, and the traffic of each system."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from vflpriv.common.formatting import count, epsilon, interval, percent, power, shorten, size
from vflpriv.core.claims import Verdict
from vflpriv.render.document import Plot
from vflpriv.render.plots.chart import Axis, Chart
from vflpriv.render.shared import gravest
from vflpriv.report.audit import BudgetRow, Report, SystemRow, Utility

__all__ = ["traffic_plot", "utility_plot"]

_LOOKS = {
    Verdict.VIOLATED: ("worst-case", "cross"),
    Verdict.UNSUPPORTED: ("paper", "triangle"),
    Verdict.UNMEASURED: ("claimed", "diamond"),
    Verdict.CONSISTENT: ("crafted", "circle"),
    Verdict.NOT_APPLICABLE: ("natural", "square"),
    None: ("natural", "square"),
}
_WAYS = (("up", "to the server", "claimed"), ("down", "to devices", "crafted"), ("ids", "record ids", "natural"))


class _Point(NamedTuple):
    number: int
    system: SystemRow
    utility: Utility
    budget: BudgetRow


def utility_plot(report: Report) -> Plot | None:
    """Accounted ε against accuracy, for the unit and view of most claims; for labels and a device without claims.

    None where no system was trained for which this unit and view apply.
    """
    claimed = Counter((c.unit, c.adversary) for s in report.systems for c in s.claims)
    unit, adversary = next((q for q, _ in claimed.most_common(1)), ("label", "device"))
    points = _points(report.systems, unit, adversary)
    return _utility(unit, adversary, points) if points else None


def _points(systems: Sequence[SystemRow], unit: str, adversary: str) -> list[_Point]:
    """The trained systems, each with its rigorous budget for this unit and view if there is one."""
    points = []
    for number, s in enumerate(systems, start=1):
        same = [b for b in s.budgets if b.unit == unit and b.reading == "rigorous" and _sees(b.adversary, adversary)]
        if s.utility is not None and same and same[0].not_applicable is None:
            points.append(_Point(number, s, s.utility, same[0]))
    return points


def _sees(adversary: str, wanted: str) -> bool:
    """Whether a budget is about this view; a budget about any one device names the worst device."""
    return adversary == wanted or (wanted == "device" and adversary.startswith("device("))


def _utility(unit: str, adversary: str, points: Sequence[_Point]) -> Plot:
    places, ticks = _places([p.budget.epsilon_upper for p in points])
    names = dict(ticks)
    across = Axis(
        low=min(names) - 0.35,
        high=max(names) + 0.5,
        name=f"accounted ε ({unit}, seen by {adversary})",
        ticks=list(names),
        text=names.__getitem__,
    )
    up = Axis(low=0, high=1.02, name="test accuracy", ticks=[0, 0.25, 0.5, 0.75, 1], text=lambda share: f"{share:.0%}")
    chart = Chart(across, up, width=360, height=209)
    for x, p in zip(places, points, strict=True):
        verdict, u = gravest(c.verdict for c in p.system.all_claims), p.utility
        colour, mark = _LOOKS[verdict]
        bound = f"ε ≤ {epsilon(p.budget.epsilon_upper)}, {verdict or 'no claim'}"
        chart.line([(x, u.accuracy_low), (x, u.accuracy_high)], colour, width=1.3)
        chart.mark(x, u.accuracy, mark, colour, label=f"{p.number}  {shorten(p.system.key, 24)}: {bound}")
        chart.at(str(p.number), x, u.accuracy, anchor="start")
    description = "; ".join(
        f"{p.system.key} ε at most {epsilon(p.budget.epsilon_upper)}, accuracy {percent(p.utility.accuracy)}"
        for p in points
    )
    rows = [
        (p.system.key, epsilon(p.budget.epsilon_upper), f"{p.budget.delta:g}", percent(p.utility.accuracy),
         interval(p.utility.accuracy_low, p.utility.accuracy_high))
        for p in points
    ]  # fmt: skip
    return Plot(
        svg=chart.svg(f"Privacy and utility: {unit}, seen by {adversary}", f"{description}."),
        caption=f"Rigorous ε for the {unit} unit seen by {adversary}, against accuracy on test records.",
        header=("System", "ε ≤", "δ", "Accuracy", "Interval"),
        rows=rows,
    )


def _places(epsilons: Sequence[float]) -> tuple[list[float], list[tuple[float, str]]]:
    """The place of each ε on a logarithmic axis that also has 0 and ∞, and the ticks; equal values side by side."""
    finite = [math.log10(e) for e in epsilons if 0 < e < math.inf]
    low, high = (math.floor(min(finite) + 1e-6), math.ceil(max(finite) - 1e-6)) if finite else (0, 0)
    high = max(high, low + 1) if finite else high
    step = max(1, (high - low + 4) // 5)
    ticks = [(float(k), power(k)) for k in range(low, high + 1, step)] if finite else []
    ends = {0.0: (low - 1.0, "0"), math.inf: (high + (1.0 if finite else 0.0), "∞")}
    ticks += [ends[e] for e in ends if e in epsilons]
    raw = [ends[e][0] if e in ends else math.log10(e) for e in epsilons]
    seen: Counter[float] = Counter()
    total = Counter(round(x, 1) for x in raw)
    places = []
    for x in raw:
        key = round(x, 1)
        shift = 0.14 * (high - low + 2) / 4
        places.append(x + shift * (seen[key] - (total[key] - 1) / 2))
        seen[key] += 1
    return places, sorted(ticks)


def traffic_plot(report: Report) -> Plot | None:
    """Bytes per round of each system, by direction; None where none was trained."""
    sent = [(s, s.traffic) for s in report.systems if s.traffic is not None and s.rounds]
    if not sent:
        return None
    totals = [(t.up + t.down + t.ids) / s.rounds for s, t in sent]
    most, names = max(totals) or 1.0, [shorten(s.key, 20) for s, _ in sent]
    across = Axis(low=0, high=1.15 * most, name="payload per round", ticks=[0, most / 2, most], text=size)
    up = Axis(
        low=len(sent) - 0.5, high=-0.5, name="", ticks=range(len(sent)), text=lambda row: names[int(row)]
    )  # the first system is at the top
    chart = Chart(across, up, width=360, height=55 + 24.5 * len(sent), left=105)
    for row, (s, t) in enumerate(sent):
        start = 0.0
        for way, name, colour in _WAYS:
            end = start + getattr(t, way) / s.rounds
            corners = [(start, row - 0.3), (end, row - 0.3), (end, row + 0.3), (start, row + 0.3)]
            chart.area(corners, colour, opacity=1, label="" if row else name)
            start = end
        chart.at(size(totals[row]), totals[row], row, anchor="start")
    description = "; ".join(f"{s.key} {size(total)} per round" for (s, _), total in zip(sent, totals, strict=True))
    header = ("System", "Rounds", "To the server", "To devices", "Record ids", "In all", "Per round")
    table = [
        (s.key, count(s.rounds), size(t.up), size(t.down), size(t.ids), size(t.up + t.down + t.ids), size(total))
        for (s, t), total in zip(sent, totals, strict=True)
    ]
    return Plot(
        svg=chart.svg("Communication of each system", f"{description}."),
        caption="Mean payload per round, by direction; the figures below also have the sums over the training.",
        header=header,
        rows=table,
    )
