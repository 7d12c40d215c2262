"""What is said of a traced script: a table for each unit, what it costs, what to change, and the ledger."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

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
    yield d.Table(_MESSAGES, _grouped(report.messages), title="What leaves, where one unit differs")
    yield d.Table(_pairs(report), _alike(report.pairs), title=f"The ε that this has, in all {report.rounds} rounds")
    read = [
        f"{row.attack} reads {f.percent(row.success)} of labels off what {row.view} sees; guessing alone gets "
        f"{f.percent(row.chance)}"
        for row in sorted(report.attacks, key=lambda row: -row.success)[:1]
    ]
    why = [f"{row.where}: {row.kind}: {row.why}" for row in report.messages if row.state in ("bare", "unexplained")]
    why += [reason for pair in report.pairs for reason in (*pair.reasons, *pair.open)]
    listed = (
        ("Attacks", read),
        ("Why", why),
        ("What the ledger says otherwise", report.differences),
        ("What to change", report.advice),
        ("Notes", report.notes),
    )
    for title, lines in listed:
        if lines:
            yield d.Paragraph(d.strong(title))
            yield d.Bullets(list(dict.fromkeys(lines)))
    yield d.Paragraph(d.strong("The ledger, as far as one run shows it (--ledger FILE writes it)"))
    yield d.Code(report.ledger.rstrip("\n"), "ledger.toml", only=d.EVERYWHERE)


def _grouped(rows: Sequence[TracedKindRow]) -> list[TracedKindRow]:
    """Views to which a kind of message is the same are one row, with the noise that the last of them sees."""
    groups: dict[tuple[str, ...], list[TracedKindRow]] = {}
    for row in rows:
        groups.setdefault((row.unit, row.kind, row.state, row.where), []).append(row)
    views = {unit: len({row.view for row in rows if row.unit == unit}) for unit in {row.unit for row in rows}}
    return [own[-1].model_copy(update={"view": _views(own, views)}) for own in groups.values()]


def _alike(rows: Sequence[PairRow]) -> list[PairRow]:
    """Views with the same figures are one row."""
    groups: dict[tuple[object, ...], list[PairRow]] = {}
    for row in rows:
        groups.setdefault((row.unit, row.what, row.claimed, _accounted(row), _pair(row)), []).append(row)
    views = {unit: len({row.view for row in rows if row.unit == unit}) for unit in {row.unit for row in rows}}
    return [own[-1].model_copy(update={"view": _views(own, views)}) for own in groups.values()]


def _views(rows: Sequence[PairRow] | Sequence[TracedKindRow], views: Mapping[str, int]) -> str:
    """The views of rows of one unit, together."""
    return "any" if len(rows) == views[rows[0].unit] > 1 else ", ".join(row.view for row in rows)


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


def _pair(row: PairRow) -> str:
    """The exact figure, a bound on it, or nothing."""
    if row.reasons:
        least = f.epsilon(row.least)
        return f.NOTHING if not row.refutes else least if math.isinf(row.least) else f"≥ {least}"
    return f.epsilon(row.epsilon) if row.exact or not row.epsilon else f"≤ {f.epsilon(row.epsilon)}"


def _accounted(row: PairRow) -> str:
    return f.NOTHING if row.accounted is None else f.epsilon(row.accounted)


def _pairs(report: TraceReport) -> tuple[d.Column, ...]:
    """Claimed, accounted and measured; what is claimed only if something is."""
    claimed = d.Column(">claimed", lambda row: f.NOTHING if row.claimed is None else f.epsilon(row.claimed))
    return (
        d.Column("unit", lambda row: row.unit),
        d.Column("seen by", lambda row: row.view),
        *([claimed] if any(row.claimed is not None for row in report.pairs) else []),
        d.Column(">accounted", _accounted),
        d.Column(">one pair, exactly", _pair),
        d.Column("the pair", lambda row: row.what),
    )


def _outcome(report: TraceReport) -> str:
    bare = sorted({f"{row.kind} ({row.where})" for row in report.messages if row.state == "bare"})
    if bare:
        return f"bare: {', '.join(bare)}"
    above = [pair for pair in report.pairs if pair.refutes]
    if above:
        worst = max(above, key=lambda pair: pair.least)
        claimed = "" if worst.claimed is None else f", and {f.epsilon(worst.claimed)} is claimed"
        return f"one pair of worlds costs ε {'=' if worst.exact else '≥'} {f.epsilon(worst.least)}{claimed}"
    if any(row.state == "unexplained" for row in report.messages) or not all(pair.explained for pair in report.pairs):
        return "not everything is explained"
    if report.exit_code:
        return "what is claimed is not what is accounted"
    return f"all that leaves is clean or sealed, in {report.followed} of {report.rounds} rounds"
