"""Results as the step summary of a CI job: verdict, claims, attacks, regressions against the baseline."""

from __future__ import annotations

from collections.abc import Iterator

from vflpriv.common import formatting as f
from vflpriv.common.registry import register
from vflpriv.render.compare import compare_markdown
from vflpriv.render.features import between, number
from vflpriv.render.first_page.markdown import first_page_blocks
from vflpriv.render.formats.md import attacks_blocks
from vflpriv.render.markdown import LIMIT, escape, table, within
from vflpriv.render.shared import banner
from vflpriv.report.attacks import AttackReport
from vflpriv.report.audit import Report
from vflpriv.report.compare import AnyReport, Comparison
from vflpriv.report.formats import Context, Format

__all__ = ["SummaryFormat", "render_summary"]


@register("format")
class SummaryFormat(Format):
    """`report.summary.md` of an audit, `attacks.summary.md` of attacks; `--summary` writes it to any path."""

    name = "summary"
    summary = "short Markdown, for the step summary of a CI job"
    suffix = "summary.md"

    def render(self, result: AnyReport, context: Context) -> str:
        """With the comparison with a baseline, if there is one."""
        return render_summary(result, context.comparison, limit=LIMIT if context.limit is None else context.limit)


def render_summary(report: AnyReport, comparison: Comparison | None = None, *, limit: int = LIMIT) -> str:
    """Short Markdown; the whole report is in `report.md`. Where it would be longer than `limit` bytes it is cut."""
    if isinstance(report, AttackReport):
        return within(_matrix(report, comparison), limit, whole="attacks.json")
    return within(_blocks(report, comparison), limit)


def _matrix(report: AttackReport, comparison: Comparison | None) -> Iterator[str]:
    """The matrix of attacks, with the comparison after its headline."""
    headline, *blocks = attacks_blocks(report)
    yield headline
    if comparison is not None:
        yield _compared(comparison)
    yield from blocks


def _compared(comparison: Comparison) -> str:
    return compare_markdown(comparison).replace("# ", "## ", 1).strip()


def _blocks(report: Report, comparison: Comparison | None) -> Iterator[str]:
    yield f"# {banner(report)}"
    levels = f"intervals at {f.confidence(report.confidence)}, verdicts at {f.confidence(report.verdict_confidence)}"
    yield f"{report.headline}. Confidence: {levels}; seed {report.seed}."
    if comparison is not None:
        yield _compared(comparison)
    yield from first_page_blocks(report)
    if any(system.attacks for system in report.systems):
        yield "## What attacks reach"
        yield _attacks(report)
    if any(cell.success is not None for cell in report.features):
        yield "## What attacks on features and membership reach"
        yield _features(report)
    yield f"<sub>vflpriv {escape(report.tool_version)}; `report.html` and `report.json` have the evidence</sub>"


def _attacks(report: Report) -> str:
    """One table over all systems; attacks that do not apply are in the report only."""
    header = ("System", "Test accuracy", "Attack", "Seen by", "Success", "Interval", "Chance", "No signal")
    rows = []
    for system in report.systems:
        accuracy = f.percent(system.utility.accuracy if system.utility else None)
        for row in system.attacks:
            if row.success is not None:
                names = (escape(system.key), accuracy, escape(row.attack_name), escape(row.adversary))
                rates = (f.percent(row.success), f.interval(row.low, row.high))
                rows.append((*names, *rates, f.percent(row.chance), f.percent(row.blind)))
    return table(header, ":-::----", rows) if rows else "No attack applies."


def _features(report: Report) -> str:
    """One table over all systems: R² of features and the AUC of an attribute or of membership, and ε of the unit."""
    header = ("System", "Attack", "Seen by", "Measure", "Success", "Interval", "No signal", "ε accounted", "Unit")
    rows = [
        (
            *(escape(cell.system), escape(cell.attack), escape(cell.adversary), escape(cell.measure)),
            number(cell.success),
            between(cell.success_low, cell.success_high),
            number(cell.chance if cell.blind is None else cell.blind),
            f.epsilon(cell.epsilon),
            escape(cell.unit),
        )
        for cell in report.features
        if cell.success is not None
    ]
    return table(header, "::::----:", rows)
