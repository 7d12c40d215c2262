"""What is said of one training of each system: accuracy, traffic and staleness, the results of `vflpriv train`."""

from __future__ import annotations

from vflpriv.common import formatting as f
from vflpriv.render import document as d
from vflpriv.report.audit import Utility
from vflpriv.report.train import TrainReport, TrainRow, Validation

__all__ = ["training_document"]


@d.described_by.register
def training_document(report: TrainReport) -> d.Document:
    """One line for each system; terminals have columns for what any of them has, such as the AUC."""
    title = "One training of each system"
    accuracies = "; ".join(f"{row.key}: accuracy {_accuracy(row.utility)}" for row in report.systems)
    return d.Document(
        headline=title,
        line=f.clean(accuracies),
        outcome="",
        blocks=(
            d.Table(_columns(report), report.systems, title=title),
            *(d.Paragraph(f"{f.clean(row.key)}: {f.clean(row.noise_source)}.") for row in report.systems),
        ),
    )


def _columns(report: TrainReport) -> list[d.Column]:
    def measured(name: str) -> bool:
        return any(getattr(row, name) is not None for row in report.systems)

    validation = [
        d.Column(">validation/accuracy", lambda row: _accuracy(row.validation), only=d.TERMINAL),
        d.Column("?>interval", lambda row: _interval(row.validation), only=d.TERMINAL),
    ]
    return [
        d.Column("system", lambda row: f.shorten(row.key, 30)),
        d.Column("engine", lambda row: f.clean(row.engine)),
        d.Column(">rounds", _rounds),
        d.Column(">test accuracy", lambda row: _accuracy(row.utility), "test/accuracy"),
        d.Column("?>interval", lambda row: _interval(row.utility)),
        *([d.Column(">AUC", lambda row: f.percent(row.auc), "AUC", d.TERMINAL)] if measured("auc") else []),
        *(validation if measured("validation") else []),
        d.Column(">loss", _loss, only=d.TERMINAL),
        d.Column(">up", lambda row: f.size(row.traffic.up) if row.traffic else f.NOTHING),
        d.Column(">down", lambda row: f.size(row.traffic.down) if row.traffic else f.NOTHING),
        d.Column(">stale rounds/median, most", _stale, only=d.TERMINAL),
        *([d.Column(">simulated/time", _seconds, only=d.TERMINAL)] if measured("seconds") else []),
    ]


def _accuracy(measured: Utility | Validation | None) -> str:
    return f.percent(measured.accuracy) if measured else f.NOTHING


def _interval(measured: Utility | Validation | None) -> str:
    return f.interval(measured.accuracy_low, measured.accuracy_high) if measured else f.NOTHING


def _rounds(row: TrainRow) -> str:
    """The rounds of the schedule, with those that were trained where it stopped earlier."""
    if row.stopping is None or row.stopping.trained_rounds == row.rounds:
        return f.count(row.rounds)
    return f"{f.count(row.stopping.trained_rounds)} of {f.count(row.rounds)}"


def _loss(row: TrainRow) -> str:
    return f"{f.exact(row.utility.loss_before)} → {f.exact(row.utility.loss_after)}" if row.utility else f.NOTHING


def _stale(row: TrainRow) -> str:
    return f"{f.count(row.staleness.median)}, {f.count(row.staleness.largest)}" if row.staleness else "none"


def _seconds(row: TrainRow) -> str:
    return f.NOTHING if row.seconds is None else f"{row.seconds:.6g} s"
