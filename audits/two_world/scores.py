"""Scores of trials in two worlds: from what an adversary view observes of a training to evidence for world 0.

Every scorer trains replicas, of which even numbers live in world 0 and odd ones in world 1, and returns one score per
replica and adversary (or one row of features, from which a score is learned); a positive score says world 0. Bounds
hold whatever the form of a score. Log-likelihood ratios of Gaussian releases come with their strengths, the variance
that they have in theory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from vflpriv.audits.twins.probes import Released, TwinProbe, in_worlds
from vflpriv.audits.two_world.whole_view import Places, WholeView, feature_key
from vflpriv.common.seeds import derive
from vflpriv.core.canaries import Canary
from vflpriv.core.engine import Engine
from vflpriv.core.ledger import Ledger
from vflpriv.core.releases import Gaussian
from vflpriv.core.systems import System
from vflpriv.core.views import Adversary
from vflpriv.core.wire import Message, Wire

__all__ = [
    "SCORERS",
    "LikelihoodRatio",
    "Request",
    "for_replicas",
    "noise_stds",
    "ratio_scores",
    "squares",
    "strength_key",
    "trainings_per_trial",
]


def noise_stds(ledger: Ledger) -> dict[str, float]:
    """The noise std of each message kind that carries Gaussian noise."""
    return {r.kind: r.noise.std for r in ledger.releases if isinstance(r.noise, Gaussian)}


def squares(gap: Tensor) -> Tensor:
    """(R,) summed squares of (R, …)."""
    return gap.square().reshape(len(gap), -1).sum(1)


class LikelihoodRatio:
    """Adds up, release by release, the log-likelihood ratio of world 0 to world 1 for an adversary who knows the rest.

    A Gaussian release X with mean a in world 0 and b in world 1 adds ((X - b)² - (X - a)²) / 2σ². Exact where all
    state is post-processing of releases; otherwise a score as good as any, since bounds do not rest on its form. With
    `rate` nobody knows whether the record was in the batch: both worlds are then mixtures with the mean (a + b)/2 of a
    round without it. What carries no noise needs no statistics: it is in the ledger as unprotected.

    `totals` are the ratios (R,), `strengths` the summed squared distances between the worlds' means in units of the
    noise: the ratio's variance where the batches are known.
    """

    def __init__(
        self, ledger: Ledger, adversaries: Sequence[Adversary], devices: int, rate: float | None = None
    ) -> None:
        self._stds, self._devices, self._rate = noise_stds(ledger), devices, rate
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
        return self._log(value, means, 0, std, self._rate) - self._log(value, means, 1, std, self._rate)

    @staticmethod
    def _log(value: Tensor, means: Tensor, world: int, std: float, rate: float) -> Tensor:
        """(R,) log-density in one world, up to a constant."""
        inside = squares(value - means[:, world]) / (-2 * std**2)
        outside = squares(value - means.mean(1)) / (-2 * std**2)
        return torch.logaddexp(inside + math.log(rate), outside + math.log1p(-rate))


_WIDEST = 256


def strength_key(name: str) -> str:
    """The name under which the strengths of an adversary's scores are stored."""
    return f"{name} strength"


@dataclass(frozen=True, eq=False, kw_only=True)
class Request:
    """Replicas of a system to be trained with a canary and scored through views; `step` is told of each round done.

    Of the whole of what `watchers` see, features are kept beside the scores.
    """

    system: System
    ledger: Ledger
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
        return LikelihoodRatio(self.ledger, self.observers, self.system.data.devices, self.canary.rate)

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


def worlds_scores(request: Request) -> dict[str, Tensor]:
    """The likelihood ratio from the noiseless values of both worlds in a run with a canary."""
    system, canary = request.system, request.canary
    ratio = request.ratio()
    engine, probe = in_worlds(system, request.replicas, for_replicas(canary, [r % 2 for r in request.replicas]))
    watch = request.watch()
    for round_ in request.rounds():
        for value in probe.round(engine, round_, watch):
            ratio.add(value)
        request.done()
    scores = ratio_scores(ratio, len(request.replicas))
    return {**scores, **_shadowed(request, engine), **_watched(watch, engine)}


def ratio_scores(ratio: LikelihoodRatio, replicas: int) -> dict[str, Tensor]:
    """The ratios of so many replicas by adversary, and their strengths where the batches are known."""
    both = dict(ratio.totals)
    if ratio.batches_known:
        both |= {strength_key(key): strength for key, strength in ratio.strengths.items()}
    return {key: value.expand(replicas) for key, value in both.items()}


def _watched(watch: WholeView, engine: Engine) -> dict[str, Tensor]:
    """The features of each watcher, by the names under which they are stored."""
    return {feature_key(key): features for key, features in watch.features(engine).items()}


def twin_scores(request: Request) -> dict[str, Tensor]:
    """The likelihood ratio of all releases, whatever state they read: each trial has a twin in the other world.

    The twin releases what the trial releases, so that its means are those that an adversary who knows everything but
    the noise computes for the other world, given all it saw before.
    """
    system, count = request.system, len(request.replicas)
    worlds = [w for r in request.replicas for w in (r % 2, 1 - r % 2)]
    data, probe = for_replicas(request.canary, worlds).into(system.data), TwinProbe()
    engine = system.train([r for r in request.replicas for _ in (0, 1)], data=data, probe=probe)
    device, devices = system.torch_device, system.data.devices
    totals = {str(a): torch.zeros(count, device=device) for a in request.observers}
    strengths = {strength_key(key): torch.zeros(count, device=device) for key in totals}
    watch = request.watch(every=2)
    for round_ in request.rounds():
        for value in probe.round(engine, round_, watch):
            released, own, other = value.released[0::2], value.noiseless[0::2], value.noiseless[1::2]
            gain = (squares(released - other) - squares(released - own)) / (2 * value.std**2)
            apart = squares(own - other) / value.std**2
            for adversary in request.observers:
                if value.message is None or adversary.sees(value.message, devices):
                    totals[str(adversary)] += gain
                    strengths[strength_key(str(adversary))] += apart
        request.done()
    scores = {key: total * request.signs(device) for key, total in totals.items()}
    return {**scores, **strengths, **_shadowed(request, engine, every=2), **_watched(watch, engine)}


def shadow_scores(request: Request) -> dict[str, Tensor]:
    """Trainings that only adversaries who hold the trained server model look at."""
    data = for_replicas(request.canary, [r % 2 for r in request.replicas]).into(request.system.data)
    engine, watch = request.system.train(request.replicas, data=data), request.watch()
    engine.run(Wire(watch), advance=request.step)
    return _shadowed(request, engine) | _watched(watch, engine)


def _shadowed(request: Request, engine: Engine, *, every: int = 1) -> dict[str, Tensor]:
    """For adversaries that hold the trained server model: is it nearer to one trained in world 0, or in world 1?

    The adversary trains both by itself, with noise of its own and everything else the same. Each so-many-th replica of
    the trained engine is a trial.
    """
    system, replicas = request.system, request.replicas
    holders = [a for a in request.adversaries if a.holds_model]
    if not holders:
        return {}
    data = for_replicas(request.canary, [0, 1] * len(replicas)).into(system.data)
    shadows = system.train([r for r in replicas for _ in (0, 1)], data=data)
    shadows.redraw_noise(derive(system.seed, "canary"), [3 * r + k for r in replicas for k in (1, 2)])
    shadows.run(Wire())
    trained, total = shadows.server_parameters(), torch.zeros(len(replicas), device=system.torch_device)
    for name, value in engine.server_parameters().items():
        real, first, second = value[::every], trained[name][0::2], trained[name][1::2]
        total += squares(real - second) - squares(real - first)
    return {str(a): total for a in holders}


class _CanaryRows:
    """A view's observations of the canary: the mean over rounds of its rows, for every message kind and device."""

    def __init__(self, canary: Canary, adversary: Adversary, devices: int, places: Places) -> None:
        self._canary, self._adversary, self._devices, self._places = canary, adversary, devices, places
        self.sums: dict[tuple[str, str, int], tuple[int, Tensor]] = {}

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
                count, total = self.sums.get(key, (0, torch.zeros_like(row)))
                self.sums[key] = (count + 1, total + row)

    def _row(self, tensor: Tensor, batch: int, mine: Tensor) -> Tensor | None:
        if tensor.dim() == 1:
            return tensor.unsqueeze(1)
        axis = next((a for a in (1, 2) if tensor.dim() > a and tensor.shape[a] == batch), None)
        if axis is None:
            return None
        rows = tensor.index_select(axis, mine) if self._canary.unit.per_record else tensor
        return rows.mean(axis).flatten(1)

    def features(self, replicas: int) -> Tensor:
        parts = [total / count for _, (count, total) in sorted(self.sums.items())]
        return torch.cat(parts, dim=1) if parts else torch.zeros(replicas, 1)


def view_features(request: Request) -> dict[str, Tensor]:
    """(R, F) observations from which a score is learned, on trials that are not tested."""
    system, canary = request.system, request.canary
    rows = {str(a): _CanaryRows(canary, a, system.data.devices, request.places) for a in request.adversaries}
    data = for_replicas(canary, [r % 2 for r in request.replicas]).into(system.data)
    engine = system.train(request.replicas, data=data)
    watch = request.watch()
    engine.run(Wire(*rows.values(), watch), advance=request.step)
    return {key: row.features(len(request.replicas)) for key, row in rows.items()} | _watched(watch, engine)


SCORERS: Mapping[str, Callable[[Request], dict[str, Tensor]]] = {
    "likelihood ratio": worlds_scores,
    "secret batches": worlds_scores,
    "twins": twin_scores,
    "shadow models": shadow_scores,
    "learned": view_features,
    "whole view": view_features,
}


def trainings_per_trial(method: str, adversaries: Sequence[Adversary]) -> int:
    """Replicas that a scorer has in memory for each trial: its twin, and two shadows for whoever holds the model."""
    return (2 if method == "twins" else 1) + (2 if any(a.holds_model for a in adversaries) else 0)
