"""Mechanisms: they clip, add the noise and describe the release, so that the three cannot drift apart."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vflpriv.core.releases import Exact, Gaussian, Noise, Release, StateLeak
from vflpriv.core.units import Unit

__all__ = ["Mechanism", "NoNoise", "ScalarMean", "VectorMean"]


@dataclass(frozen=True, kw_only=True)
class Mechanism(ABC):
    """A clipped function of private values plus Gaussian noise of this std on every entry.

    Inputs and outputs have a leading replica axis.
    """

    noise_std: float
    additive: ClassVar[bool] = False
    """Whether the value is a sum over records to which an absent one adds nothing."""
    scalar: ClassVar[bool] = False
    """Whether a record contributes one number, so that inputs are (R, B); otherwise (R, B, width)."""

    @abstractmethod
    def noiseless(self, values: Tensor) -> Tensor:
        """The value before noise."""

    @property
    @abstractmethod
    def sensitivity(self) -> Mapping[Unit, float]:
        """For each unit, a bound on the L2 distance between the noiseless values of two neighbouring inputs."""

    @property
    def declared(self) -> Mapping[Unit, float]:
        """The bounds that a published proof relies on; the proven ones unless it is mistaken."""
        return self.sensitivity

    def neighbour(self, unit: Unit, values: Tensor, other: Tensor) -> Tensor:
        """The input of a neighbouring world: `values` with record 0, or everything, taken from `other` or blanked."""
        axis = 1
        mine, rest = values.narrow(axis, 0, 1), values.narrow(axis, 1, values.shape[axis] - 1)
        if unit is Unit.ADD_REMOVE:
            return torch.cat((torch.zeros_like(mine), rest), dim=axis)
        if unit.per_record:
            return torch.cat((other.narrow(axis, 0, 1), rest), dim=axis)
        return self.blank(other) if unit is Unit.CLIENT_ZERO else other

    def blank(self, other: Tensor) -> Tensor:
        """The input when a device's block is all zeros; anything at all where the device is one source of several."""
        return other

    def admissible(self, unit: Unit, values: Tensor) -> Tensor:
        """An input that the bound for a unit speaks of, made from any."""
        return values

    @property
    def noise(self) -> Noise:
        return Gaussian(self.noise_std) if self.noise_std > 0 else Exact()

    def release(self, noiseless: Tensor, normals: Tensor) -> Tensor:
        """The noised value, from standard normals of the same shape."""
        return noiseless + self.noise_std * normals

    def describe(
        self,
        *,
        kind: str,
        what: str,
        rounds: NDArray[np.bool_],
        seen_by: frozenset[str],
        reaches_all: bool = False,
        carried: bool = False,
        leak: StateLeak | None = None,
    ) -> Release:
        """The ledger's entry for the releases of this mechanism."""
        return Release(
            kind=kind,
            what=what,
            noise=self.noise,
            sensitivity=self.sensitivity,
            rounds=rounds,
            seen_by=seen_by,
            reaches_all=reaches_all,
            carried=carried,
            additive=self.additive,
            leak=leak,
        )


def _mean_sensitivity(clip: float, batch_size: int) -> Mapping[Unit, float]:
    """Of a mean over a fixed denominator B of terms of norm at most C.

    Replacing a record moves the sum by at most 2C, adding one by at most C: 2C/B and C/B. A whole device can move
    every record, but the mean stays within the ball of radius C: 2C.
    """
    replace = 2 * clip / batch_size
    return {
        Unit.LABEL: replace,
        Unit.RECORD: replace,
        Unit.FEATURES: replace,
        Unit.ADD_REMOVE: clip / batch_size,
        Unit.CLIENT_ZERO: 2 * clip,
        Unit.CLIENT: 2 * clip,
    }


@dataclass(frozen=True, kw_only=True)
class ScalarMean(Mechanism):
    """The mean of one clipped number per record, over a fixed denominator B (DPZV eq. 8).

    `two_sided` clamps to [-C, C], which bounds the sensitivity. Otherwise the clip is the published min(δ, C), which
    has no lower bound: the sensitivity is infinite.
    """

    scalar = True
    additive = True
    clip: float
    batch_size: int
    two_sided: bool = True

    def contributions(self, values: Tensor) -> Tensor:
        """Each record's clipped number."""
        return values.clamp(-self.clip, self.clip) if self.two_sided else values.clamp(max=self.clip)

    def noiseless(self, values: Tensor) -> Tensor:
        return self.contributions(values).sum(-1) / self.batch_size

    @property
    def sensitivity(self) -> Mapping[Unit, float]:
        if not self.two_sided:
            return dict.fromkeys(Unit, math.inf)
        return self.declared

    @property
    def declared(self) -> Mapping[Unit, float]:
        return _mean_sensitivity(self.clip, self.batch_size)

    @property
    def span(self) -> float:
        """The largest distance between any two noiseless values: what remains when the whole state may differ."""
        return 2 * self.clip if self.two_sided else math.inf


@dataclass(frozen=True, kw_only=True)
class VectorMean(Mechanism):
    """The mean of one vector per record, each scaled into the L2 ball of radius C, over a fixed denominator B (DP-SGD).

    The bounds are those of `ScalarMean`, by the triangle inequality.
    """

    additive = True
    clip: float
    batch_size: int

    def noiseless(self, values: Tensor) -> Tensor:
        norm = values.square().sum(-1, keepdim=True).sqrt().clamp(min=1e-30)
        return (values * (self.clip / norm).clamp(max=1.0)).sum(-2) / self.batch_size

    @property
    def sensitivity(self) -> Mapping[Unit, float]:
        return _mean_sensitivity(self.clip, self.batch_size)


@dataclass(frozen=True, kw_only=True)
class NoNoise(Mechanism):
    """Values that leave as they are: no clip, no noise, and an infinite sensitivity for every unit they depend on."""

    noise_std: float = 0.0
    depends_on: frozenset[Unit]

    def noiseless(self, values: Tensor) -> Tensor:
        return values

    def release(self, noiseless: Tensor, normals: Tensor) -> Tensor:
        return noiseless

    @property
    def sensitivity(self) -> Mapping[Unit, float]:
        return dict.fromkeys(self.depends_on, math.inf)
