"""Scores of trials in two worlds: from what an adversary view observes of a training to evidence for world 0.

Replicas with even numbers live in world 0, those with odd ones in world 1; a positive score says world 0. Bounds hold
whatever the form of a score. Log-likelihood ratios of Gaussian releases come with their strengths, the variance that
they have in theory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from vflpriv.audits.twins.probes import Released
from vflpriv.audits.two_world.whole_view import Likeness, Places, WholeView
from vflpriv.common.numerics import Floats
from vflpriv.core.canaries import Canary
from vflpriv.core.data import VerticalData
from vflpriv.core.ledger import Ledger
from vflpriv.core.systems import System
from vflpriv.core.units import Unit
from vflpriv.core.views import Adversary
from vflpriv.core.wire import Message

__all__ = [
    "CanaryRows",
    "LikelihoodRatio",
    "Request",
    "filled",
    "for_replicas",
    "joined",
    "likeness_key",
    "noise_stds",
    "ratio_scores",
    "squares",
    "strength_key",
]


def noise_stds(ledger: Ledger) -> dict[str, float]:
    """The noise std of each message kind that carries Gaussian noise."""
    return {r.kind: r.noise.deviation for r in ledger.releases if r.noise.white}


def squares(gap: Tensor) -> Tensor:
    """(R,) summed squares of (R, …)."""
    return gap.square().reshape(len(gap), -1).sum(1)


class LikelihoodRatio:
    """Adds up, release by release, the log-likelihood ratio of world 0 to world 1 for an adversary who knows the rest.

    A Gaussian release X with mean a in world 0 and b in world 1 adds ((X - b)² - (X - a)²) / 2σ². Exact where all
    state is post-processing of releases; otherwise a score as good as any, since bounds do not rest on its form. With
    `rate` nobody knows whether the record was in the batch: both worlds are then mixtures with the mean of a round
    without it, (a + b)/2, or b where the record is `absent` in world 1. What carries no noise needs no statistics: it
    is in the ledger as unprotected.

    `totals` are the ratios (R,), `strengths` the summed squared distances between the worlds' means in units of the
    noise: the ratio's variance where the batches are known.
    """

    def __init__(
        self,
        ledger: Ledger,
        adversaries: Sequence[Adversary],
        devices: int,
        rate: float | None = None,
        *,
        absent: bool = False,
    ) -> None:
        self._stds, self._devices, self._rate, self._absent = noise_stds(ledger), devices, rate, absent
        self._adversaries = {str(a): a for a in adversaries}
        self.totals: dict[str, Tensor] = {key: torch.zeros(()) for key in self._adversaries}
        self.strengths: dict[str, Tensor] = {key: torch.zeros(()) for key in self._adversaries}

    @property
    def batches_known(self) -> bool:
        return self._rate is None

    def add(self, value: Released) -> None:
        """Take one released value into account, if a message carries it and the canary moves it."""
        message, means = value.message, value.worlds
        if message is None or means is None or message.kind not in self._stds:
            return
        std = self._stds[message.kind]
        between = means[:, 0] - means[:, 1]
        gain = self._gain(value.released, means, between, std)
        apart = squares(between) / std**2
        for key, adversary in self._adversaries.items():
            if adversary.sees(message, self._devices):
                self.totals[key] = self.totals[key].to(gain.device) + gain
                self.strengths[key] = self.strengths[key].to(gain.device) + apart

    def _gain(self, value: Tensor, means: Tensor, between: Tensor, std: float) -> Tensor:
        """(R,) the log-likelihood ratio of one value."""
        if self._rate is None:
            # (X - (a + b)/2) (a - b) / σ²: the two squares are large in a wide release, and nearly equal.
            products = (value - means.mean(1)) * between
            return products.reshape(len(products), -1).sum(1) / std**2
        without = squares(value - (means[:, 1] if self._absent else means.mean(1))) / (-2 * std**2)
        with_it = [squares(value - means[:, world]) / (-2 * std**2) for world in (0, 1)]
        first, second = (
            torch.logaddexp(inside + math.log(self._rate), without + math.log1p(-self._rate)) for inside in with_it
        )
        return first - second


_WIDEST = 256


def likeness_key(name: str) -> str:
    """The name under which the likeness of the canary's rows is stored, as a view shows them."""
    return f"{name} likeness"


def strength_key(name: str) -> str:
    """The name under which the strengths of an adversary's scores are stored."""
    return f"{name} strength"


@dataclass(frozen=True, eq=False, kw_only=True)
class Request:
    """Replicas of a system to be trained with a canary and scored through views; `step` is told of each round done.

    Of the whole of what `watchers` see, features are kept beside the scores.
    """

    system: System
    canary: Canary
    adversaries: Sequence[Adversary]
    replicas: range
    step: Callable[[int], None] | None = None
    watchers: Sequence[Adversary] = ()

    def watch(self, every: int = 1) -> WholeView:
        """A recorder of all that the watchers see, in trainings of which each so-many-th replica is a trial."""
        system = self.system
        return WholeView(
            self.canary,
            self.watchers,
            labels=system.data.labels,
            blocks=system.data.blocks,
            devices=system.data.devices,
            replicas=len(self.replicas),
            rounds=system.schedule.rounds,
            every=every,
            places=self.places,
        )

    @cached_property
    def places(self) -> Places:
        """Where the canary stands in the messages, looked up once for all who record them."""
        return Places(self.canary.record)

    def ratio(self) -> LikelihoodRatio:
        """The likelihood ratio through the views of messages, of nothing yet."""
        absent = self.canary.unit is Unit.ADD_REMOVE
        devices = self.system.data.devices
        return LikelihoodRatio(self.system.ledger, self.observers, devices, self.canary.rate, absent=absent)

    @property
    def observers(self) -> list[Adversary]:
        """The adversaries that see messages; the others hold the trained model alone."""
        return [adversary for adversary in self.adversaries if not adversary.holds_model]

    def rounds(self) -> range:
        return range(self.system.schedule.rounds)

    def done(self) -> None:
        if self.step is not None:
            self.step(1)

    def signs(self, device: torch.device) -> Tensor:
        """(R,) plus one in world 0."""
        return torch.tensor([1.0 - 2.0 * (r % 2) for r in self.replicas], device=device)


def for_replicas(canary: Canary, worlds: Sequence[int]) -> Canary:
    """The canary in replicas that live in these worlds."""
    blocks = {m: b.expand(len(worlds), *b.shape[1:]) for m, b in canary.blocks.items()}
    return replace(canary, world=torch.tensor(worlds, dtype=torch.int64), blocks=blocks)


def ratio_scores(ratio: LikelihoodRatio, replicas: int) -> dict[str, Tensor]:
    """The ratios of so many replicas by adversary, and their strengths where the batches are known."""
    both = dict(ratio.totals)
    if ratio.batches_known:
        both |= {strength_key(key): strength for key, strength in ratio.strengths.items()}
    return {key: value.expand(replicas) for key, value in both.items()}


class CanaryRows:
    """A view's observations of the canary: the mean over rounds of its rows, for every message kind and device.

    `likeness` is the same of how near its rows are to those that the other records predict for either world.
    """

    def __init__(self, canary: Canary, adversary: Adversary, data: VerticalData, places: Places) -> None:
        self._canary, self._adversary, self._devices, self._places = canary, adversary, data.devices, places
        self._likeness = Likeness(canary, data.labels, data.blocks)
        self._sums: dict[tuple[str, str, int], tuple[int, Tensor]] = {}
        self._likenesses: dict[tuple[str, str, int], tuple[int, Tensor]] = {}

    def record(self, message: Message) -> None:
        if message.records is None or not self._adversary.sees(message, self._devices):
            return
        mine = self._places(message.records)
        if self._canary.unit.per_record and not len(mine):
            return
        for name, tensor in message.tensors.items():
            row = self._row(tensor, len(message.records), mine)
            if row is not None and row.shape[1] <= _WIDEST:
                key = (message.kind, name, message.device.index)
                _count(self._sums, key, row)
                axis = self._axis(tensor, len(message.records))
                if axis is not None and self._likeness.known:
                    rows = tensor.movedim(axis, 1).flatten(2) if tensor.dim() > 2 else tensor.unsqueeze(2)
                    _count(self._likenesses, key, self._likeness(rows, message.records, mine))

    def _row(self, tensor: Tensor, batch: int, mine: Tensor) -> Tensor | None:
        if tensor.dim() == 1:
            return tensor.unsqueeze(1)
        axis = self._axis(tensor, batch)
        if axis is None:
            return None
        rows = tensor.index_select(axis, mine) if self._canary.unit.per_record else tensor
        return rows.mean(axis).flatten(1)

    @staticmethod
    def _axis(tensor: Tensor, batch: int) -> int | None:
        return next((a for a in (1, 2) if tensor.dim() > a and tensor.shape[a] == batch), None)

    def features(self, replicas: int) -> Tensor:
        """(R, F) the means of its rows."""
        parts = [total / count for _, (count, total) in sorted(self._sums.items())]
        return torch.cat(parts, dim=1) if parts else torch.zeros(replicas, 1)

    def likeness(self) -> Tensor | None:
        """(R, F) the means of their likeness; None where there is none."""
        parts = [total / count for _, (count, total) in sorted(self._likenesses.items())]
        return torch.cat(parts, dim=1) if parts else None


def _count(sums: dict[tuple[str, str, int], tuple[int, Tensor]], key: tuple[str, str, int], value: Tensor) -> None:
    """Add one more value to the sum under a key."""
    count, total = sums.get(key, (0, torch.zeros_like(value)))
    sums[key] = (count + 1, total + value)


def filled(parts: Sequence[Tensor]) -> Tensor:
    """All rows, (n,) or (n, F) each, under each other; narrower parts are filled up with zeros.

    >>> filled([torch.ones(1, 1), torch.ones(1, 2)]).tolist()
    [[1.0, 0.0], [1.0, 1.0]]
    """
    if parts[0].dim() == 1:
        return torch.cat(list(parts))
    width = max(part.shape[1] for part in parts)
    return torch.cat([torch.nn.functional.pad(part, (0, width - part.shape[1])) for part in parts])


def joined(shards: Sequence[Mapping[str, Tensor]], key: str) -> Floats:
    """The rows of all shards under one key."""
    rows: Floats = torch.cat([shard[key] for shard in shards]).to(torch.float64).numpy()
    return rows
