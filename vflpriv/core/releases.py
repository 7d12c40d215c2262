"""Releases: a private value that leaves its owner, as data. A mechanism adds the noise and describes the release."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from vflpriv.core.units import Unit

__all__ = ["Exact", "Gaussian", "Laplace", "Noise", "RandomizedResponse", "Release", "StateLeak"]


@dataclass(frozen=True)
class Gaussian:
    """Independent N(0, std²) on every entry; sensitivities are in L2."""

    std: float

    def __str__(self) -> str:
        return f"Gaussian(std={self.std:.6g})"


@dataclass(frozen=True)
class Laplace:
    """Independent Laplace(scale) on every entry; sensitivities are in L1."""

    scale: float

    def __str__(self) -> str:
        return f"Laplace(scale={self.scale:.6g})"


@dataclass(frozen=True)
class RandomizedResponse:
    """A label kept or replaced at random, epsilon-DP for itself whatever the sensitivity."""

    epsilon: float

    def __str__(self) -> str:
        return f"RandomizedResponse(epsilon={self.epsilon:.6g})"


@dataclass(frozen=True)
class Exact:
    """No noise at all."""

    def __str__(self) -> str:
        return "no noise"


Noise = Gaussian | Laplace | RandomizedResponse | Exact


@dataclass(frozen=True, kw_only=True)
class StateLeak:
    """State that private data moved without noise and that later releases read.

    From the round after a record's first, every release may then differ by `sensitivity`, in its batch or not.
    """

    carrier: str
    sensitivity: Mapping[Unit, float]


@dataclass(frozen=True, eq=False, kw_only=True)
class Release:
    """One kind of private value that leaves its owner, over all rounds.

    `sensitivity` holds, for each unit, the largest distance between the noiseless values of two neighbouring worlds in
    a round that the unit takes part in; a unit that is absent cannot move this value (or only through other releases).
    `rounds` marks the rounds with such a release; `seen_by` names the adversary kinds before whose eyes it passes,
    a device only in the rounds it takes part in unless `reaches_all`: what it moves is read by everyone later.
    With `carried` it moves, noised as it is, models that a device's later messages read, whoever took part: rigorously
    all rounds count for every device; read as papers do, its own.
    """

    kind: str
    what: str
    noise: Noise
    sensitivity: Mapping[Unit, float]
    rounds: NDArray[np.bool_]
    seen_by: frozenset[str]
    reaches_all: bool = False
    carried: bool = False
    additive: bool = False
    """Whether it is a sum to which an absent record adds nothing, so that secret batches hide who was in them."""
    once: bool = False
    """Whether every record is released exactly once, whatever the batches."""
    leak: StateLeak | None = None
    notes: tuple[str, ...] = field(default=())

    def protects(self, unit: Unit) -> bool:
        """Whether the noise bounds what this release tells of the unit."""
        return not isinstance(self.noise, Exact) and math.isfinite(self.sensitivity.get(unit, 0.0))
