"""Continuous noise in floating point, on values of a grid, so that no bit of a release tells what it was made of.

Noise that is added in floating point reaches other numbers from one value than from its neighbour ("On Significance of
the Least Significant Bits for Differential Privacy", Mironov, CCS 2012). So the value is rounded to a whole number of
steps, the noise is one too, and their sum is exact: from every value every multiple of the step is reached. Only then
it is rounded to the type of the message, which is post-processing. Since round(k + z) = k + round(z) for whole k, all
of this is post-processing of the continuous noise on values of the grid, and costs what that does.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from vflpriv.common.random import announced
from vflpriv.common.steps import Standard, placed, stepped
from vflpriv.core.law import Draws, Law

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Continuous"]

_OF_NOISE = 2.0**-12
"""A step is at most this share of the noise's scale."""
_OF_DISTANCE = 2.0**-26
"""Rounding adds at most this share to the distance of two neighbours, which is less than ε is computed to."""
_MOST_STEPS = 2.0**48
"""There are at most so many steps in the noise's scale: sums of steps are then exact in double precision."""
_SPREAD = 2.0**-4
"""The width of the uniform noise beside the continuous one, in units of its scale, is at most this, at least half."""


class Continuous(Law):
    """Noise with a density, `level` times what `unit` draws.

    A subclass is a frozen dataclass with the fields `step` and `entries`. Sensitivities are those of the values before
    they are rounded to steps. Rounding moves each entry by at most half a step, and two neighbours apart by at most
    `rounding` more: step·√entries in L2, step·entries in L1. With `step = 0`, as of a recorded system whose program
    adds noise its own way, nothing is counted for rounding; what is drawn here is then rounded to the noise's own grid.
    """

    step: float
    entries: int
    standard: ClassVar[Standard]
    """The law at level 1, unless `unit` and `in_steps` say otherwise."""

    def unit(self, source: Draws, count: int, *path: int) -> tuple[Tensor, Tensor]:
        """(R, count) float64 draws of the law at level 1, and as many times 63 further random bits."""
        return self.standard.unit(source.bits(self.standard.size(count), *path), count)

    def in_steps(self, source: Draws, count: int, steps: float, width: int, *path: int) -> Tensor:
        """The draws of `unit`, rounded to steps of which the level has so many, plus a number of such a window."""
        return stepped(self.standard, source, count, steps, width, *path)

    def parts(self, *path: int) -> Sequence[tuple[tuple[int, ...], float]]:
        """The independent draws that one is a sum of, by their paths, with a factor each; none where it is its own."""
        return ()

    def on_grid(self, distance: float, entries: int) -> Law:
        largest = self._size * _OF_NOISE
        if math.isfinite(distance):
            largest = min(largest, distance * _OF_DISTANCE / self._root(entries))
        return replace(self, step=_power_below(max(largest, self._size / _MOST_STEPS)), entries=entries)  # type: ignore[type-var]

    @property
    def rounding(self) -> float:
        """By how much rounding can move two neighbours apart, in the law's norm."""
        return self.step * self._root(self.entries)

    def apart(self, sensitivity: float) -> float:
        """The distance of two neighbours on the grid; values that are equal are rounded alike."""
        return sensitivity + self.rounding if sensitivity else 0.0

    @property
    def drawn(self) -> int:
        return self.entries if self.step else 0

    def draw(self, source: Draws, count: int, *path: int) -> Tensor:
        """Draws in units of the level, each a whole number of steps up to the rounding of a double.

        A whole number that is uniform within a small part of the scale is added, which is post-processing, too. Errors
        of a few units in the last place of the continuous draw then change the probability of each number of steps
        relative to that part, and not relative to a step, however small steps are (`accountants/_sampler.py`).
        """
        steps_of_level = self._size / self._own_step
        width = int(_power_below(steps_of_level * _SPREAD))
        drawn = self.in_steps(source, count, steps_of_level, width, *path)
        return announced(drawn, source, self.name, "noise", *path, step=1 / steps_of_level, parts=self.parts(*path))

    def release(self, noiseless: Tensor, draws: Tensor) -> Tensor:
        """The noised value, of the type of the noiseless one.

        Draws of a device without float64 lie on the CPU: their steps are whole numbers there and here.
        """
        return placed(noiseless, draws, self._own_step, self._size / self._own_step)

    @property
    def _size(self) -> float:
        return float(self.level or 0.0)

    @property
    def _own_step(self) -> float:
        return self.step or _power_below(self._size * _OF_DISTANCE)

    def _root(self, entries: int) -> float:
        return float(entries ** (1 / (self.norm or 1)))


def _power_below(value: float) -> float:
    """The largest power of two that is not larger.

    >>> _power_below(0.3), _power_below(8.0)
    (0.25, 8.0)
    """
    return math.ldexp(1.0, math.frexp(value)[1] - 1)
