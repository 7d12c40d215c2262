"""What is said of a comparison of two reports: what is worse, what is better, and what only one of them has."""

from __future__ import annotations

from vflpriv.common import formatting as f
from vflpriv.core.claims import Verdict
from vflpriv.render import document as d
from vflpriv.report.compare import Change, Comparison

__all__ = ["comparison_document"]


@d.described_by.register
def comparison_document(comparison: Comparison) -> d.Document:
    """What is worse, what is better and what else differs, then what only one report has."""
    gone = [(f.clean(name), "not compared: only the first report has it") for name in comparison.only_old]
    new = [(f.clean(name), "not compared: only the second report has it") for name in comparison.only_new]
    return d.Document(
        headline=comparison.headline,
        heading="Compared with the baseline",
        verdict=Verdict.VIOLATED if comparison.regressions else None,
        said=(d.Paragraph(d.strong(comparison.headline), only=d.WRITTEN),),
        blocks=(
            *((d.Table(_CHANGES, comparison.joined, title="Changes"),) if comparison.joined else ()),
            d.Terms(gone + new, only=d.TERMINAL),
            d.Bullets([f"{name}: {note}" for name, note in gone + new], only=d.WRITTEN),
        ),
    )


_DIRECTIONS = {"worse": ("❌ ", "alarm"), "better": ("✅ ", "good"), "": ("", "")}
_CHANGES = (
    d.Column("", lambda c: d.Cell(c.direction, tone=_DIRECTIONS[c.direction][1]), only=d.TERMINAL),
    d.Column("", lambda c: (_DIRECTIONS[c.direction][0], _direction(c)), only=d.WRITTEN),
    d.Column("System", lambda c: f.shorten(c.system, 30), only=d.TERMINAL),
    d.Column("What", lambda c: f"{c.name} of {c.where}" if c.where else c.name, only=d.TERMINAL),
    d.Column("System", lambda c: c.system, only=d.WRITTEN),
    d.Column("What", lambda c: c.name, only=d.WRITTEN),
    d.Column("Of", lambda c: c.where, only=d.WRITTEN, style="notes"),
    d.Column(">Before", lambda c: c.values[0]),
    d.Column(">Now", lambda c: c.values[1]),
)


def _direction(change: Change) -> d.Content:
    return d.strong(change.direction) if change.direction == "worse" else change.direction
