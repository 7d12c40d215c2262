"""A pilot: a few trials that are looked at, and then set aside, to decide which of the others to guess about."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr

from vflpriv.audits.statistics.bounds import Floats

__all__ = ["Pilot", "pilot_size"]

_SHARES = np.geomspace(0.002, 0.98, 24)


def pilot_size(trials: int) -> int:
    """How many trials of each world are worth looking at: a twentieth and a few, at most 500."""
    return min(trials // 20 + 25, trials // 4, 500)


@dataclass(frozen=True)
class Pilot:
    """Two normal curves of the same width: `centre` between their means, which are `gap` widths apart.

    The evidence of a score is its log-odds under them; a score that is a log-likelihood ratio is its own evidence.
    """

    centre: float
    slope: float
    gap: float

    @classmethod
    def of(cls, inside: Floats, outside: Floats) -> Pilot:
        """Fit the curves to labelled scores."""
        high, low = float(inside.mean()), float(outside.mean())
        width = float(np.sqrt((inside.var() + outside.var()) / 2)) or 1.0
        return cls(centre=(high + low) / 2, slope=(high - low) / width**2, gap=(high - low) / width)

    @classmethod
    def of_ratios(cls) -> Pilot:
        """For scores that are log-likelihood ratios: nothing has to be looked at."""
        return cls(centre=0.0, slope=1.0, gap=0.0)

    def evidence(self, scores: Floats) -> Floats:
        """Log-odds of world 0 for each score."""
        return np.asarray((scores - self.centre) * self.slope, dtype=np.float64)

    def guesses(self, count: int, bound: Callable[[int, int], float]) -> int:
        """How many of `count` trials to guess about, the surest first, so that the expected outcome bounds most.

        `bound(made, right)` is the lower bound that so many guesses with so many right would give.
        """
        gap, reach = abs(self.gap), np.linspace(0, abs(self.gap) / 2 + 6, 2000)
        sure = ndtr(gap / 2 - reach)
        share = sure + ndtr(-gap / 2 - reach)
        made = np.unique(np.maximum(1, np.rint(_SHARES * count))).astype(int)
        accuracy = np.interp(made / count, share[::-1], (sure / share)[::-1])
        found = [bound(int(r), round(float(a * r))) for r, a in zip(made, accuracy, strict=True)]
        return int(made[int(np.argmax(found))]) if max(found) > 0 else max(1, count // 10)
