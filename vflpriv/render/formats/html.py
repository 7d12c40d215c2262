"""Results as one self-contained HTML page: the verdict first, the evidence in sections that open."""

from __future__ import annotations

import json

from vflpriv.common.registry import register
from vflpriv.core.claims import Verdict
from vflpriv.render.features import FeatureSection
from vflpriv.render.first_page.page import FirstPage
from vflpriv.render.html.page import environment
from vflpriv.render.pages import page_of
from vflpriv.render.shared import banner, contest_cells, leak_points
from vflpriv.report.attacks import ONLY_STATIC, AttackReport, contests_of
from vflpriv.report.audit import Report
from vflpriv.report.defences import defence_frontiers
from vflpriv.report.formats import Context, Format, Saved

__all__ = ["HtmlFormat", "attacks_html", "render_html"]

_EXIT_CODES = {
    0: "nothing is violated, unsupported or unmeasured",
    1: "a claim is violated, or a premise is broken",
    2: "bad usage or configuration",
    3: "nothing is violated, but something is unsupported or unmeasured",
    4: "internal error",
}


@register("format")
class HtmlFormat(Format):
    """`report.html` of an audit, `attacks.html` of attacks."""

    name = "html"
    summary = "one self-contained page with plots"

    results = ("report", "attacks", "reproduction", "frontier")

    def render(self, result: Saved, context: Context) -> str:
        """The same result gives the same bytes."""
        if isinstance(result, Report):
            return render_html(result)
        if isinstance(result, AttackReport):
            return attacks_html(result)
        page = page_of(result)
        assert page is not None, result.stem
        return page.html(result)


def render_html(report: Report) -> str:
    """The page of an audit."""
    overview = environment().get_template("summary.html.j2").module
    return (
        environment()
        .get_template("report.html.j2")
        .render(
            report=report,
            page=FirstPage(report),
            banner=banner(report),
            verdict=report.verdict,
            features=FeatureSection(report.features) if report.features else None,
            costs=overview.costs(report),  # type: ignore[attr-defined]
            matrix=overview.matrix(report),  # type: ignore[attr-defined]
            exit_meaning=_exit_meaning(report),
            config=json.dumps(report.config, indent=2, ensure_ascii=False, default=str),
        )
    )


def _exit_meaning(report: Report) -> str:
    if report.exit_code == 0 and report.ledger_trusted and report.count(Verdict.UNMEASURED):
        return "the ledger was trusted where nothing was measured, and nothing is violated or unsupported"
    return _EXIT_CODES.get(report.exit_code, "unknown")


def attacks_html(report: AttackReport) -> str:
    """The page of an attack matrix."""
    return (
        environment()
        .get_template("attacks.html.j2")
        .render(
            report=report,
            points=leak_points,
            frontiers=defence_frontiers(report),
            contest_cells=contest_cells,
            only_static=ONLY_STATIC,
            feature_contests=contests_of(report.features),
            features=FeatureSection(report.features) if report.features else None,
        )
    )
