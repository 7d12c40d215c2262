"""The step summary of a CI job: verdict, claims, what attacks reach, what is worse than the baseline."""

from __future__ import annotations

from collections.abc import Iterator

from vflpriv.common import formatting as f
from vflpriv.render.compare import compare_markdown
from vflpriv.render.markdown import LIMIT, claims_table, escape, success_claims_table, table, within
from vflpriv.render.shared import banner
from vflpriv.report.attacks import AttackReport
from vflpriv.report.audit import Report
from vflpriv.report.compare import AnyReport, Comparison

__all__ = ["render_summary"]


def render_summary(report: AnyReport, comparison: Comparison | None = None, *, limit: int = LIMIT) -> str:
    """Short Markdown; the whole report is in `report.md`. Cut, and saying so, where it would be dropped."""
    if isinstance(report, AttackReport):
        return within(_matrix(report, comparison), limit, whole="attacks.json")
    return within(_blocks(report, comparison), limit)


def _matrix(report: AttackReport, comparison: Comparison | None) -> Iterator[str]:
    """What attacks reach, with what is worse behind its headline."""
    from vflpriv.render.attacks import attacks_blocks

    headline, *rest = attacks_blocks(report)
    yield headline
    if comparison is not None:
        yield _compared(comparison)
    yield from rest


def _compared(comparison: Comparison) -> str:
    return compare_markdown(comparison).replace("# ", "## ", 1).strip()


def _blocks(report: Report, comparison: Comparison | None) -> Iterator[str]:
    yield f"# {banner(report)}"
    yield f"{report.headline}. Confidence {f.confidence(report.confidence)}, seed {report.seed}."
    if comparison is not None:
        yield _compared(comparison)
    if any(system.claims for system in report.systems):
        yield claims_table(report)
    if any(system.success_claims for system in report.systems):
        yield success_claims_table(report)
    if any(system.attacks for system in report.systems):
        yield "## What attacks reach"
        yield _attacks(report)
    yield f"<sub>vflpriv {escape(report.tool_version)}; `report.html` and `report.json` have the evidence</sub>"


def _attacks(report: Report) -> str:
    """One table over all systems; attacks that do not apply are left to the report."""
    header = ("System", "Test accuracy", "Attack", "Seen by", "Success", "Interval", "Chance", "No signal")
    rows = []
    for system in report.systems:
        accuracy = f.percent(system.utility.accuracy if system.utility else None)
        for row in system.attacks:
            if row.success is not None:
                names = (escape(system.key), accuracy, escape(row.attack), escape(row.adversary))
                rates = (f.percent(row.success), f.interval(row.low, row.high))
                rows.append((*names, *rates, f.percent(row.chance), f.percent(row.blind)))
    return table(header, ":-::----", rows) if rows else "No attack applies."
