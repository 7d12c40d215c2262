"""Secret batches that several releases of a round share: what may be amplified, and as what.

Releases of one round read the same batch. Amplified one by one they would count as if each had drawn a batch of its
own, which tells less than there is to tell. So they are joined first: Gaussian ones are one Gaussian release, whose
squares of sensitivity / std add, and that one is sampled.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vflpriv.profiles import Sampling, Term, strength
from vflpriv.releases import Gaussian, Noise, Release
from vflpriv.units import Unit

__all__ = ["Sampled", "join"]


@dataclass(frozen=True, eq=False, kw_only=True)
class Sampled:
    """One kind of release of secret batches: with `seen`, it shows whether a record takes part."""

    kind: str
    noise: Noise
    sensitivity: float
    seen: bool
    rounds: NDArray[np.bool_]

    @classmethod
    def of(cls, release: Release, rounds: NDArray[np.bool_], unit: Unit, *, fixed_size: bool) -> Sampled:
        """A release in these rounds. In a batch of fixed size a record makes way for another one, whatever the unit."""
        own = release.sensitivity[unit]
        swapped = release.sensitivity.get(Unit.RECORD, 2 * release.sensitivity.get(Unit.ADD_REMOVE, math.inf))
        moved = max(own, swapped) if fixed_size else own
        seen = not release.additive or math.isinf(moved)
        return cls(kind=release.kind, noise=release.noise, sensitivity=own if seen else moved, seen=seen, rounds=rounds)


def join(
    releases: Sequence[Sampled], scheme: str, rate: float, records: int
) -> tuple[list[Term], list[tuple[Sampled, NDArray[np.bool_]]]]:
    """One term for each set of releases that share rounds; and what cannot be joined, with its rounds.

    The latter, noises of which one is not Gaussian, is to be counted as if the batches of its rounds were known.
    """
    if not releases:
        return [], []
    present = np.stack([release.rounds for release in releases])
    patterns, pattern_of = np.unique(present, axis=1, return_inverse=True)
    terms, rest = [], []
    for place, pattern in enumerate(patterns.T):
        members = [release for release, there in zip(releases, pattern, strict=True) if there]
        rounds = pattern_of == place
        if len(members) > 1 and not all(isinstance(member.noise, Gaussian) for member in members):
            rest += [(member, rounds) for member in members]
        elif members:
            one = members[0] if len(members) == 1 else _joined(members)
            sampling = Sampling(f"{scheme}-seen" if one.seen else scheme, rate)
            counts = np.full(records, np.count_nonzero(rounds), dtype=np.int64)
            terms.append(
                Term(kind=one.kind, noise=one.noise, sensitivity=one.sensitivity, counts=counts, sampling=sampling)
            )
    return terms, rest


def _joined(members: Sequence[Sampled]) -> Sampled:
    """Several Gaussian releases of one round as one with noise of std 1; what one of them shows, all do."""
    return Sampled(
        kind=" + ".join(member.kind for member in members),
        noise=Gaussian(1.0),
        sensitivity=math.sqrt(sum(strength(member.noise, member.sensitivity) ** 2 for member in members)),
        seen=any(member.seen for member in members),
        rounds=members[0].rounds,
    )
