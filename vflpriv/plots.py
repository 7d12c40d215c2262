"""Plots as inline SVG: deterministic, readable on light and dark pages, with text that stays text."""

from __future__ import annotations

import hashlib
import html
import io
import math
import re
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv, ndtr

from vflpriv.formatting import clean, confidence, delta, epsilon, mu, percent, shorten
from vflpriv.render_shared import headline
from vflpriv.report import BudgetRow, ClaimRow, MeasurementRow, SystemRow
from vflpriv.tradeoff import curve

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["importance_svg", "participation_svg", "tradeoff_svg"]

# matplotlib draws with these colours; the page may override each one through its CSS variable. Okabe-Ito hues,
# darkened until each has a contrast of 3:1 on white.
_COLOURS = {
    "text": "#010203",
    "frame": "#7f7f81",
    "claimed": "#0072b2",
    "paper": "#b37400",
    "rigorous": "#a85a8a",
    "worst-case": "#d04a00",
    "crafted": "#00855f",
    "natural": "#5f6b76",
}
_CANARIES = {"natural": ("natural", "o"), "crafted": ("crafted", "s"), "worst-case": ("worst-case", "D")}
_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "vflpriv",
    "font.family": "DejaVu Sans",
    "font.size": 9.5,
    "text.parse_math": False,
    "text.color": _COLOURS["text"],
    "axes.labelcolor": _COLOURS["text"],
    "axes.edgecolor": _COLOURS["frame"],
    "axes.linewidth": 0.8,
    "xtick.color": _COLOURS["frame"],
    "ytick.color": _COLOURS["frame"],
    "xtick.labelcolor": _COLOURS["text"],
    "ytick.labelcolor": _COLOURS["text"],
}
_NAMESPACE, _LINKS = "http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"
# Dense where the curve of a large mu bends.
_RATES: NDArray[np.float64] = np.concatenate([[0.0], ndtr(np.linspace(-4.5, 4.5, 121)), [1.0]])


def tradeoff_svg(claim: ClaimRow, *, prefix: str = "") -> str:
    """What any test must err under the claim, under the accounted budgets, and what the audit's tests erred.

    `prefix` keeps the ids of several plots of one page apart.
    """
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context(_STYLE):
        rows = 4 + (claim.paper_reading is not None) + len(claim.measurements)
        legend = 0.2 * rows + 0.05
        height = legend + 3.7
        figure = Figure(figsize=(5.0, height))
        axes = figure.add_axes((0.7 / 5, (legend + 0.5) / height, 4.0 / 5, 3.1 / height))
        _promises(axes, claim)
        for row in claim.measurements:
            _measured(axes, row, boxed=row is headline(claim))
        _frame(axes)
        handles, labels = axes.get_legend_handles_labels()
        figure.legend(handles, labels, loc="lower left", frameon=False, handlelength=2.6, labelspacing=0.35)
        return _svg(figure, f"Trade-off curve of claim {claim.key}", _spoken(claim), prefix)


def participation_svg(budget: BudgetRow, *, prefix: str = "") -> str:
    """How many records pass how often before the adversary's eyes; empty where the budget has no counts."""
    if not budget.participation_histogram:
        return ""
    import matplotlib as mpl
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    times = np.array(sorted(budget.participation_histogram), dtype=np.float64)
    records = np.array([budget.participation_histogram[int(t)] for t in times], dtype=np.float64)
    span = float(times[-1] - times[0]) + 1
    bins = np.linspace(times[0] - 0.5, times[-1] + 0.5, int(min(span, 40)) + 1)
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(3.4, 1.7))
        axes = figure.add_axes((0.17, 0.29, 0.8, 0.64))
        axes.hist(times, bins=bins.tolist(), weights=records, color=_COLOURS["claimed"], rwidth=0.86)
        axes.set(xlabel="participations", ylabel="records")
        axes.set_xlim(bins[0] - 0.05 * span - 0.5, bins[-1] + 0.05 * span + 0.5)
        axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        axes.yaxis.set_major_locator(MaxNLocator(3, integer=True))
        axes.spines[["top", "right"]].set_visible(False)
        spoken = f"{records.sum():.0f} records take part between {times[0]:.0f} and {times[-1]:.0f} times."
        return _svg(figure, f"Participations seen by {budget.adversary}", spoken, prefix)


def importance_svg(system: SystemRow, *, prefix: str = "") -> str:
    """A bar for each device's weight in the model."""
    import matplotlib as mpl
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    weights = np.array(system.importance)
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(3.4, 1.7))
        axes = figure.add_axes((0.17, 0.29, 0.8, 0.64))
        axes.bar(np.arange(len(weights)), weights, color=_COLOURS["claimed"])
        axes.set(xlabel="device", ylabel="head norm")
        axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))
        axes.yaxis.set_major_locator(MaxNLocator(3))
        axes.spines[["top", "right"]].set_visible(False)
        least, most = int(weights.argmin()), int(weights.argmax())
        spoken = f"Device {most} weighs most, {weights[most]:.3g}; device {least} least, {weights[least]:.3g}."
        return _svg(figure, "Importance of each device", spoken, prefix)


def _promises(axes: Axes, claim: ClaimRow) -> None:
    """The claimed curve with the region that refutes it, the accounted ones, and blind guessing."""
    promised = curve(claim.mu, _RATES)
    label = f"claimed μ={mu(claim.mu)} (ε={epsilon(claim.epsilon)} at δ={delta(claim.delta)})"
    red = _COLOURS["worst-case"]
    axes.plot([0, 1], [1, 0], color=_COLOURS["frame"], lw=1, ls=(0, (2, 3)), label="blind guessing")
    axes.plot(_RATES, promised, color=_COLOURS["claimed"], lw=2.2, label=label)
    axes.fill_between(_RATES, promised, color=red, alpha=0.13, lw=0, label="below the claimed curve: refutes the claim")
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
        errors = curve(budget.mu, _RATES)
    else:
        # e^700 is the largest that a float holds; the line is on the axis long before.
        steep, room = math.exp(min(budget.epsilon_upper, 700.0)), 1 - budget.delta
        errors = np.maximum(0.0, np.maximum(room - steep * _RATES, (room - _RATES) / steep))
    axes.plot(_RATES, errors, color=_COLOURS[colour], lw=1.8, ls=dashes, clip_on=False, label=label)


def _measured(axes: Axes, row: MeasurementRow, *, boxed: bool) -> None:
    """The test fixed in advance as a point, all thresholds as a thin line; the headline one with its intervals."""
    colour, marker = _CANARIES.get(row.canary, ("natural", "^"))
    ink, trials = _COLOURS[colour], row.trials_per_world
    if row.curve:
        axes.plot(*zip(*row.curve, strict=True), color=ink, lw=1.1, alpha=0.75)
    if not trials:
        return
    x, y = row.false_positives / trials, row.false_negatives / trials
    label = f"measured, {shorten(row.canary, 16)}: μ ≥ {mu(row.mu_lower)} ({confidence(row.confidence)} confidence)"
    if boxed:
        (left, right), (low, high) = (_exact_interval(k, row) for k in (row.false_positives, row.false_negatives))
        axes.fill_between([left, right], low, high, facecolor=ink, alpha=0.28, lw=0)
        axes.plot([left, right, right, left, left], [low, low, high, high, low], color=ink, lw=0.9)
    axes.plot(x, y, marker, ms=6.5 if boxed else 5.5, color=ink, mew=0, label=label, ls="none", zorder=5)


def _exact_interval(errors: int, row: MeasurementRow) -> tuple[float, float]:
    """Clopper-Pearson, two-sided at the row's confidence."""
    trials, tail = row.trials_per_world, (1 - row.confidence) / 2
    low = float(betaincinv(errors, trials - errors + 1, tail)) if errors > 0 else 0.0
    high = float(betaincinv(errors + 1, trials - errors, 1 - tail)) if errors < trials else 1.0
    return low, high


def _frame(axes: Axes) -> None:
    axes.set(xlim=(0, 1), ylim=(0, 1), xlabel="false-positive rate", ylabel="false-negative rate")
    ticks = [0, 0.25, 0.5, 0.75, 1]
    axes.set_xticks(ticks, [f"{t:.0%}" for t in ticks])
    axes.set_yticks(ticks, [f"{t:.0%}" for t in ticks])
    axes.grid(color=_COLOURS["frame"], alpha=0.22, lw=0.6)
    axes.spines[["top", "right"]].set_visible(False)


def _spoken(claim: ClaimRow) -> str:
    """What the plot shows, for those who cannot see it."""
    text = f"Claimed μ {mu(claim.mu)}; accounted ε at most {epsilon(claim.accounted.epsilon_upper)}"
    best = headline(claim)
    if best is None or not best.trials_per_world:
        return f"{text}; not measured."
    fpr, fnr = (percent(k / best.trials_per_world) for k in (best.false_positives, best.false_negatives))
    return f"{text}; the {best.canary} canary’s test errs {fpr} of false positives and {fnr} of false negatives."


def _svg(figure: Figure, title: str, description: str, prefix: str) -> str:
    """The figure as one `<svg>` element: no prologue, no date, no fixed size, ids of its own, a title."""
    out = io.StringIO()
    with warnings.catch_warnings():
        # A name in a script that the measuring font lacks; the reader's browser has a font for it.
        warnings.filterwarnings("ignore", message="Glyph .* missing from", category=UserWarning)
        figure.savefig(out, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    text = out.getvalue()
    text = re.sub(r"\s*<metadata>.*?</metadata>", "", text[text.index("<svg") :], flags=re.DOTALL)
    # A style sheet inside an inline SVG would rule the whole page.
    text = re.sub(r"<defs>\s*<style.*?</style>\s*</defs>", "", text, count=1, flags=re.DOTALL)
    view = re.search(r'viewBox="[^"]*"', text)
    text = re.sub(r"font: ([\d.]+px) [^;\"]*", r"font: \1 system-ui, sans-serif", text)
    for name, colour in _COLOURS.items():
        text = text.replace(colour, "currentColor" if name == "text" else f"var(--plot-{name}, {colour})")
    text = _own_ids(text, prefix or hashlib.sha256(text.encode()).hexdigest()[:8])
    words = f"<title>{html.escape(clean(title))}</title><desc>{html.escape(clean(description))}</desc>"
    label = html.escape(clean(f"{title}. {description}"), quote=True)
    start = f'<svg xmlns="{_NAMESPACE}" xmlns:xlink="{_LINKS}" {view[0] if view else ""} stroke-linejoin="round"'
    return f'{start} role="img" aria-label="{label}">{words}{text[text.index(">") + 1 :].strip()}\n'


def _own_ids(text: str, prefix: str) -> str:
    """Drop ids that nothing refers to; make the others this plot's own, since a page holds several."""
    used = set(re.findall(r"(?:url\(#|href=\"#)([\w-]+)", text))
    text = re.sub(r' id="([^"]+)"', lambda m: f' id="{prefix}-{m[1]}"' if m[1] in used else "", text)
    return re.sub(r"(url\(#|href=\"#)([\w-]+)", rf"\g<1>{prefix}-\g<2>", text)
