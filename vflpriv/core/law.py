"""What a law of noise answers: its sensitivity's norm, its privacy loss, its samples, and tests of what was observed.

A law is the distribution of the noise on a release, or of a response that takes its place. Ledgers, accountants,
mechanisms and audits ask the law and never which one it is, so that a new law is one file in `vflpriv/laws/`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Hashable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np

from vflpriv.common.numerics import Floats

if TYPE_CHECKING:
    import torch
    from torch import Tensor

__all__ = ["Draws", "Law", "Pair"]


class Draws(Protocol):
    """A source of random numbers with a replica axis: a stream of a seed, or one of a secret key."""

    @property
    def replicas(self) -> int:
        """How many replicas it draws for."""
        ...

    @property
    def device(self) -> torch.device:
        """Where the numbers are."""
        ...

    def uniform(self, count: int, *path: int) -> Tensor:
        """(R, count) numbers in (0, 1] of the sequence with this path."""
        ...

    def normal(self, count: int, *path: int) -> Tensor:
        """(R, count) standard normals of the sequence with this path."""
        ...

    def bits(self, count: int, *path: int) -> Tensor:
        """(R, count) int64 of 63 random bits each, of the sequence with this path."""
        ...


class Pair(ABC):
    """Two distributions P and Q that are at least as easy to tell apart as a release on any two neighbouring data sets.

    Composition keeps domination, so bounds on the pairs are bounds on the run (Zhu, Dong, Wang 2022, "Optimal
    Accounting of Differential Privacy via Characteristic Function"). The privacy loss is log P(x)/Q(x) with x drawn
    from P. Pairs are values: equal ones are counted together.
    """

    described: ClassVar[str]
    """What other libraries may not know, in words."""
    by_moments: ClassVar[bool] = False
    """Whether only its Rényi moments are known, and not its masses."""
    library_note: ClassVar[str] = ""
    """A known fault of dp-accounting with this pair."""
    sampled: ClassVar[bool] = False
    """Whether it counts secret batches."""

    @abstractmethod
    def masses(self, edges: Floats) -> tuple[Floats, Floats]:
        """P's and Q's mass on each half-open interval (edges[j], edges[j + 1]] of the loss."""

    @abstractmethod
    def reach(self, tail: float) -> tuple[float, float]:
        """Losses below and above which P has at most mass `tail` each."""

    @abstractmethod
    def usual(self) -> float:
        """The loss, or nearly so, of P's most likely outcomes."""

    @abstractmethod
    def moments(self, orders: tuple[float, ...], *, fast: bool) -> Floats:
        """log E_Q[(P/Q)^a] at each order a > 1, for the worse of the two directions; NaN where it is not known.

        The moment is convex in the order: `fast` may bound it by chords between few orders.
        """

    def log_moments(self, orders: tuple[float, ...], *, fast: bool = False) -> Floats:
        """The moments as upper bounds: +inf where they are not known, never negative."""
        values = self.moments(orders, fast=fast)
        return np.where(np.isnan(values), math.inf, np.maximum(values, 0.0))

    def reversed(self) -> Pair:
        """The pair (Q, P): the same neighbours, the other way round. By default both directions have the same loss."""
        return self

    @property
    def pure_epsilon(self) -> float:
        """The largest loss, in a round that the record takes part in; inf where there is none."""
        return math.inf

    @property
    def pure_cost(self) -> float:
        """What the release adds to a sum of pure epsilons."""
        return self.pure_epsilon

    def attained(self) -> Pair | None:
        """A pair that two real neighbouring data sets attain and that this pair dominates; None where none is known.

        It is the pair itself wherever that is attained.
        """
        return self

    @property
    def unsampled_mu(self) -> float:
        """The mu of the Gaussian curve that bounds it if every record took part in every round; inf without one."""
        return math.inf

    @property
    def ratio_variance(self) -> float | None:
        """The variance of its likelihood ratio, the mu² of the central limit; None where that is not used."""
        return None

    @property
    def sampled_gaussian(self) -> tuple[float, float] | None:
        """(noise multiplier, sampling rate), if it is a Gaussian whose records are added or removed; else None."""
        return None

    @property
    def family(self) -> Hashable:
        """Pairs with `mu` and `rate` of one family may be grouped: more of either is easier to tell; None: never."""
        return None

    def in_dp_accounting(self, interval: float) -> Any:
        """The privacy-loss distribution that dp-accounting computes for it; None where it knows none."""
        return None


class Law(ABC):
    """The distribution of the noise on a release, or of the response that takes its place.

    What a subclass must say is how strong one release is (`strength`) and its dominating pair. Everything else has a
    default: a law without a sampler is for ledgers of recorded systems, one without `scores` is not tested.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    norm: ClassVar[float | None] = None
    """The order of the norm in which sensitivities are given: 1, 2 or inf; None where no distance matters."""
    exact: ClassVar[bool] = False
    """Whether the value leaves as it is."""
    gaussian: ClassVar[bool] = False
    """Whether the trade-off curve of one release is exactly Gaussian, with `strength` as its mu."""
    independent: ClassVar[bool] = True
    """Whether the noise of every round is independent of all others'."""
    selects: ClassVar[bool] = False
    """Whether the release is a choice that takes the place of the value, and not the value plus noise."""
    bounds_size: ClassVar[bool] = False
    """Whether noise around any signal is at least as large as noise alone, so that recorded values are tested."""
    sized_by: ClassVar[str | None] = None
    """The field that says how large the noise is, such as `std`; None where no number scales it."""

    @classmethod
    def of_deviation(cls, std: float) -> Law:
        """The law of noise on single numbers with this standard deviation; it is an error where that does not say all.

        >>> from vflpriv.laws import Laplace
        >>> Laplace.of_deviation(2.0).deviation
        2.0
        """
        if cls.sized_by is None or cls.selects:
            raise ValueError("a law of noise that one number scales")
        own: Any = cls
        try:
            unit: Law = own(**{cls.sized_by: 1.0})
        except TypeError as error:
            raise ValueError("a law of noise that its size alone describes") from error
        return unit.scaled(std / unit.deviation)

    # What a release costs

    @abstractmethod
    def strength(self, sensitivity: float) -> float:
        """The privacy loss of one release: epsilon of a pure law, mu of a Gaussian curve or of one that bounds it."""

    @abstractmethod
    def pair(self, sensitivity: float) -> Pair:
        """The dominating pair of one release in a round that the unit takes part in; its strength is finite."""

    def sampled_pair(self, sensitivity: float, rate: float, *, fixed: bool, one_sided: bool) -> tuple[Pair, str] | None:
        """The pair of a sum whose batches are secret, and what it takes for granted; None where none is known.

        `fixed`: batches of a fixed size without replacement, otherwise Poisson batches. `one_sided`: the record is
        absent in one world.
        """
        return None

    def square(self, sensitivity: float, counts: Any) -> Any:
        """The summed squares of the strengths of so many releases, mu² where the curve is Gaussian."""
        single = self.strength(sensitivity)
        # A product that is too large is infinite; a power would be an error.
        with np.errstate(over="ignore"):
            return counts * single * single

    def attains(self, count: int) -> bool:
        """Whether two real neighbours reach `square` with so many releases, or it is only a bound."""
        return True

    @property
    def joint(self) -> Law | None:
        """The law in which several such releases of one round are written as one, whose strength is its sensitivity.

        None where they cannot be joined.
        """
        return None

    @property
    def premises(self) -> tuple[str, ...]:
        """What is taken for granted where a budget counts a release with this law."""
        return ()

    @property
    def white(self) -> bool:
        """Whether it is Gaussian and independent between rounds, so that log-likelihood ratios of releases add up."""
        return self.gaussian and self.independent

    @property
    def noised(self) -> bool:
        """Whether it is random, so that the privacy loss of a bounded change is bounded."""
        return not self.exact and not self.sealed_by

    @property
    def sealed_by(self) -> str:
        """Of ciphertext: the assumption under which it tells nothing without the key."""
        return ""

    def observed_by(self, adversary: str) -> Law | None:
        """The law as adversaries of this kind observe it; None where they observe nothing."""
        return self

    # How much noise there is

    @property
    def level(self) -> float | None:
        """The number that says how large the noise is, its std or scale; None where no number scales it."""
        return None if self.sized_by is None else float(getattr(self, self.sized_by))

    def scaled(self, factor: float) -> Law:
        """The law with so many times as much noise; itself where no number scales it."""
        if self.level is None:
            return self
        own: Any = self
        law: Law = replace(own, **{str(self.sized_by): self.level * factor})
        return law

    @property
    def deviation(self) -> float:
        """The standard deviation of the noise on each entry; 0 where none is added."""
        return 0.0

    @property
    def grid(self) -> float:
        """The distance between neighbouring values of noise on a grid; 0 for a continuous law."""
        return 0.0

    # Sampling

    def on_grid(self, distance: float, entries: int) -> Law:
        """The law on a grid for values of at most so many entries, of which neighbours are at this distance or more.

        Its costs count how rounding moves them apart. Itself where values are not rounded, or by the law already.
        """
        return self

    @property
    def drawn(self) -> int:
        """How many numbers a release takes from a sampler in floating point, whose errors a budget counts; at most."""
        return 0

    def draw(self, source: Draws, count: int, *path: int) -> Tensor:
        """(R, count) draws of the sequence with this path, from which `release` makes the noised value.

        The path begins with the round where the noise of rounds depends on each other.
        """
        raise NotImplementedError(f"the law {self} has no sampler")

    def release(self, noiseless: Tensor, draws: Tensor) -> Tensor:
        """The value that leaves, from draws of its shape; by default the draws are the noise."""
        return noiseless + draws

    # Tests of what was observed

    def scores(self, noise: Floats, signal: Floats, random: np.random.Generator) -> Floats | None:
        """Independent standard normals if values with this `signal` were released by this law; None if it has no test.

        `noise` is what was released without the signal. Of a continuous law they are the quantiles of the noise; of
        others random numbers choose a place within the probability of what was drawn.
        """
        return None

    def sizes(self, values: Floats) -> Floats:
        """Of each value, its size on the scale of the noise; `lower_tail` bounds the sum of these."""
        raise NotImplementedError(f"values with the law {self} have no size")

    def lower_tail(self, totals: Floats | float, counts: Floats | float) -> Floats:
        """A bound on P[the summed sizes of so many independent noises are at most this]."""
        raise NotImplementedError(f"values with the law {self} have no size")

    def kept(self, classes: int) -> float | None:
        """Of a law of label noise, the probability that the likeliest of so many labels is the true one; else None."""
        return None

    def table(self, inputs: int) -> Floats | None:
        """P[output | input], (inputs, outputs), of a law with finitely many outputs; None of all others."""
        return None
