"""The importance of every device, as the norm of its head, for each row of a reproduction that has heads."""

from __future__ import annotations

from collections.abc import Sequence

from vflpriv.common.formatting import shorten
from vflpriv.experiments.reproduce.result import Reproduction, TrainedLine
from vflpriv.render.plots.svg import COLOURS, Plot, drawing, svg

__all__ = ["importance_plots"]

_SIZE = (4.6, 3.2)
_INKS = ("claimed", "worst-case", "crafted", "rigorous", "paper", "natural")
_TITLE = "Importance of the devices"
_CAPTION = "Norm of each device's head at the end, mean over seeds. Devices are numbered from 0."
_WIDTH = 0.8
"""Share of a device's place on the axis that its bars take."""


def importance_plots(report: Reproduction) -> list[Plot]:
    """One plot of all rows whose engine has a head for each device; none where no engine has."""
    rows = [(line.title, _mean(line)) for line in report.lines if all(curve.importance for curve in line.curves)]
    if not rows:
        return []
    devices = max(len(norms) for _, norms in rows)
    described = "; ".join(f"{title} is largest at device {_largest(norms)}" for title, norms in rows)
    return [
        Plot(
            svg=_drawn(rows, devices, f"Norm of each device's head: {described}."),
            caption=" ".join([_CAPTION, *_caveats(report)]),
            header=("Row", *(f"Device {m}" for m in range(devices))),
            rows=[(title, *(f"{norm:.3f}" for norm in norms)) for title, norms in rows],
        )
    ]


def _caveats(report: Reproduction) -> list[str]:
    """One for each row in whose trainings the norms show the random start."""
    first = {
        line.title: next((c.importance_caveat for c in line.curves if c.importance_caveat), "") for line in report.lines
    }
    return [f"{title}: {caveat}" for title, caveat in first.items() if caveat]


def _mean(line: TrainedLine) -> list[float]:
    columns = zip(*(curve.importance for curve in line.curves), strict=True)
    return [sum(norms) / len(norms) for norms in columns]


def _largest(norms: Sequence[float]) -> int:
    return max(range(len(norms)), key=norms.__getitem__)


def _drawn(rows: Sequence[tuple[str, Sequence[float]]], devices: int, description: str) -> str:
    width = _WIDTH / len(rows)
    with drawing(*_SIZE) as (figure, axes):
        for number, (title, norms) in enumerate(rows):
            places = [m - _WIDTH / 2 + (number + 0.5) * width for m in range(len(norms))]
            ink = COLOURS[_INKS[number % len(_INKS)]]
            axes.bar(places, norms, width=width, color=ink, label=shorten(title, 28))
        axes.set_xticks(range(devices))
        axes.set_xlabel("device")
        axes.set_ylabel("norm of its head")
        axes.legend(frameon=False, fontsize=8, loc="lower center")
        return svg(figure, _TITLE, description, "importance")
