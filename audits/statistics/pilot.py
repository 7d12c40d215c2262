"""A pilot study: a few labelled trials, not counted later, that decide for which other trials to make a guess."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr

from vflpriv.common.numerics import Floats

__all__ = ["Pilot", "pilot_size"]

_SHARES = np.geomspace(0.002, 0.98, 24)
"""Shares of the trials that are considered as numbers of guesses."""


def pilot_size(trials: int) -> int:
    """How many trials of each world to use for the pilot: a twentieth plus 25, at most a quarter and at most 500."""
    return min(trials // 20 + 25, trials // 4, 500)


@dataclass(frozen=True)
class Pilot:
    """Two normal densities of the same width: `centre` between their means, which are `gap` widths apart.

    The evidence of a score is its log-odds under the two; a score that is a log-likelihood ratio is its own evidence.
    """

    centre: float
    slope: float
    gap: float

    @classmethod
    def of(cls, inside: Floats, outside: Floats) -> Pilot:
        """Fit the densities to labelled scores."""
        high, low = float(inside.mean()), float(outside.mean())
        width = float(np.sqrt((inside.var() + outside.var()) / 2)) or 1.0
        return cls(centre=(high + low) / 2, slope=(high - low) / width**2, gap=(high - low) / width)

    @classmethod
    def of_ratios(cls) -> Pilot:
        """For scores that are log-likelihood ratios: nothing has to be fitted."""
        return cls(centre=0.0, slope=1.0, gap=0.0)

    def evidence(self, scores: Floats) -> Floats:
        """Log-odds of world 0 for each score."""
        return np.asarray((scores - self.centre) * self.slope, dtype=np.float64)

    def guesses(self, count: int, bound: Callable[[int, int], float]) -> int:
        """For how many of `count` trials to make a guess, those with the strongest evidence first.

        The number is the one with the largest expected bound; `bound(made, right)` is the lower bound from `made`
        guesses of which `right` are right.
        """
        gap, reach = abs(self.gap), np.linspace(0, abs(self.gap) / 2 + 6, 2000)
        right = ndtr(gap / 2 - reach)
        share = right + ndtr(-gap / 2 - reach)
        made = np.unique(np.maximum(1, np.rint(_SHARES * count))).astype(int)
        accuracy = np.interp(made / count, share[::-1], (right / share)[::-1])
        bounds = [bound(int(r), round(float(a * r))) for r, a in zip(made, accuracy, strict=True)]
        return int(made[int(np.argmax(bounds))]) if max(bounds) > 0 else max(1, count // 10)
