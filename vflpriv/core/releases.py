"""Releases: what private value leaves its owner, with which noise and sensitivity, and which adversaries see it.

A mechanism adds the noise and describes the release, so that the two cannot differ.
"""

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
    """A label kept or replaced at random: epsilon-DP whatever the sensitivity."""

    epsilon: float

    def __str__(self) -> str:
        return f"RandomizedResponse(epsilon={self.epsilon:.6g})"


@dataclass(frozen=True)
class Exact:
    """No noise."""

    def __str__(self) -> str:
        return "no noise"


Noise = Gaussian | Laplace | RandomizedResponse | Exact


@dataclass(frozen=True, kw_only=True)
class StateLeak:
    """State that is computed from private data without noise and that later releases depend on.

    From the round after a record's first, every release may then differ by `sensitivity`, in its batch or not.
    `carrier` names the state, such as the server's model.
    """

    carrier: str
    sensitivity: Mapping[Unit, float]


@dataclass(frozen=True, eq=False, kw_only=True)
class Release:
    """One kind of private value that leaves its owner, over all rounds.

    `sensitivity` holds, for each unit, the largest distance between the noiseless values of two neighbouring data sets
    in a round that the unit takes part in; a unit that is absent cannot change this value (or only through other
    releases). `rounds` marks the rounds with such a release. `seen_by` names the kinds of adversaries that observe it;
    a device observes it only in the rounds it takes part in, unless with `reaches_all` all devices see its effect.
    With `carried` the noised value changes models that later messages to every device depend on, whoever took part:
    counted rigorously all rounds count for each device, counted as papers do only its own.
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
    """Whether it is a sum to which an absent record adds nothing, so that secret batches hide who took part."""
    once: bool = False
    """Whether every record is released exactly once, whatever the batches."""
    leak: StateLeak | None = None
    tensors: frozenset[str] | None = None
    """The tensors of its messages that it covers; if None, the only one, or those of the table of kinds."""
    notes: tuple[str, ...] = field(default=())

    def protects(self, unit: Unit) -> bool:
        """Whether the noise bounds the privacy loss of this release for the unit."""
        return not isinstance(self.noise, Exact) and math.isfinite(self.sensitivity.get(unit, 0.0))
