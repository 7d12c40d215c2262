"""Mechanisms clip, add noise and describe the release, so that the three cannot drift apart; a release point uses one.

A protected value leaves an engine in one way: through a release point, which holds a mechanism and the source of its
noise, and lets a probe look.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from vflpriv.common.lazy import gradients_along, torch
from vflpriv.common.random import Stream
from vflpriv.core.engine import Contributions, Probe, Rows
from vflpriv.core.law import Draws, Law
from vflpriv.core.releases import Release, StateLeak
from vflpriv.core.schedules import Schedule
from vflpriv.core.units import Unit
from vflpriv.laws import Exact, Gaussian

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Mechanism", "NoNoise", "NoiseSource", "OuterMean", "ReleasePoint", "ScalarMean", "VectorMean", "shared"]


_MOST_ENTRIES = 1 << 24
"""Of a released vector or matrix: the grid is fine enough for so many."""


def shared(values: Tensor) -> bool:
    """Whether all replicas of these values (R, …) are one in memory, so that what follows of them is computed once."""
    return len(values) > 1 and values.stride(0) == 0


@dataclass(frozen=True, kw_only=True)
class Mechanism(ABC):
    """A clipped function of private values plus noise: Gaussian of this std on every entry, or of the law given.

    Inputs and outputs have a leading replica axis. Sensitivities are in the norm of the law.
    """

    noise_std: float = 0.0
    law: Law | None = None
    """The law of the noise, where it is not Gaussian of `noise_std`."""
    additive: ClassVar[bool] = False
    """Whether the value is a sum over records to which an absent one adds nothing."""
    scalar: ClassVar[bool] = False
    """Whether a record contributes one number, so that inputs are (R, B); otherwise (R, B, width)."""

    @abstractmethod
    def noiseless(self, values: Tensor) -> Tensor:
        """The value before noise."""

    def pulled_back(self, values: Tensor, gradient: Tensor) -> Tensor:
        """The gradient by `values`, given that by their noiseless value."""
        with torch.enable_grad():
            leaf = values.detach().requires_grad_()
            noiseless = self.noiseless(leaf)
        return gradients_along(noiseless, [leaf], gradient)[0]

    @property
    @abstractmethod
    def sensitivity(self) -> Mapping[Unit, float]:
        """For each unit, a bound on the distance of two neighbouring inputs' noiseless values, in the law's norm."""

    @property
    def declared(self) -> Mapping[Unit, float]:
        """The bounds that a published proof relies on; the proven ones unless it is mistaken."""
        return self.sensitivity

    def neighbour(self, unit: Unit, values: Tensor, other: Tensor) -> Tensor:
        """The input of a neighbouring world: `values` with record 0, or everything, taken from `other` or blanked."""
        axis = 1
        first, others = values.narrow(axis, 0, 1), values.narrow(axis, 1, values.shape[axis] - 1)
        if unit is Unit.ADD_REMOVE:
            return torch.cat((torch.zeros_like(first), others), dim=axis)
        if unit.per_record:
            return torch.cat((other.narrow(axis, 0, 1), others), dim=axis)
        return self.blank(other) if unit is Unit.CLIENT_ZERO else other

    def blank(self, other: Tensor) -> Tensor:
        """The input when a device's block is all zeros; anything at all where the device is one source of several."""
        return other

    def admissible(self, unit: Unit, values: Tensor) -> Tensor:
        """An input that the bound for a unit speaks of, made from any."""
        return values

    @property
    def noise(self) -> Law:
        """The law of the noise."""
        if self.law is not None:
            return self.law
        return Gaussian(self.noise_std) if self.noise_std > 0 else Exact()

    @cached_property
    def on_grid(self) -> Law:
        """The same law on the grid that values are rounded to: noise is drawn by it, and the ledger's costs are its."""
        bounds = [bound for bound in self.sensitivity.values() if 0 < bound < math.inf]
        return self.noise.on_grid(min(bounds, default=math.inf), 1 if self.scalar else _MOST_ENTRIES)

    def release(self, noiseless: Tensor, draws: Tensor) -> Tensor:
        """The noised value, from draws of the law of the same shape: standard normals of Gaussian noise."""
        if math.prod(noiseless.shape[1:]) > _MOST_ENTRIES:
            raise ValueError(f"Expected at most {_MOST_ENTRIES} entries in a release, found {tuple(noiseless.shape)}.")
        return self.on_grid.release(noiseless, draws)

    def describe(
        self,
        *,
        kind: str,
        what: str,
        rounds: NDArray[np.bool_],
        seen_by: frozenset[str],
        reaches_all: bool = False,
        carried: bool = False,
        fresh: bool = False,
        leak: StateLeak | None = None,
    ) -> Release:
        """The ledger's entry for the releases of this mechanism."""
        return Release(
            kind=kind,
            what=what,
            noise=self.on_grid,
            sensitivity=self.sensitivity,
            rounds=rounds,
            seen_by=seen_by,
            reaches_all=reaches_all,
            carried=carried,
            additive=self.additive,
            fresh=fresh,
            leak=leak,
        )


def _mean_sensitivity(clip: float, batch_size: int, largest: int | None) -> Mapping[Unit, float]:
    """Of a mean over a fixed denominator B of terms of norm at most C.

    Replacing a record moves the sum by at most 2C, adding one by at most C: 2C/B and C/B. A whole device can move
    every record, but the mean of k terms stays within the ball of radius C·k/B: 2C, or more where a Poisson batch is
    larger than B.
    """
    replace, whole = 2 * clip / batch_size, 2 * clip * max(1.0, (largest or 0) / batch_size)
    return {
        Unit.LABEL: replace,
        Unit.RECORD: replace,
        Unit.FEATURES: replace,
        Unit.ADD_REMOVE: clip / batch_size,
        Unit.CLIENT_ZERO: whole,
        Unit.CLIENT: whole,
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
    largest: int | None = None
    """The records of the largest batch, where it may be larger than B."""

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
        return _mean_sensitivity(self.clip, self.batch_size, self.largest)

    @property
    def span(self) -> float:
        """The largest distance between any two noiseless values: what remains when the whole state may differ."""
        return self.declared[Unit.CLIENT] if self.two_sided else math.inf


@dataclass(frozen=True, kw_only=True)
class VectorMean(Mechanism):
    """The mean of one vector per record, each scaled into the L2 ball of radius C, over a fixed denominator B (DP-SGD).

    The bounds are those of `ScalarMean`, by the triangle inequality.
    """

    additive = True
    clip: float
    batch_size: int
    largest: int | None = None
    """The records of the largest batch, where it may be larger than B."""

    def noiseless(self, values: Tensor) -> Tensor:
        if shared(values):
            return self.noiseless(values[:1]).expand(len(values), -1)
        norm = values.square().sum(-1, keepdim=True).sqrt().clamp(min=1e-30)
        return (values * (self.clip / norm).clamp(max=1.0)).sum(-2) / self.batch_size

    @property
    def sensitivity(self) -> Mapping[Unit, float]:
        return _mean_sensitivity(self.clip, self.batch_size, self.largest)


_SMALL = 1e-15
"""Squares of entries from here to its inverse, and sums of them, are ordinary numbers of single precision."""


@dataclass(frozen=True, kw_only=True)
class OuterMean(VectorMean):
    """The same mean where a record's vector is the gradient of a linear model: its features times its slopes.

    A record's values are its slopes, beside rows that hold the features; or, in one tensor, its features and then as
    many slopes as the model has outputs. The gradient of one record has the norm of the features times that of the
    slopes, so that no record's gradient is ever written down.
    """

    slopes: int = 1

    def noiseless(self, values: Tensor) -> Tensor:
        rows, slopes = values.split([values.shape[-1] - self.slopes, self.slopes], dim=-1)
        clipped = self._clipped(slopes, _length(rows))
        # With the few slopes on the left this product is many times faster than its transpose.
        return torch.matmul(clipped.transpose(-1, -2), rows).transpose(-1, -2).flatten(-2) / self.batch_size

    def of_rows(self, rows: Rows, slopes: Tensor) -> Tensor:
        """The same value, of slopes (R, B, C) and the rows that they belong to."""
        return rows.outer(self._clipped(slopes, rows.lengths)) / self.batch_size

    def _clipped(self, slopes: Tensor, lengths: Tensor) -> Tensor:
        norm = lengths * _length(slopes)
        return slopes * (self.clip / norm.clamp(min=1e-30)).clamp(max=1.0)


def _length(rows: Tensor) -> Tensor:
    """(…, 1) the length of each row, and at least it where squares of entries would leave the numbers."""
    length: Tensor = torch.linalg.vector_norm(rows, dim=-1, keepdim=True)
    largest: Tensor = torch.linalg.vector_norm(rows, math.inf, dim=-1, keepdim=True)
    ordinary = (largest > _SMALL) & (largest < 1 / _SMALL)
    return torch.where(ordinary, length, largest * math.sqrt(rows.shape[-1]))


@dataclass(frozen=True, kw_only=True)
class NoNoise(Mechanism):
    """Values that leave as they are: no clip, no noise, and an infinite sensitivity for every unit they depend on."""

    depends_on: frozenset[Unit]

    def noiseless(self, values: Tensor) -> Tensor:
        return values

    def pulled_back(self, values: Tensor, gradient: Tensor) -> Tensor:
        return gradient

    @property
    def sensitivity(self) -> Mapping[Unit, float]:
        return dict.fromkeys(self.depends_on, math.inf)

    def describe_models(self, moved_by: str, schedule: Schedule) -> Release:
        """The trained models, which whoever holds them reads after the last round."""
        what, readers = f"the trained models, moved by {moved_by}", frozenset({"model"})
        return self.describe(kind="models", what=what, rounds=schedule.last_round, seen_by=readers)


_CHUNK = 1024
_GAUSSIAN = Gaussian(1.0)


class NoiseSource:
    """Draws of a law for one release point: standard normals of Gaussian noise.

    Its stream shares nothing with the directions', whose seeds devices hold. `name` is the name of its stream, so that
    a run can be repeated with other noise.
    """

    def __init__(self, stream: Draws, *, name: str = "noise", law: Law = _GAUSSIAN) -> None:
        self.name = name
        self._stream, self._law = stream, law
        self._held: tuple[int, Tensor] | None = None

    def redrawn(self, seed: int, replicas: Sequence[int]) -> NoiseSource:
        """A source that draws from the stream of the same name of this seed and these replicas, never in secret."""
        stream = Stream.of(seed, self.name, replicas, self._stream.device)
        return NoiseSource(stream, name=self.name, law=self._law)

    def scalar(self, round_: int) -> Tensor:
        """(R,) one draw per replica for this round; of independent rounds, drawn for many at once."""
        if not self._law.independent:
            return self._law.draw(self._stream, 1, round_, 0)[:, 0]
        begin = round_ - round_ % _CHUNK
        if self._held is None or self._held[0] != begin:
            self._held = (begin, self._law.draw(self._stream, _CHUNK, begin // _CHUNK))
        return self._held[1][:, round_ - begin]

    def tensor(self, shape: tuple[int, ...], round_: int, party: int) -> Tensor:
        """(R, *shape) draws for the release of one party in this round."""
        drawn = self._law.draw(self._stream, math.prod(shape), round_, 1 + party)
        return drawn.reshape(self._stream.replicas, *shape)


class ReleasePoint:
    """A mechanism, the source of its noise, and the kind of message that carries what it releases.

    An `internal` point is a noised step that is never sent by itself, but that every later message reads. Where the
    mechanism adds no noise, values leave as they are and no probe is asked.
    """

    def __init__(self, kind: str, mechanism: Mechanism, noise: NoiseSource, *, internal: bool = False) -> None:
        self.kind, self.mechanism, self.noise, self.internal = kind, mechanism, noise, internal
        self.probe: Probe | None = None

    def for_replicas(self, seed: int, replicas: Sequence[int]) -> ReleasePoint:
        """The same point for other replicas: a copy with their noise, and without a probe."""
        other = copy(self)
        other.noise, other.probe = self.noise.redrawn(seed, replicas), None
        return other

    def noiseless(self, contributions: Contributions) -> Tensor:
        """The value that these contributions make, before noise."""
        if contributions.rows is not None:
            assert isinstance(self.mechanism, OuterMean)
            return self.mechanism.of_rows(contributions.rows, contributions.values)
        return contributions.values if contributions.clipped else self.mechanism.noiseless(contributions.values)

    def release(self, contributions: Contributions, normals: Tensor) -> Tensor:
        """The value that leaves, from standard normals of its shape."""
        if self.probe is None or not self.mechanism.noise.noised:
            return self.mechanism.release(self.noiseless(contributions), normals)
        noiseless = self.probe.noiseless(self, contributions)
        released = self.mechanism.release(noiseless, normals)
        return self.probe.released(self, contributions, noiseless, released)

    def scalar(self, contributions: Contributions) -> Tensor:
        """(R,) the noised aggregate of one number per record."""
        return self.release(contributions, self.noise.scalar(contributions.round))

    def vector(self, contributions: Contributions, width: int) -> Tensor:
        """(R, width) the noised aggregate of one vector per record."""
        return self.release(contributions, self.noise.tensor((width,), contributions.round, contributions.party))

    def rows(self, round_: int, m: int, records: Tensor, clipped: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """What device m sends of these clipped rows, (R, B, width) each; each tensor has noise of its own."""
        if not self.mechanism.noise.noised:
            return dict(clipped)
        shape = tuple(next(iter(clipped.values())).shape[1:])
        several = len(clipped) > 1
        normals = self.noise.tensor((len(clipped), *shape) if several else shape, round_, m)
        separate = normals.unbind(1) if several else [normals]
        return {
            name: self.release(
                Contributions(round=round_, party=m, records=records, values=values, clipped=True), own_normals
            )
            for (name, values), own_normals in zip(clipped.items(), separate, strict=True)
        }
