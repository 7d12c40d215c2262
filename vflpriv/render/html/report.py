"""The report as one self-contained page: the verdict at a glance, the evidence one click below; nothing is fetched."""

from __future__ import annotations

import json

from vflpriv.core.claims import Verdict
from vflpriv.render.features import FeatureSection
from vflpriv.render.html.page import environment
from vflpriv.render.shared import banner, worst_word
from vflpriv.report.audit import Report

__all__ = ["environment", "render_html"]

_EXITS = {
    0: "all claims hold",
    1: "a claim is violated",
    2: "bad usage or configuration",
    3: "no claim is violated, but one is unsupported",
    4: "internal error",
}


def render_html(report: Report) -> str:
    """The page. The same report gives the same bytes."""
    words = [(word, report.count(word)) for word in Verdict if report.count(word)]
    overview = environment().get_template("summary.html.j2").module
    return (
        environment()
        .get_template("report.html.j2")
        .render(
            report=report,
            banner=banner(report),
            word=worst_word(report),
            features=FeatureSection(report.features) if report.features else None,
            words=words,
            costs=overview.costs(report),  # type: ignore[attr-defined]
            matrix=overview.matrix(report),  # type: ignore[attr-defined]
            exit_meaning=_EXITS.get(report.exit_code, "unknown"),
            config=json.dumps(report.config, indent=2, ensure_ascii=False, default=str),
        )
    )
