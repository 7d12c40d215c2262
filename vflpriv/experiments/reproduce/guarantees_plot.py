"""Accuracy against ε of a reproduction's rows: at the ε that a paper claims, and at the one that is accounted."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from vflpriv.common.formatting import epsilon, percent
from vflpriv.experiments.reproduce.result import Reproduction, TrainedLine
from vflpriv.render.plots.svg import COLOURS, Plot, drawing, in_percent, logarithmic, svg

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["guarantee_plot"]

_SIZE = (6.4, 3.6)
_INKS = ("claimed", "worst-case", "crafted", "rigorous", "paper", "natural")
_CAPTION = (
    "Test accuracy, mean over seeds, against ε. Hollow: the claimed ε; filled: the accounted one of the same training, "
    "at the right edge where it is infinite."
)


def guarantee_plot(report: Reproduction) -> Plot | None:
    """Two joined marks for each row with a guarantee; None where there is no such row."""
    lines = [line for line in report.lines if line.guarantee is not None]
    if not lines:
        return None
    rows = [(line.title, percent(line.accuracy), *_epsilons(line)) for line in lines]
    described = "; ".join(f"{title}: {reached} at claimed {ours}, accounted {a}" for title, reached, ours, a in rows)
    return Plot(
        svg=_drawn(lines, f"{described}."),
        caption=_CAPTION,
        header=("Row", "Test accuracy", "Claimed ε", "Accounted ε ≤"),
        rows=rows,
    )


def _epsilons(line: TrainedLine) -> tuple[str, str]:
    assert line.guarantee is not None
    return epsilon(line.guarantee.claimed), epsilon(line.guarantee.accounted)


def _drawn(lines: Sequence[TrainedLine], description: str) -> str:
    edge = _edge(lines)
    with drawing(*_SIZE) as (figure, axes):
        engines = list(dict.fromkeys(line.engine for line in lines))
        for line in lines:
            _marks(axes, line, COLOURS[_INKS[engines.index(line.engine) % len(_INKS)]], edge)
        for number, engine in enumerate(engines):
            axes.plot([], [], "o", color=COLOURS[_INKS[number % len(_INKS)]], label=engine)
        axes.plot([], [], "o", mfc="none", color=COLOURS["frame"], label="claimed ε")
        axes.plot([], [], "o", color=COLOURS["frame"], label="accounted ε")
        logarithmic(axes)
        axes.set_xlabel("ε")
        axes.set_ylabel("test accuracy")
        in_percent(axes)
        axes.grid(color=COLOURS["frame"], alpha=0.22, lw=0.6)
        axes.legend(frameon=False, fontsize=8, loc="best")
        return svg(figure, "Test accuracy against claimed and accounted ε", description, "guarantees")


def _edge(lines: Sequence[TrainedLine]) -> float:
    """Where an infinite ε is drawn: ten times as far as the largest other one."""
    both = [value for line in lines if (g := line.guarantee) is not None for value in (g.claimed, g.accounted)]
    return 10 * max(value for value in both if math.isfinite(value))


def _marks(axes: Axes, line: TrainedLine, ink: str, edge: float) -> None:
    assert line.guarantee is not None
    claimed, accounted = line.guarantee.claimed, line.guarantee.accounted
    height, infinite = line.accuracy, math.isinf(accounted)
    axes.plot([claimed, edge if infinite else accounted], [height, height], color=ink, lw=0.9, alpha=0.6)
    axes.plot(claimed, height, "o", mfc="none", color=ink, ms=7)
    axes.plot(edge if infinite else accounted, height, ">" if infinite else "o", color=ink, ms=5)
