"""Inline SVG from matplotlib: the same bytes each time, for light and dark pages, with text as text and a title."""

from __future__ import annotations

import hashlib
import html
import io
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from vflpriv.common.formatting import clean
from vflpriv.render.document import Plot

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["COLOURS", "STYLE", "Plot", "drawing", "drawn", "logarithmic", "svg", "titled"]

# matplotlib draws with these colours; the page may override each one through its CSS variable. Okabe-Ito hues,
# darkened until each has a contrast of 3:1 on white.
COLOURS = {
    "text": "#010203",
    "frame": "#7f7f81",
    "claimed": "#0072b2",
    "paper": "#b37400",
    "rigorous": "#a85a8a",
    "worst-case": "#d04a00",
    "crafted": "#00855f",
    "natural": "#5f6b76",
}
STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "vflpriv",
    "font.family": "DejaVu Sans",
    "font.size": 9.5,
    "text.parse_math": False,
    "text.color": COLOURS["text"],
    "axes.labelcolor": COLOURS["text"],
    "axes.edgecolor": COLOURS["frame"],
    "axes.linewidth": 0.8,
    "xtick.color": COLOURS["frame"],
    "ytick.color": COLOURS["frame"],
    "xtick.labelcolor": COLOURS["text"],
    "ytick.labelcolor": COLOURS["text"],
}
_NAMESPACE, _LINKS = "http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"


@contextmanager
def drawing(width: float, height: float) -> Iterator[tuple[Figure, Axes]]:
    """A figure of this size in inches, in the page's style: room for labels at the left and below, no frame."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(width, height))
        axes = figure.add_axes((0.65 / width, 0.5 / height, (width - 0.8) / width, (height - 0.65) / height))
        axes.spines[["top", "right"]].set_visible(False)
        yield figure, axes


def logarithmic(axes: Axes) -> None:
    """A logarithmic horizontal axis whose numbers are plain text, since formulas are not parsed."""
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(lambda x, _: f"{x:g}".replace("e+0", "e"))
    axes.xaxis.set_minor_formatter(lambda x, _: "")


def in_percent(axes: Axes) -> None:
    """A vertical axis of shares whose numbers are exactly where they stand: no 87.5 % that reads 88 %."""
    axes.locator_params(axis="y", steps=[1, 2, 5, 10])
    axes.yaxis.set_major_formatter(lambda y, _: f"{100 * y:.4g} %")


def svg(figure: Figure, title: str, description: str, prefix: str) -> str:
    """The figure as one `<svg>` element: no prologue, no date, no fixed size, ids of its own, a title."""
    return titled(drawn(figure), title, description, prefix)


def drawn(figure: Figure) -> str:
    """The figure as matplotlib draws it, in the page's colours and fonts."""
    out = io.StringIO()
    with warnings.catch_warnings():
        # A name may have characters that matplotlib's font lacks; the reader's browser has a font for them.
        warnings.filterwarnings("ignore", message="Glyph .* missing from", category=UserWarning)
        figure.savefig(out, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    text = out.getvalue()
    text = re.sub(r"\s*<metadata>.*?</metadata>", "", text[text.index("<svg") :], flags=re.DOTALL)
    # A style sheet inside an inline SVG would apply to the whole page.
    text = re.sub(r"<defs>\s*<style.*?</style>\s*</defs>", "", text, count=1, flags=re.DOTALL)
    text = re.sub(r"font: ([\d.]+px) [^;\"]*", r"font: \1 system-ui, sans-serif", text)
    for name, colour in COLOURS.items():
        text = text.replace(colour, "currentColor" if name == "text" else f"var(--plot-{name}, {colour})")
    return text


def titled(text: str, title: str, description: str, prefix: str) -> str:
    """A drawn figure with ids of its own and a title."""
    view = re.search(r'viewBox="[^"]*"', text)
    text = _own_ids(text, prefix or hashlib.sha256(text.encode()).hexdigest()[:8])
    texts = f"<title>{html.escape(clean(title))}</title><desc>{html.escape(clean(description))}</desc>"
    label = html.escape(clean(f"{title}. {description}"), quote=True)
    start = f'<svg xmlns="{_NAMESPACE}" xmlns:xlink="{_LINKS}" {view[0] if view else ""} stroke-linejoin="round"'
    return f'{start} role="img" aria-label="{label}">{texts}{text[text.index(">") + 1 :].strip()}\n'


def _own_ids(text: str, prefix: str) -> str:
    """Drop ids that nothing refers to; make the others this plot's own, since a page holds several."""
    used = set(re.findall(r"(?:url\(#|href=\"#)([\w-]+)", text))
    text = re.sub(r' id="([^"]+)"', lambda m: f' id="{prefix}-{m[1]}"' if m[1] in used else "", text)
    return re.sub(r"(url\(#|href=\"#)([\w-]+)", rf"\g<1>{prefix}-\g<2>", text)
