"""The float audit: is a released number, to its last bit, possible in both worlds?

Noise of few bits that is added in few bits reaches only some numbers from one noiseless value, and other numbers from
its neighbour ("On Significance of the Least Significant Bits for Differential Privacy", Mironov, CCS 2012). A number
that is possible in one world alone tells for certain which world it was released in, whatever the ε.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vflpriv.audits.statistics.coarse_noise import Model, established, settled
from vflpriv.audits.twins.pairs import TwinCanary, TwinRound, plan_twins, run_twins
from vflpriv.audits.twins.probes import Probe
from vflpriv.common.lazy import stats
from vflpriv.common.machine import single_threaded
from vflpriv.common.registry import register
from vflpriv.core.audit import Audit, AuditContext, Finding
from vflpriv.core.claims import Verdict
from vflpriv.core.systems import Offer, System
from vflpriv.core.units import Unit

__all__ = ["FloatAudit", "Numbers", "Reached", "reached"]

_CANARIES = 16
_ROUNDS = 128
"""Rounds of which releases are looked at."""
_ENTRIES = 4096
"""Released numbers of each kind that are looked at."""
_FEWEST = 64
"""With fewer numbers nothing is said."""
_TAIL = 8.0
"""In units of its std: noise beyond this has a probability below every δ, so that nothing has to reach so far."""
_CHANCE = 1e-6
"""The chance that the other world fails so much more often than the world of the release."""
_APART = 2.0**-16
"""Noiseless values of two worlds that differ by less, relative to their size, may differ in how they were rounded."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Numbers:
    """Released numbers of one kind: their noiseless values in the world they were released in and in the other.

    `places` are (round, replica, entry) of each.
    """

    released: NDArray[np.float64]
    own: NDArray[np.float64]
    other: NDArray[np.float64]
    places: NDArray[np.int64]
    std: float
    kind: np.dtype[np.floating]

    def chosen(self, which: NDArray[np.bool_] | NDArray[np.int64]) -> Numbers:
        """Some of them."""
        return Numbers(
            released=self.released[which],
            own=self.own[which],
            other=self.other[which],
            places=self.places[which],
            std=self.std,
            kind=self.kind,
        )

    @property
    def apart(self) -> NDArray[np.bool_]:
        """Those whose worlds differ, and whose noise would be likely in either."""
        differ = np.abs(self.own - self.other) > _APART * np.maximum(np.abs(self.own), np.abs(self.other))
        return np.asarray(differ & (np.abs(self.released - self.other) <= _TAIL * self.std))


@dataclass(frozen=True, eq=False, kw_only=True)
class Reached:
    """What the last bits of one kind of release tell: `telling` of `compared` numbers are possible in one world alone.

    `steps` says what the noise looks like, "" where it shows no steps of its own.
    """

    kind: str
    numbers: int
    compared: int
    telling: int
    steps: str
    first: tuple[int, int, int] | None
    """Round, replica and entry of the first number that tells."""
    units: frozenset[Unit]
    """Of the canaries whose worlds it tells apart."""

    @property
    def verdict(self) -> Verdict:
        if self.numbers < _FEWEST:
            return Verdict.NOT_APPLICABLE
        return Verdict.VIOLATED if self.telling else Verdict.CONSISTENT

    @property
    def sentence(self) -> str:
        if self.numbers < _FEWEST:
            return f"{self.numbers} numbers of {self.kind} are too few to see what their last bits tell"
        if self.first is not None:
            round_, _, entry = self.first
            return (
                f"{self.telling} of {self.compared} released numbers of {self.kind} are possible in one of two worlds "
                f"alone, the first in round {round_}, entry {entry}: the noise has {self.steps}"
            )
        if self.steps:
            nothing = f"none of {self.compared} released numbers tells two worlds apart"
            return f"the noise of {self.kind} has {self.steps}, but {nothing}"
        return f"the last bits of {self.numbers} released numbers of {self.kind} show no steps of their noise"


@register("audit")
class FloatAudit(Audit[System]):
    """Trains in two worlds that release the same numbers, and looks at the last bits of each released number.

    First it asks whether the noise has steps of its own, beyond chance: whether all released numbers are a noiseless
    value plus a number of so many binary digits (before or after it is scaled), or plus a multiple of some step,
    although their neighbours are not. Then it asks the same of the other world's noiseless values. A number that is
    possible in one world alone is a proof of a leak: noise has to be drawn in double precision, and noiseless value and
    sum have to be rounded to one coarse grid.

    Noise without such steps, and noise that is rounded, cast, clamped or scaled when it has been added, agrees with
    them by chance alone and is never accused. Values that no message carries as they were released are left out:
    what became of them is not known here. Noise of bfloat16 is compared with steps alone. A transcript lacks the
    noiseless values of both worlds.
    """

    name = "float"
    summary = "compares the last bits of releases with what each world's noiseless values can become"
    order = 25
    needs = frozenset({Offer.RELEASE_POINTS})

    def work(self, system: System, context: AuditContext) -> int:
        return 2 * len(_canaries(system, context)) * min(_ROUNDS, system.schedule.rounds)

    def run(self, system: System, context: AuditContext) -> list[Finding]:
        """One finding for each kind of noised release."""
        context.progress.stage(f"{system.key}: last bits of releases")
        canaries = _canaries(system, context)
        return [_finding(result) for result in _results(system, canaries, context)]


def _canaries(system: System, context: AuditContext) -> list[TwinCanary]:
    return plan_twins(system, [claim.unit for claim in context.claims])[: 1 + _CANARIES]


def _results(system: System, canaries: Sequence[TwinCanary], context: AuditContext) -> list[Reached]:
    collected: dict[str, list[Numbers]] = defaultdict(list)
    rounds = min(_ROUNDS, system.schedule.rounds)
    with single_threaded():
        for twins in run_twins(system, canaries):
            for kind, numbers in _of_round(twins):
                collected[kind].append(numbers)
            context.progress.advance(2 * len(canaries))
            if twins.round + 1 >= rounds:
                break
    labels = _noised_labels(system, canaries)
    kinds = {kind: _joined(parts) for kind, parts in collected.items()} | ({} if labels is None else labels)
    return [reached(kind, numbers, canaries) for kind, numbers in kinds.items()]


def _of_round(twins: TwinRound) -> list[tuple[str, Numbers]]:
    """The numbers of a round that messages carry as they were released."""
    return [
        (value.kind, _numbers(value.released, value.noiseless, other.noiseless, twins.round, value.std))
        for value, other in zip(*twins.values, strict=False)
        if value.message is not None and value.std > 0
        if value.released.dtype in _TYPES and other.noiseless.shape == value.released.shape
    ]


_TYPES: Mapping[torch.dtype, np.dtype[Any]] = {
    torch.float16: np.dtype(np.float16),
    torch.bfloat16: np.dtype(np.float32),
    torch.float32: np.dtype(np.float32),
    torch.float64: np.dtype(np.float64),
}


def _numbers(released: Tensor, own: Tensor, other: Tensor, round_: int, std: float) -> Numbers:
    """The entries of (R, …) releases; of many, some that are spread over all."""
    replicas, entries = len(released), released[0].numel()
    values = [tensor.expand_as(released).reshape(-1).cpu().double().numpy() for tensor in (released, own, other)]
    places = np.stack((np.full(replicas * entries, round_), *np.divmod(np.arange(replicas * entries), entries)), axis=1)
    whole = Numbers(
        released=values[0], own=values[1], other=values[2], places=places, std=std, kind=_TYPES[released.dtype]
    )
    return whole.chosen(_spread(len(places), _ENTRIES))


def _spread(number: int, most: int) -> NDArray[np.int64]:
    """Places from the first to the last of `number`, all of them or `most`."""
    return np.unique(np.linspace(0, number - 1, min(number, most)).astype(np.int64))


def _joined(parts: Sequence[Numbers]) -> Numbers:
    released, own, other, places = (
        np.concatenate([getattr(part, name) for part in parts]) for name in ("released", "own", "other", "places")
    )
    whole = Numbers(released=released, own=own, other=other, places=places, std=parts[0].std, kind=parts[0].kind)
    return whole.chosen(_spread(len(places), 4 * _ENTRIES))


def _noised_labels(system: System, canaries: Sequence[TwinCanary]) -> dict[str, Numbers] | None:
    """Noised labels that are numbers, beside one-hot labels; in the other world each entry is the opposite."""
    mechanism = system.settings.label_mechanism
    if mechanism is None or mechanism.noise.level is None:
        return None
    probe = Probe()
    system.train(range(_CANARIES), probe=probe)
    if probe.noised_labels is None:
        return None
    onehot = torch.nn.functional.one_hot(system.data.labels, system.classes).to(probe.noised_labels)[None]
    std = float(mechanism.noise.deviation)
    return {"noised-labels": _numbers(probe.noised_labels, onehot, 1 - onehot, 0, std)}


def reached(kind: str, numbers: Numbers, canaries: Sequence[TwinCanary]) -> Reached:
    looked = numbers.chosen(settled(numbers.released))
    looked = looked.chosen(_spread(len(looked.places), _ENTRIES)) if len(looked.places) else looked
    models = []
    if len(looked.places) >= _FEWEST:
        models = established(looked.released, looked.own, looked.std, _narrowest(looked))
    apart = looked.chosen(looked.apart)
    by_model = {model.what: _telling(model, apart, len(looked.places)) for model in models}
    steps = max(by_model, key=lambda what: int(by_model[what].sum()), default="")
    telling = by_model.get(steps, np.zeros(len(apart.places), dtype=np.bool_))
    first = apart.places[telling][0] if telling.any() else None
    units = {canaries[r].unit for r in apart.places[telling][:, 1]} if kind != "noised-labels" else {Unit.LABEL}
    return Reached(
        kind=kind,
        numbers=len(looked.places),
        compared=len(apart.places),
        telling=int(telling.sum()),
        steps=steps,
        first=None if first is None else (int(first[0]), int(first[1]), int(first[2])),
        units=frozenset(unit for unit in units if unit is not None),
    )


def _narrowest(numbers: Numbers) -> np.dtype[np.floating]:
    """The type of fewest bits that holds all released numbers: a message may hold results of a narrower one."""
    for kind in (np.float16, np.float32):
        with np.errstate(over="ignore"):
            if (numbers.released.astype(kind).astype(np.float64) == numbers.released).all():
                return np.dtype(kind)
    return numbers.kind


def _telling(model: Model, apart: Numbers, agreeing: int) -> NDArray[np.bool_]:
    """Which numbers the model cannot make of the other world's values; none where that may be chance.

    All `agreeing` numbers were possible in their own world. Were the model a little wrong, both worlds would fail
    alike.
    """
    impossible = ~model.agrees(apart.released, apart.other)
    failed, asked = int(impossible.sum()), len(impossible)
    chance = stats.hypergeom.sf(failed - 1, agreeing + asked, failed, asked) if failed else 1.0
    return impossible if chance <= _CHANCE else np.zeros_like(impossible)


def _finding(result: Reached) -> Finding:
    protects = frozenset(unit for unit in Unit if any(unit.implies(moved) for moved in result.units))
    return Finding(
        audit=FloatAudit.name,
        subject=result.kind,
        verdict=result.verdict,
        sentence=result.sentence,
        figure=result.telling / max(1, result.compared),
        measure="share of released numbers that are possible in one world alone",
        limit=0.0,
        claim_units=protects if result.units else None,
        repair="draw the noise in double precision, and round the value and the noised value to one coarse grid",
        evidence=result,
    )
