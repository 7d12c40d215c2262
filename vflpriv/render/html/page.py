"""The environment of the HTML templates: filters, plots, and the one small script that all pages share."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from vflpriv.common import formatting
from vflpriv.core.claims import Verdict
from vflpriv.render.features import between, by_feature, number
from vflpriv.render.first_page.comparable import accounted, cause, claimed, measured, verdict_words
from vflpriv.render.matrix import attack_matrix, refused
from vflpriv.render.plots.budgets import importance_plot, participation_plot, records_plot, rounds_plot
from vflpriv.render.plots.defences import defence_plot, point_mark
from vflpriv.render.plots.overview import traffic_plot, utility_plot
from vflpriv.render.plots.svg import Plot
from vflpriv.render.plots.tradeoff import tradeoff_plot
from vflpriv.render.shared import (
    cell_level,
    measurement_sentences,
    tabled,
    trial_sentences,
    why_infinite,
)
from vflpriv.render.statement import statement
from vflpriv.report.audit import ClaimRow, SystemRow

__all__ = ["environment"]

_NUMBERS = ("confidence", "count", "delta", "epsilon", "exact", "mu", "p_value", "percent", "ratio", "sampled", "size")
_SHOWN_SETTINGS = 8


@cache
def environment() -> Environment:
    """Every value is escaped; a name that a template does not get is an error."""
    environment = Environment(
        loader=PackageLoader("vflpriv.render.html", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=_finalize,
    )
    script = files("vflpriv.render.html").joinpath("templates", "page.js.j2").read_text(encoding="utf-8")
    environment.filters |= {name: getattr(formatting, name) for name in _NUMBERS}
    environment.filters |= {"clean": formatting.clean, "slug": _slug, "icon": _icon, "breakable": _breakable}
    environment.globals |= {
        "accounted": accounted,
        "cause": cause,
        "claimed": claimed,
        "measured": measured,
        "verdict_words": verdict_words,
        "attack_matrix": attack_matrix,
        "between": between,
        "by_feature": by_feature,
        "facts_of": _facts,
        "point_mark": point_mark,
        "frontier": lambda frontier, prefix: defence_plot(frontier, prefix=prefix),
        "histograms": _histograms,
        "importance": lambda system, prefix: importance_plot(system, prefix=f"{prefix}-i"),
        "interval": formatting.interval,
        "seeds_interval": formatting.seeds_interval,
        "share": formatting.share,
        "leak_number": number,
        "cell_level": cell_level,
        "measurement_sentences": measurement_sentences,
        "tabled": tabled,
        "trial_sentences": trial_sentences,
        "records": _records,
        "refused": refused,
        "rounds": lambda claim, prefix: rounds_plot(claim, prefix=f"{prefix}-t"),
        "script": Markup(script),
        "script_hash": _hash(script),
        "statement": statement,
        "tradeoff": lambda claim, prefix: tradeoff_plot(claim, prefix=prefix),
        "traffic": traffic_plot,
        "utility": utility_plot,
        "why_infinite": why_infinite,
    }
    return environment


def _hash(script: str) -> str:
    """The script's hash, as the page's content security policy names the only script that may run."""
    return f"sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}"


def _finalize(item: Any) -> Any:
    """Text without control characters, which would make the page invalid; our own markup stays as it is."""
    return formatting.clean_lines(item) if type(item) is str else item


def _breakable(name: str) -> Markup:
    """A name that may be broken after its underscores, so that its column is as wide as its longest part."""
    return Markup("_<wbr>").join(formatting.clean(name).split("_"))


def _slug(verdict: Verdict | None) -> str:
    """The CSS class of a verdict."""
    return "none" if verdict is None else verdict.value.replace(" ", "-")


def _icon(verdict: Verdict | None) -> str:
    return formatting.NOTHING if verdict is None else verdict.icon


def _facts(system: SystemRow) -> dict[str, list[tuple[str, str]]]:
    """Settings and data of a system: the first few settings are shown, the others in a section that opens."""
    settings = list(formatting.flat(system.settings))
    first, more = settings[:_SHOWN_SETTINGS], settings[_SHOWN_SETTINGS:]
    return {"first": first, "more": more, "data": list(formatting.flat(system.data))}


def _records(claim: ClaimRow, prefix: str) -> list[Plot | None]:
    """A plot for each budget of the claim."""
    return [records_plot(claim, spent, prefix=f"{prefix}-r{i}") for i, spent in enumerate(claim.spending)]


def _histograms(system: SystemRow, prefix: str) -> list[Plot]:
    """Each distinct histogram once: budgets of several units share the counts of a view."""
    distinct = {(b.adversary, tuple(sorted(b.participation_histogram.items()))): b for b in reversed(system.budgets)}
    plots = (participation_plot(b, prefix=f"{prefix}-h{i}") for i, b in enumerate(reversed(distinct.values())))
    return [p for p in plots if p is not None]
