"""How recorded numbers move with the coins of canaries: more than their releases declare, or at all where none does.

The label of a canary is a fair coin between two labels. In each round the batch has some canaries; how many of them
have a label, less what is expected, depends on nothing but coins. So a number of the message that has a slope in it
moves with labels, whatever else is in it. One label then moves it by the slope. What follows of the other labels of the
batch, which no coin decides, is taken out before.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vflpriv.audits.recorded.noise import ALPHA
from vflpriv.audits.twins.reconcile import exactly
from vflpriv.common.lazy import stats
from vflpriv.common.numerics import Floats
from vflpriv.common.registry import register
from vflpriv.common.seeds import host_generator
from vflpriv.core.audit import Audit, AuditContext, Finding
from vflpriv.core.canaries import Canaries
from vflpriv.core.claims import Verdict
from vflpriv.core.ledger import Ledger
from vflpriv.core.releases import Release
from vflpriv.core.systems import Offer
from vflpriv.core.units import Unit
from vflpriv.core.views import EVERYONE
from vflpriv.core.wire import Message

__all__ = ["LabelSlopeAudit", "Slope", "slopes"]

_LEAST = 20
"""Messages below which no slope is estimated."""
_ENTRIES = 16
"""Numbers of each tensor that are looked at, at most; others are drawn at random."""
_UNITS = (Unit.LABEL, Unit.RECORD, Unit.ADD_REMOVE)


_Row = tuple[Floats, Floats, Floats]
"""Of a message: its coins, the labels of the other records of its batch, and its numbers."""


@dataclass(frozen=True, kw_only=True)
class Slope:
    """How far one label moves one number of messages of a kind: the estimate, its lower bound, and a p-value.

    The p-value is of "by no more than is declared", after Bonferroni's correction for all numbers; the lower bound is
    at the same level.
    """

    kind: str
    tensor: str
    estimate: float
    least: float
    declared: float
    p_value: float
    messages: int

    @property
    def sentence(self) -> str:
        moved = (
            f"one label moves {self.tensor} of {self.kind} by about {self.estimate:.3g}, by {self.least:.3g} or more"
        )
        limit = f"{self.declared:.3g} is declared" if self.declared else "the ledger says that it depends on no label"
        return (
            f"{moved} (slope over {self.messages} messages in the coins of canaries, p = {self.p_value:.1e}): {limit}"
        )


@register("audit")
class LabelSlopeAudit(Audit[Any]):
    """Regresses the numbers of recorded messages on the coins of canaries among the labels of their batches."""

    name = "label-slopes"
    topic = "sensitivity"
    summary = "compares how far labels move recorded numbers with the declared sensitivity"
    order = 64
    needs = frozenset({Offer.MESSAGES, Offer.LEDGER_FILE, Offer.LABEL_COINS})

    def run(self, source: Any, context: AuditContext) -> list[Finding]:
        """One finding for each kind that moves further than it should; what it adds counts as a part of the ledger."""
        del context
        moving = slopes(source.messages, source.answers.canaries, source.answers.labels.numpy(), source.ledger.releases)
        return [_finding(slope, source.ledger) for slope in moving]


def slopes(messages: Sequence[Message], canaries: Canaries, labels: Any, releases: Sequence[Release]) -> list[Slope]:
    """Of each kind the slope that exceeds its declared one most surely, where one does at 1 in 1000."""
    coins, others = _coins(canaries, np.asarray(labels))
    series: defaultdict[tuple[str, str], list[_Row]] = defaultdict(list)
    for message in messages:
        if message.records is None:
            continue
        batch = message.records.cpu().numpy()
        for name, tensor in message.tensors.items():
            if tensor.is_floating_point() and tensor.numel() and not _by_rows(tensor, len(batch)):
                design = coins[batch].sum(0), others[batch].sum(0)
                series[message.kind, name].append((*design, tensor.double().reshape(-1).numpy()))
    tested = {key: own for key, own in series.items() if _alike(own)}
    if not tested:
        return []
    level = ALPHA / sum(_width(own) * coins.shape[1] for own in tested.values())
    largest: dict[str, Slope] = {}
    for (kind, name), own in tested.items():
        declared = _declared(kind, releases)
        slope = _steepest(kind, name, own, declared, level)
        if slope is not None and slope.p_value < largest.get(kind, slope).p_value * 1.0000001:
            largest[kind] = slope
    return list(largest.values())


def _coins(canaries: Canaries, labels: NDArray[np.int64]) -> tuple[Floats, Floats]:
    """By record and class: how far a canary's label exceeds what its coin expects, and the labels of others."""
    classes = int(max(labels.max(initial=0), int(canaries.labels.max()))) + 1
    coins, others = np.zeros((len(labels), classes)), np.zeros((len(labels), classes))
    others[np.arange(len(labels)), np.maximum(labels, 0)] = labels >= 0
    for record, pair in zip(canaries.records, canaries.labels.tolist(), strict=True):
        others[record] = 0.0
        coins[record, labels[record]] += 1.0
        coins[record, pair] -= 0.5
    return coins[:, 1:] if classes == 2 else coins, others


def _by_rows(tensor: Any, batch: int) -> bool:
    """Whether it has a row for each record: those are read by attacks and by the learned score."""
    return tensor.dim() >= 2 and int(tensor.shape[1]) == batch and batch > 1


def _alike(series: Sequence[_Row]) -> bool:
    return len(series) >= _LEAST and len({len(y) for *_, y in series}) == 1


def _width(series: Sequence[_Row]) -> int:
    return min(_ENTRIES, len(series[0][2]))


def _declared(kind: str, releases: Sequence[Release]) -> float:
    """How far one label may move one number of a kind by the ledger; inf where it leaves as it is, or is not listed."""
    own = [release for release in releases if release.kind == kind]
    if any(release.noise.norm is None and release.sensitivity for release in own):
        return math.inf
    return max((r.sensitivity.get(Unit.LABEL, 0.0) for r in own), default=0.0)


def _steepest(kind: str, name: str, series: Sequence[_Row], declared: float, level: float) -> Slope | None:
    """The entry and label with the smallest p-value, if that is below the level."""
    if math.isinf(declared):
        return None
    x, others = (np.stack([row[place] for row in series]) for place in (0, 1))
    entries = np.sort(host_generator(0, "search").permutation(len(series[0][2]))[:_ENTRIES])
    known, y = np.column_stack((np.ones(len(series)), others)), np.stack([row[2][entries] for row in series])
    free = len(series) - 1 - int(np.linalg.matrix_rank(known))
    x, y = (values - known @ np.linalg.lstsq(known, values)[0] for values in (x, y))
    squares = np.square(x).sum(0)
    x, squares = x[:, squares > 1e-9], squares[squares > 1e-9]
    if not x.size or free < 1:
        return None
    slope = (x.T @ y) / squares[:, None]
    left = np.maximum(np.square(y).sum(0) - np.square(slope) * squares[:, None], 1e-24 + 1e-12 * np.square(y).sum(0))
    errors = np.sqrt(left / free / squares[:, None])
    p_values = 2 * stats.t.sf((np.abs(slope) - declared) / errors, free)
    place = np.unravel_index(int(p_values.argmin()), p_values.shape)
    if p_values[place] > level:
        return None
    least = abs(float(slope[place])) - float(stats.t.isf(level / 2, free)) * float(errors[place])
    p_value = min(1.0, float(p_values[place]) * ALPHA / level)
    return Slope(
        kind=kind,
        tensor=name,
        estimate=abs(float(slope[place])),
        least=least,
        declared=declared,
        p_value=p_value,
        messages=len(series),
    )


def _finding(slope: Slope, ledger: Ledger) -> Finding:
    """What moves further than is declared is released once more, by as much as it moves; exactly, if none is."""
    own = [release for release in ledger.releases if release.kind == slope.kind and release.noise.noised]
    what = f"one label moves {slope.tensor} by more than the ledger says"
    moved = [replace(r, what=what, sensitivity=dict.fromkeys(_UNITS, slope.least)) for r in own]
    rounds = range(ledger.schedule.rounds)
    return Finding(
        audit=LabelSlopeAudit.topic,
        subject=slope.kind,
        verdict=Verdict.UNSUPPORTED,
        sentence=slope.sentence,
        figure=slope.least,
        measure="least that one label moves it",
        limit=slope.declared,
        claim_units=frozenset(),
        p_value=slope.p_value,
        decides_alone=True,
        undeclared=tuple(moved or exactly(ledger.schedule, slope.kind, slope.tensor, what, rounds, EVERYONE)),
        evidence=slope,
    )
