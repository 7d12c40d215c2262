"""What is said of dishonest devices: how often predictions come out as they want, and what it costs the main task."""

from __future__ import annotations

from collections.abc import Sequence

from vflpriv.common import formatting as f
from vflpriv.render import document as d
from vflpriv.render.shared import cell_level, leak_points
from vflpriv.report.attacks import IntegrityCell, reasons_of

__all__ = ["integrity_section"]

_CAPTION = (
    "Success is the share of test records that are predicted as a dishonest device wants it: as one class by a "
    "backdoor, wrongly by the others. Chance is the same share of an honestly trained model; no signal, that of one "
    "asked with the same trigger, or noise, in the device's features. Bought is what is beyond both. Accuracy is on "
    "records as they are."
)


def integrity_section(cells: Sequence[IntegrityCell]) -> d.Section:
    """Every attempt, and the reasons why some attacks do not apply; empty where none was tried."""
    tried = [cell for cell in cells if cell.success is not None]
    blocks: list[d.Block] = []
    if tried:
        blocks = [
            d.Paragraph(_CAPTION, only=d.WRITTEN),
            d.Table(_COLUMNS, tried, title="Dishonest devices", caption=_CAPTION, place="integrity-caption"),
        ]
    reasons = reasons_of(cells)
    if reasons:
        lines = [
            (d.strong(attack), f" does not apply to {', '.join(who)}: {why}") for (attack, why), who in reasons.items()
        ]
        blocks.append(d.Bullets(lines, only=d.WRITTEN | d.PAGE))
    return d.Section("Dishonest devices", blocks, "integrity", contents="Dishonest devices", only=~d.NOTEBOOK)


_COLUMNS = (
    d.Column("System", lambda c: c.system),
    d.Column("Defence", lambda c: c.defence),
    d.Column("Attack", lambda c: d.Span(c.attack, "breakable")),
    d.Column("By", lambda c: c.adversary),
    d.Column(">Success", lambda c: f.percent(c.success)),
    d.Column(">Interval", lambda c: f.seeds_interval(c.success_low, c.success_high)),
    d.Column(">Chance", lambda c: f.percent(c.chance)),
    d.Column(">No signal", lambda c: f.percent(c.blind)),
    d.Column(">Bought", lambda c: d.Cell(leak_points(c.leakage), tone=f"leak{cell_level(c)} quiet")),
    d.Column(">Interval", lambda c: f.seeds_interval(c.low, c.high)),
    d.Column(">Accuracy", lambda c: f.percent(c.main)),
    d.Column(">Honest", lambda c: f.percent(c.main_honest)),
)
