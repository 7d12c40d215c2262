"""Converts an exposure to dominating pairs with counts: equal events are merged, Gaussians composed in closed form."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from vflpriv.core.budgets import Budget
from vflpriv.core.law import Pair
from vflpriv.core.ledger import Event, Exposure
from vflpriv.core.units import Unit
from vflpriv.laws.gaussian import GaussianPair
from vflpriv.laws.pairs import Diluted

__all__ = ["FIXED", "FIXED_SEEN", "SECRET", "SEEN", "Merged", "check", "merge", "refusal", "unbounded"]

_ONE_SIDED = (Unit.ADD_REMOVE, Unit.CLIENT_ZERO)
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
    attained: bool = True
    """Whether two real neighbours reach mu, or it is only a bound."""
    leaks: tuple[str, ...] = ()
    assumptions: tuple[str, ...] = ()

    @property
    def gaussian(self) -> bool:
        return not self.pairs and not self.leaks

    @property
    def all_pairs(self) -> dict[Pair, int]:
        """Every pair with its count, the Gaussians without sampling as one."""
        gaussians: dict[Pair, int] = {GaussianPair(self.mu, bound=not self.attained): 1} if self.mu > 0 else {}
        return {**gaussians, **self.pairs}


@dataclass
class _Sums:
    squares: list[float] = field(default_factory=list)
    attained: bool = True
    pairs: Counter[Pair] = field(default_factory=Counter)
    leaks: list[str] = field(default_factory=list)
    notes: dict[str, None] = field(default_factory=dict)


def merge(exposure: Exposure) -> Merged:
    """Merge equal events, whatever their order in the ledger, and gather the assumptions of their pairs."""
    sums = _Sums(leaks=list(exposure.unprotected), notes=dict.fromkeys(exposure.assumptions))
    one_sided = exposure.unit in _ONE_SIDED
    for event in exposure.events:
        rate = 1.0 if event.sampling is None else min(event.sampling.rate, 1.0)
        strength = event.noise.strength(event.sensitivity)
        if event.count <= 0 or event.sensitivity <= 0 or rate <= 0 or strength <= 0:
            continue
        if strength == math.inf:
            sums.leaks.append(f"{event.kind} ({event.noise}, sensitivity {event.sensitivity:g}) has no bounded cost")
        elif rate < 1.0:
            pair, note = _sampled(event, rate, one_sided)
            sums.pairs[pair] += event.count
            sums.notes[note] = None
        elif event.noise.gaussian:
            sums.squares.append(event.square)
            sums.attained = sums.attained and event.noise.attains(event.count)
        else:
            sums.pairs[event.noise.pair(event.sensitivity)] += event.count
    return Merged(
        mu=math.sqrt(sum(sorted(sums.squares))),
        pairs=dict(sums.pairs),
        attained=sums.attained,
        leaks=tuple(dict.fromkeys(sums.leaks)),
        assumptions=tuple(sums.notes),
    )


def _sampled(event: Event, rate: float, one_sided: bool) -> tuple[Pair, str]:
    """The pair of one release from a secret batch, and what it takes for granted."""
    law, scheme = event.noise, "" if event.sampling is None else event.sampling.scheme
    seen = scheme in (SEEN, FIXED_SEEN)
    known = None if seen else law.sampled_pair(event.sensitivity, rate, fixed=scheme == FIXED, one_sided=one_sided)
    hidden = law.norm is not None and not seen
    return known or (Diluted(law.pair(event.sensitivity), rate, hidden), _DILUTED)


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
