"""Tests of labels that are drawn during training by randomised response with a prior.

Two trainings go side by side: in the second all true labels are others, and it is given the responses of the first. A
prior that depends on responses alone is then the same in both. Which responses a prior allows, and how likely each is,
is computed anew here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vflpriv.audits.statistics.noise_tests import smallest
from vflpriv.audits.twins.probes import Follower, Probe
from vflpriv.common.lazy import stats
from vflpriv.common.numerics import Floats
from vflpriv.common.seeds import host_generator
from vflpriv.core.engine import Engine
from vflpriv.core.systems import System
from vflpriv.laws.fit import rate_p_value
from vflpriv.training.mechanisms.priors import PriorLabels

__all__ = ["Draws", "Places", "draw_labels", "drawn_law", "places", "positions"]

_UNCLEAR = 1e-5
"""Where two numbers of classes are nearly as good as each other, single precision decides between them."""
_BINS = 16
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


class _Tape(Follower):
    """Notes the prior (R, N, C) and the response (R, N) of every draw, and how often each label was drawn.

    The first tape has nobody to follow.
    """

    def __init__(self, leader: Probe) -> None:
        super().__init__(leader)
        self.priors, self.responses, self.draws = (torch.empty(0),) * 3

    def observed(self, observed: Tensor, records: Tensor, prior: Tensor | None = None) -> Tensor:
        shown = super().observed(observed, records, prior)
        if prior is None:
            self.priors, self.responses = torch.zeros_like(observed), observed.argmax(-1)
            self.draws = torch.zeros_like(self.responses)
            return shown
        now = prior.sum(-1) > 0
        self.priors[:, records] += prior
        self.draws[:, records] += now.to(torch.int64)
        self.responses[:, records] = torch.where(now, shown.argmax(-1), self.responses[:, records])
        return shown


@dataclass(frozen=True, eq=False, kw_only=True)
class Draws:
    """What replicas drew: priors (R, N, C), responses (R, N), whether there is one, and two exact properties."""

    priors: Floats
    responses: Ints
    drawn: Bools
    once: bool
    """Whether no label was drawn twice, and each is read as it was drawn."""
    untouched: bool
    """Whether priors are the same with other true labels."""


def draw_labels(system: System, mechanism: PriorLabels, replicas: Sequence[int]) -> Draws:
    """Train until all labels are drawn, twice: as they are, and with other true labels and the same responses."""
    leader = _Tape(Probe())
    follower = _Tape(leader)
    others = replace(system.data, labels=(system.data.labels + 1) % system.classes)
    first = system.train(replicas, probe=leader)
    second = system.train(replicas, data=others, probe=follower)
    for round_ in range(mechanism.last_draw(system.schedule) + 1):
        leader.round(first, round_)
        follower.round(second, round_)
    draws = Draws(
        priors=leader.priors.cpu().numpy().copy(),
        responses=leader.responses.cpu().numpy().copy(),
        drawn=(leader.draws > 0).cpu().numpy(),
        once=bool((leader.draws <= 1).all()),
        untouched=torch.equal(leader.priors, follower.priors),
    )
    # Reading all labels draws those that no batch had: last of all.
    read = _read(first, system).cpu().numpy()
    return replace(draws, once=draws.once and bool((read == draws.responses)[draws.drawn].all()))


def _read(engine: Engine, system: System) -> Tensor:
    """The labels (R, N) that losses read by now; a record without a response is read as whatever."""
    every = torch.arange(system.data.records, device=system.torch_device)
    flat = torch.zeros(len(engine.replicas), len(every), system.classes, device=every.device)
    labels: Tensor = engine.labels_of(every, lambda: flat)
    return labels.argmax(-1) if labels.is_floating_point() else labels


@dataclass(frozen=True, eq=False, kw_only=True)
class Places:
    """Where the true label and the response of each draw stand among the classes that its prior allows.

    `true` and `response` are ranks by falling probability, `allowed` is how many classes are; one entry per draw.
    """

    true: Ints
    response: Ints
    allowed: Ints


def places(draws: Draws, truth: Ints, epsilon: float) -> tuple[Places, Bools]:
    """The places of all draws that are clear, and which of (R, N) they are."""
    order = np.argsort(-draws.priors, axis=-1, kind="stable")
    ordered = np.take_along_axis(draws.priors, order, axis=-1).astype(np.float64)
    # Ghazi et al. 2021, Algorithm 2: the k with the largest e^ε/(e^ε + k - 1) times the k largest probabilities.
    kept = np.cumsum(ordered, axis=-1) / (1 + np.arange(ordered.shape[-1]) * math.exp(-epsilon))
    best = np.sort(kept, axis=-1)
    clear = draws.drawn & ((best[..., -1] - best[..., -2]) > _UNCLEAR * best[..., -1])
    ranks = np.argsort(order, axis=-1)
    true = np.take_along_axis(ranks, np.broadcast_to(truth, draws.responses.shape)[..., None], axis=-1)[..., 0]
    response = np.take_along_axis(ranks, draws.responses[..., None], axis=-1)[..., 0]
    allowed = 1 + kept.argmax(axis=-1)
    return Places(true=true[clear], response=response[clear], allowed=allowed[clear]), clear


def positions(draws: Places, epsilon: float, seed: int) -> Floats:
    """Uniform numbers in [0, 1], one per draw, if responses follow their law; below 0 for one that is not allowed.

    A response stands for an interval as long as its probability, that of the true label first, and a random number of
    our own chooses a place in it.
    """
    k, inside = draws.allowed, draws.true < draws.allowed
    keep = 1 / (1 + (k - 1) * math.exp(-epsilon))
    other = keep * math.exp(-epsilon)
    after = (draws.response - draws.true) % k
    start = np.where(inside, np.where(after > 0, keep + (after - 1) * other, 0.0), draws.response / k)
    length = np.where(inside, np.where(after > 0, other, keep), 1 / k)
    place = start + length * host_generator(seed, "search").uniform(size=len(k))
    return np.where(draws.response < k, place, -1.0)


def drawn_law(draws: Places, truth: Ints, uniform: Floats, epsilon: float) -> float:
    """The p-value of "responses follow the declared law", given true labels and `positions` of the same draws.

    Exact for how often labels are kept, by true label and number of allowed classes; Pearson's for all positions.
    """
    p_values = []
    inside = (draws.true < draws.allowed) & (draws.allowed > 1)
    for label in np.unique(truth):
        for k in np.unique(draws.allowed[inside]):
            group = inside & (truth == label) & (draws.allowed == k)
            kept, number = int((draws.response == draws.true)[group].sum()), int(group.sum())
            rate = 1 / (1 + (k - 1) * math.exp(-epsilon))
            p_values.append(float(rate_p_value(kept, number, rate)))
    expected = len(uniform) / _BINS
    if expected >= 5:
        counts = np.histogram(uniform, bins=_BINS, range=(0, 1))[0]
        p_values.append(float(stats.chi2.sf(np.square(counts - expected).sum() / expected, _BINS - 1)))
    return smallest(p_values) if p_values else 1.0
