"""What is said of a traced script: a table for each unit, the loss of each pair, what to change, and the ledger."""

from __future__ import annotations

from collections.abc import Iterator

from vflpriv.common import formatting as f
from vflpriv.render import document as d
from vflpriv.report.trace import PairRow, TracedKindRow, TraceReport

__all__ = ["trace_document"]


@d.described_by.register
def trace_document(report: TraceReport) -> d.Document:
    """The states of all kinds of messages, and what they cost."""
    return d.Document(
        headline=_outcome(report),
        line=f"{report.script}: {_outcome(report)}",
        outcome="sentence",
        blocks=list(_blocks(report)),
    )


def _blocks(report: TraceReport) -> Iterator[d.Block]:
    size = f"{report.records} records, {report.devices} devices"
    yield d.Paragraph(f"{report.script}: {size}, {report.followed} of {report.rounds} rounds followed")
    yield d.Table(_MESSAGES, report.messages, title="What leaves, where one unit differs")
    yield d.Table(_PAIRS, report.pairs, title="The exact loss of the traced pair; other pairs may differ more")
    why = [f"{row.where}: {row.kind}: {row.why}" for row in report.messages if row.state in ("bare", "unexplained")]
    why += [reason for pair in report.pairs for reason in pair.reasons]
    for title, lines in (("Why", why), ("What to change", report.advice), ("Notes", report.notes)):
        if lines:
            yield d.Paragraph(d.strong(title))
            yield d.Bullets(list(dict.fromkeys(lines)))
    yield d.Paragraph(d.strong("The ledger, as far as one run shows it (--ledger FILE writes it)"))
    yield d.Code(report.ledger.rstrip("\n"), "ledger.toml", only=d.EVERYWHERE)


def _by(row: TracedKindRow) -> str:
    """What seals messages."""
    return row.noise or f.NOTHING


_MESSAGES = (
    d.Column("unit", lambda row: row.unit),
    d.Column("seen by", lambda row: row.view),
    d.Column("kind", lambda row: row.kind),
    d.Column(">messages", lambda row: str(row.messages)),
    d.Column("state", lambda row: "BARE" if row.state == "bare" else row.state),
    d.Column("noise", _by),
    d.Column("line", lambda row: row.where or f.NOTHING),
)


def _cost(row: PairRow) -> str:
    return f.NOTHING if row.reasons else f.epsilon(row.epsilon)


_PAIRS = (
    d.Column("unit", lambda row: row.unit),
    d.Column("seen by", lambda row: row.view),
    d.Column("the two worlds", lambda row: row.what),
    d.Column(">μ", lambda row: f.NOTHING if row.reasons else f.mu(row.mu)),
    d.Column(">ε", _cost),
)


def _outcome(report: TraceReport) -> str:
    bare = sorted({f"{row.kind} ({row.where})" for row in report.messages if row.state == "bare"})
    if bare:
        return f"bare: {', '.join(bare)}"
    if report.exit_code:
        return "not everything is explained"
    return f"all that leaves is clean or sealed, in {report.followed} of {report.rounds} rounds"
