"""Plots over all systems of a report: accounted ε against accuracy, and the traffic of each system."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from vflpriv.common.formatting import count, epsilon, interval, percent, power, shorten, size
from vflpriv.core.claims import Verdict
from vflpriv.render.plots.svg import COLOURS, Plot, drawing, svg
from vflpriv.render.shared import gravest
from vflpriv.report.audit import BudgetRow, Report, SystemRow, Utility

__all__ = ["traffic_plot", "utility_plot"]

_LOOKS = {
    Verdict.VIOLATED: ("worst-case", "X"),
    Verdict.UNSUPPORTED: ("paper", "^"),
    Verdict.UNMEASURED: ("claimed", "D"),
    Verdict.CONSISTENT: ("crafted", "o"),
    Verdict.NOT_APPLICABLE: ("natural", "s"),
    None: ("natural", "s"),
}
_WAYS = (("up", "to the server", "claimed"), ("down", "to devices", "crafted"), ("ids", "record ids", "natural"))
_LINE = 0.2
"""Height of one line of a legend, in inches."""


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
    height = 2.9 + _LINE * len(points)
    with drawing(5.0, height) as (figure, axes):
        box, room = axes.get_position(), _LINE * len(points) / height
        axes.set_position((box.x0, box.y0 + room, box.width, box.height - room))
        for x, p in zip(places, points, strict=True):
            verdict = gravest(c.verdict for c in p.system.all_claims)
            colour, marker = _LOOKS[verdict]
            u = p.utility
            bound = f"ε ≤ {epsilon(p.budget.epsilon_upper)}, {verdict or 'no claim'}"
            label = f"{p.number}  {shorten(p.system.key, 24)}: {bound}"
            axes.plot([x, x], [u.accuracy_low, u.accuracy_high], color=COLOURS[colour], lw=1.3)
            axes.plot(x, u.accuracy, marker, color=COLOURS[colour], ms=7, mew=0, ls="none", label=label)
            axes.annotate(str(p.number), (x, u.accuracy), xytext=(7, 0), textcoords="offset points", va="center")
        axes.set(xlabel=f"accounted ε ({unit}, seen by {adversary})", ylabel="test accuracy", ylim=(0, 1.02))
        axes.set_xticks([x for x, _ in ticks], [text for _, text in ticks])
        axes.set_xlim(min(x for x, _ in ticks) - 0.35, max(x for x, _ in ticks) + 0.5)
        axes.set_yticks([0, 0.25, 0.5, 0.75, 1], ["0 %", "25 %", "50 %", "75 %", "100 %"])
        axes.grid(color=COLOURS["frame"], alpha=0.22, lw=0.6)
        figure.legend(loc="lower left", frameon=False, labelspacing=0.3, handlelength=1.2)
        description = "; ".join(
            f"{p.system.key} ε at most {epsilon(p.budget.epsilon_upper)}, accuracy {percent(p.utility.accuracy)}"
            for p in points
        )
        picture = svg(figure, f"Privacy and utility: {unit}, seen by {adversary}", f"{description}.", "utility")
    rows = [
        (p.system.key, epsilon(p.budget.epsilon_upper), f"{p.budget.delta:g}", percent(p.utility.accuracy),
         interval(p.utility.accuracy_low, p.utility.accuracy_high))
        for p in points
    ]  # fmt: skip
    caption = f"Rigorous ε for the {unit} unit seen by {adversary}, against accuracy on test records."
    return Plot(svg=picture, caption=caption, header=("System", "ε ≤", "δ", "Accuracy", "Interval"), rows=rows)


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
    shares = {way: [getattr(t, way) / s.rounds for s, t in sent] for way, _, _ in _WAYS}
    height = 1.1 + 0.34 * len(sent)
    with drawing(5.0, height) as (figure, axes):
        axes.set_position((1.65 / 5, 0.75 / height, 2.6 / 5, (height - 0.85) / height))
        starts = [0.0] * len(sent)
        rows = list(range(len(sent)))
        for way, name, colour in _WAYS:
            axes.barh(rows, shares[way], left=starts, height=0.6, color=COLOURS[colour], label=name)
            starts = [a + b for a, b in zip(starts, shares[way], strict=True)]
        for row, total in enumerate(starts):
            axes.annotate(size(total), (total, row), xytext=(4, 0), textcoords="offset points", va="center")
        axes.set_yticks(rows, [shorten(s.key, 20) for s, _ in sent])
        axes.invert_yaxis()
        most = max(starts) or 1.0
        axes.set_xlim(0, most)
        axes.set_xticks([0, most / 2, most], [size(x) for x in (0, most / 2, most)])
        axes.set_xlabel("payload per round")
        figure.legend(loc="lower left", ncols=3, frameon=False, handlelength=1.2, columnspacing=1.2)
        description = "; ".join(f"{s.key} {size(total)} per round" for (s, _), total in zip(sent, starts, strict=True))
        picture = svg(figure, "Communication of each system", f"{description}.", "traffic")
    header = ("System", "Rounds", "To the server", "To devices", "Record ids", "In all", "Per round")
    table = [
        (s.key, count(s.rounds), size(t.up), size(t.down), size(t.ids), size(t.up + t.down + t.ids), size(total))
        for (s, t), total in zip(sent, starts, strict=True)
    ]
    return Plot(
        svg=picture,
        caption="Mean payload per round, by direction; the figures below also have the sums over the training.",
        header=header,
        rows=table,
    )
