"""Converts an exposure to dominating pairs with counts: equal events are merged, Gaussians composed in closed form."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from vflpriv.accountants._pairs import (
    Diluted,
    GaussianPair,
    LaplacePair,
    Pair,
    RandomizedResponsePair,
    SampledGaussianPair,
    SampledReplacementPair,
    WithoutReplacementPair,
)
from vflpriv.core.budgets import Budget
from vflpriv.core.ledger import Event, Exposure
from vflpriv.core.releases import Exact, Gaussian, Laplace, Opaque
from vflpriv.core.units import Unit

__all__ = ["FIXED", "FIXED_SEEN", "SECRET", "SEEN", "Merged", "check", "merge", "refusal", "unbounded"]

_ONE_SIDED = (Unit.ADD_REMOVE, Unit.CLIENT_ZERO)
_SAMPLED_REPLACEMENT = (
    "a record's own contribution is at most half the sensitivity and nothing outside the batch: the replace-one pair "
    "(1-q) N(0) + q N(±sensitivity/2)"
)
_SAMPLED_REMOVAL = (
    "a record outside the batch contributes nothing: the add-remove pair (1-q) N(0) + q N(sensitivity) against N(0)"
)
_WITHOUT_REPLACEMENT = (
    "batches of a fixed size without replacement: the replace-one bound of Zhu, Dong and Wang (2022, Theorem 11), "
    "composed from the larger of its two directions at every epsilon, which is conservative"
)
_DILUTED = (
    "a sampled release is bounded by joint convexity, as if the adversary saw its sampling: delta(eps) = q delta_1(eps)"
)

SECRET, SEEN = "poisson", "poisson-seen"
FIXED, FIXED_SEEN = "without-replacement", "without-replacement-seen"
"""Schemes of `Sampling`. Secret: the release is a sum to which a record outside the batch adds nothing. Seen: the
release shows whether a record takes part (by its row, without a name), so that no sum hides it."""


@dataclass(frozen=True, kw_only=True)
class Merged:
    """The pairs of an exposure: `mu` of all Gaussians without sampling together, and the count of every other pair.

    `leaks` names the messages without noise; with any of them epsilon is infinite.
    """

    mu: float
    pairs: Mapping[Pair, int]
    leaks: tuple[str, ...] = ()
    assumptions: tuple[str, ...] = ()

    @property
    def gaussian(self) -> bool:
        return not self.pairs and not self.leaks

    @property
    def all_pairs(self) -> dict[Pair, int]:
        """Every pair with its count, the Gaussians without sampling as one."""
        gaussians: dict[Pair, int] = {GaussianPair(self.mu): 1} if self.mu > 0 else {}
        return {**gaussians, **self.pairs}


@dataclass
class _Sums:
    squares: list[float] = field(default_factory=list)
    pairs: Counter[Pair] = field(default_factory=Counter)
    leaks: list[str] = field(default_factory=list)
    notes: dict[str, None] = field(default_factory=dict)


def merge(exposure: Exposure) -> Merged:
    """Merge equal events, whatever their order in the ledger, and gather the assumptions of their pairs."""
    sums = _Sums(leaks=list(exposure.unprotected), notes=dict.fromkeys(exposure.assumptions))
    one_sided = exposure.unit in _ONE_SIDED
    for event in exposure.events:
        rate = 1.0 if event.sampling is None else min(event.sampling.rate, 1.0)
        strength = _strength(event)
        if event.count <= 0 or event.sensitivity <= 0 or rate <= 0 or strength <= 0:
            continue
        if strength == math.inf:
            sums.leaks.append(f"{event.kind} ({event.noise}, sensitivity {event.sensitivity:g}) has no bounded cost")
        elif rate < 1.0 and (_is_seen(event) or not isinstance(event.noise, Gaussian)):
            hidden = isinstance(event.noise, Laplace) and not _is_seen(event)
            sums.pairs[Diluted(_unsampled_pair(event), rate, hidden)] += event.count
            sums.notes[_DILUTED] = None
        elif isinstance(event.noise, Gaussian):
            _add_gaussian(sums, event, rate, one_sided)
        else:
            sums.pairs[_unsampled_pair(event)] += event.count
    return Merged(
        mu=math.sqrt(sum(sorted(sums.squares))),
        pairs=dict(sums.pairs),
        leaks=tuple(dict.fromkeys(sums.leaks)),
        assumptions=tuple(sums.notes),
    )


def _strength(event: Event) -> float:
    """The privacy loss of one release: mu of a Gaussian, epsilon of a pure mechanism."""
    noise = event.noise
    if isinstance(noise, Exact | Opaque):
        return math.inf
    if isinstance(noise, Gaussian | Laplace):
        scale = noise.std if isinstance(noise, Gaussian) else noise.scale
        return event.sensitivity / scale if scale > 0 else math.inf
    return noise.epsilon


def _add_gaussian(sums: _Sums, event: Event, rate: float, one_sided: bool) -> None:
    mu = _strength(event)
    if rate == 1.0:
        sums.squares.append(event.count * mu * mu)
    elif event.sampling is not None and event.sampling.scheme == FIXED:
        sums.pairs[WithoutReplacementPair(mu, rate)] += event.count
        sums.notes[_WITHOUT_REPLACEMENT] = None
    elif one_sided:
        sums.pairs[SampledGaussianPair(mu, rate)] += event.count
        sums.notes[_SAMPLED_REMOVAL] = None
    else:
        sums.pairs[SampledReplacementPair(mu, rate)] += event.count
        sums.notes[_SAMPLED_REPLACEMENT] = None


def _is_seen(event: Event) -> bool:
    return event.sampling is not None and event.sampling.scheme in (SEEN, FIXED_SEEN)


def _unsampled_pair(event: Event) -> GaussianPair | LaplacePair | RandomizedResponsePair:
    """The pair of one release in a round that the unit takes part in."""
    strength = _strength(event)
    if isinstance(event.noise, Gaussian):
        return GaussianPair(strength)
    return LaplacePair(strength) if isinstance(event.noise, Laplace) else RandomizedResponsePair(strength)


def refusal(exposure: Exposure) -> str | None:
    """Why no accountant of this package can bound an exposure, or None."""
    if exposure.not_applicable is not None:
        return f"not applicable: {exposure.not_applicable}"
    schemes = {e.sampling.scheme for e in exposure.events if e.sampling is not None}
    known = (SECRET, SEEN, FIXED, FIXED_SEEN)
    if unknown := sorted(schemes - set(known)):
        return f"batches are sampled by {', '.join(unknown)}; amplification is certified for {', '.join(known)} only"
    return None


def check(reason: str | None, delta: float) -> None:
    """Raise an error for an exposure that is not supported, and for a delta outside [0, 1); 0 asks for pure epsilon."""
    if reason is not None:
        raise ValueError(f"Expected an exposure that can be accounted for: {reason}.")
    if not 0 <= delta < 1:
        raise ValueError(f"Expected 0 <= delta < 1, found delta={delta}.")


def unbounded(accountant: str, merged: Merged, delta: float) -> Budget:
    """The infinite budget of an exposure with messages without noise, which the assumptions name."""
    return Budget(
        accountant=accountant,
        method="no bound: a message without noise",
        delta=delta,
        lower=math.inf,
        estimate=math.inf,
        upper=math.inf,
        assumptions=(*merged.assumptions, *(f"unprotected: {leak}" for leak in merged.leaks)),
    )
