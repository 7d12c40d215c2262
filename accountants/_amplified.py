"""Pairs that bound secret sampling from above where no single pair of worlds attains the bound."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import erf

from vflpriv.accountants._pairs import (
    Array,
    GaussianPair,
    LaplacePair,
    Pair,
    RandomizedResponsePair,
    SampledGaussianPair,
    SampledReplacementPair,
    Symmetric,
    holds,
)

__all__ = ["MANY_PAIRS", "Diluted", "WithoutReplacementPair", "attained", "pure_epsilon", "thinned"]

MANY_PAIRS = 256
"""More different pairs than this are thinned out where a rough bound is enough."""

_GROUP = 4


@dataclass(frozen=True)
class WithoutReplacementPair(Symmetric):
    """A batch of fixed size, drawn without replacement, with probability `rate` holds the record that is replaced.

    Worlds are told apart at most as well, at every epsilon, as (1-q) N(0) + q N(mu) from N(0) or N(mu) from
    (1-q) N(mu) + q N(0), whichever is easier there: the first for epsilon > 0, the second below (Zhu, Dong, Wang 2022,
    Theorem 11; mu is of one record replaced in a known batch). The larger of the two profiles is one pair's: positive
    losses are the first pair's, negative ones the second's, and the rest of the mass has loss 0. Its composition is
    conservative, since no two worlds have both halves.
    """

    mu: float
    rate: float

    @property
    def removal(self) -> SampledGaussianPair:
        """The half with positive losses."""
        return SampledGaussianPair(self.mu, self.rate)

    def masses(self, edges: Array) -> tuple[Array, Array]:
        first = self.removal.masses(np.maximum(edges, 0.0))
        second = self.removal.reversed().masses(np.minimum(edges, 0.0))
        # Both P and Q leave (1-q) (2 Phi(mu/2) - 1) to the loss 0.
        rest = (1 - self.rate) * float(erf(self.mu / math.sqrt(8))) * holds(edges, 0.0)
        return first[0] + second[0] + rest, first[1] + second[1] + rest

    def reach(self, tail: float) -> tuple[float, float]:
        return min(0.0, self.removal.reversed().reach(tail)[0]), max(0.0, self.removal.reach(tail)[1])

    def usual(self) -> float:
        return 0.0


@dataclass(frozen=True)
class Diluted(Symmetric):
    """The pair with probability `rate`, otherwise nothing, in plain sight: delta(eps) = rate * delta_pair(eps).

    Dominates every secret sampling of the pair's mechanism, by joint convexity of the hockey-stick divergence. With
    `hidden`, a batch without the record has an output that the pair's epsilon bounds too (a sum); the sampling is then
    not in plain sight, and the bound not attained.
    """

    pair: GaussianPair | LaplacePair | RandomizedResponsePair
    rate: float
    hidden: bool = False

    def masses(self, edges: Array) -> tuple[Array, Array]:
        upper, lower = self.pair.masses(edges)
        nothing = (1 - self.rate) * holds(edges, 0.0)
        return self.rate * upper + nothing, self.rate * lower + nothing

    def reach(self, tail: float) -> tuple[float, float]:
        return self.pair.reach(tail)

    def usual(self) -> float:
        return self.pair.usual() if self.rate > 0.5 else 0.0


def pure_epsilon(pair: Pair) -> float:
    """The largest loss of a pure mechanism (sampled or not: the loss when it is met); inf for Gaussians."""
    inner = pair.pair if isinstance(pair, Diluted) else pair
    if isinstance(inner, LaplacePair):
        return inner.shift
    return inner.epsilon if isinstance(inner, RandomizedResponsePair) else math.inf


def attained(pair: Pair) -> Pair | None:
    """A pair of worlds that exist and that this pair dominates, itself where it can; None where none is known.

    Of a batch without replacement: all other records contribute -mu/2, and the record mu/2 or -mu/2.
    """
    if isinstance(pair, WithoutReplacementPair):
        return pair.removal
    return None if isinstance(pair, Diluted) and pair.hidden else pair


def thinned(pairs: Mapping[Pair, int], extreme: Callable[..., float]) -> Mapping[Pair, int]:
    """Few pairs for very many similar ones: each group as its strongest (with `max`) or its weakest (with `min`).

    A larger mu and a larger rate are both easier to tell: less of either is a garbling of the pair.
    """
    if len(pairs) <= MANY_PAIRS:
        return pairs
    found: Counter[Pair] = Counter()
    alike: dict[tuple[type, bool], list[SampledGaussianPair | SampledReplacementPair]] = {}
    for pair, count in pairs.items():
        if isinstance(pair, SampledGaussianPair | SampledReplacementPair):
            alike.setdefault((type(pair), getattr(pair, "added", False)), []).append(pair)
        else:
            found[pair] += count
    for members in alike.values():
        members.sort(key=lambda pair: (pair.rate, pair.mu))
        for start in range(0, len(members), _GROUP):
            group = members[start : start + _GROUP]
            mu, rate = extreme(pair.mu for pair in group), extreme(pair.rate for pair in group)
            found[replace(group[0], mu=mu, rate=rate)] += sum(pairs[pair] for pair in group)
    return found
