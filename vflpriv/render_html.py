"""The report as one self-contained page: the verdict at a glance, the evidence one click below; no script."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from vflpriv import formatting
from vflpriv.plots import importance_svg, participation_svg, tradeoff_svg
from vflpriv.render_shared import banner, best_attack, headline, measured_mu, one_run_sentence, why_infinite, worst_word
from vflpriv.report import BudgetRow, ClaimRow, Report, SystemRow
from vflpriv.verdicts import Word

__all__ = ["environment", "render_html"]

_NUMBERS = ("confidence", "count", "delta", "epsilon", "exact", "mu", "p_value", "percent", "ratio", "size")
_EXITS = {
    0: "all claims hold",
    1: "a claim is violated",
    2: "bad usage or configuration",
    3: "no claim is violated, but one is unsupported",
    4: "internal error",
}
_SHOWN_SETTINGS = 8


def render_html(report: Report) -> str:
    """The page. The same report gives the same bytes."""
    words = [(word, report.count(word)) for word in Word if report.count(word)]
    return (
        environment()
        .get_template("report.html.j2")
        .render(
            report=report,
            banner=banner(report),
            word=worst_word(report),
            words=words,
            exit_meaning=_EXITS.get(report.exit_code, "unknown"),
            config=json.dumps(report.config, indent=2, ensure_ascii=False, default=str),
        )
    )


@cache
def environment() -> Environment:
    """Autoescape for every value; a name that is missing in the template is an error."""
    environment = Environment(
        loader=PackageLoader("vflpriv", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=_finalize,
    )
    environment.filters |= {name: getattr(formatting, name) for name in _NUMBERS}
    environment.filters |= {"clean": formatting.clean, "slug": _slug, "icon": _icon}
    environment.globals |= {
        "best_attack": best_attack,
        "facts_of": _facts,
        "histograms": _histograms,
        "importance": _importance,
        "interval": formatting.interval,
        "share": formatting.share,
        "headline": headline,
        "measured_mu": measured_mu,
        "one_run_sentence": one_run_sentence,
        "tradeoff": _tradeoff,
        "why_infinite": why_infinite,
    }
    return environment


def _finalize(item: Any) -> Any:
    """Names come from elsewhere: control characters would make the page invalid. Markup of our own stays as it is."""
    return formatting.clean_lines(item) if type(item) is str else item


def _slug(word: Word | None) -> str:
    """The CSS class of a verdict."""
    return "none" if word is None else word.value.replace(" ", "-")


def _icon(word: Word | None) -> str:
    return formatting.NOTHING if word is None else formatting.ICONS[word]


def _facts(system: SystemRow) -> dict[str, list[tuple[str, str]]]:
    """Settings and data of a system: the first few at once, the rest one click below."""
    settings = list(formatting.flat(system.settings))
    first, rest = settings[:_SHOWN_SETTINGS], settings[_SHOWN_SETTINGS:]
    return {"first": first, "rest": rest, "data": list(formatting.flat(system.data))}


def _tradeoff(claim: ClaimRow, prefix: str) -> Markup:
    return Markup(tradeoff_svg(claim, prefix=prefix))


def _importance(system: SystemRow, prefix: str) -> Markup:
    return Markup(importance_svg(system, prefix=prefix))


def _histograms(system: SystemRow, prefix: str) -> list[tuple[BudgetRow, Markup]]:
    """One histogram for each distinct one: budgets of several units share the counts of a view."""
    seen: set[tuple[str, tuple[tuple[int, int], ...]]] = set()
    plots: list[tuple[BudgetRow, Markup]] = []
    for row in system.budgets:
        key = (row.adversary, tuple(sorted(row.participation_histogram.items())))
        if key[1] and key not in seen:
            seen.add(key)
            plots.append((row, Markup(participation_svg(row, prefix=f"{prefix}-h{len(plots)}"))))
    return plots
