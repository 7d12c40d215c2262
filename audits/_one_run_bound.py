"""One run: bounds from m canaries, each in or out by a fair coin of its own, in a single training.

They hold if the coins are independent and fair, each privacy unit holds at most one canary, and which canaries are
guessed about, and how, is decided without their coins: from what the view shows and from canaries set aside.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq
from scipy.special import bdtr, bdtrc, expit

from vflpriv.audits._bounds import Floats, check_alpha, check_delta

__all__ = ["Guesses", "epsilon_one_run", "p_value_one_run"]

_LARGEST = 100.0


@dataclass(frozen=True, kw_only=True)
class Guesses:
    """Of m `canaries`, guesses `made` and `right`. The number made was fixed before any coin was seen."""

    canaries: int
    made: int
    right: int

    def __post_init__(self) -> None:
        if not 0 <= self.right <= self.made <= self.canaries or self.canaries < 1:
            raise ValueError(
                f"Expected 0 <= right={self.right} <= made={self.made} <= canaries={self.canaries} and a canary."
            )


def p_value_one_run(guesses: Guesses, epsilon: float, delta: float) -> float:
    """The p-value of "(epsilon, delta)-DP" (Steinke, Nasr, Jagielski 2023, Theorem 5.2): with q = e^eps / (1 + e^eps),
    P[Bin(r, q) >= v] + 2 m delta max over 1 <= i <= v of P[v - i <= Bin(r, q) < v] / i. The slack counts all m
    canaries, not the r that were guessed about: delta may fail for any of them.

    >>> round(p_value_one_run(Guesses(canaries=100, made=100, right=75), math.log(3), 0.0), 5)
    0.55347
    """
    check_delta(delta)
    m, r, v = guesses.canaries, guesses.made, guesses.right
    if v == 0:
        return 1.0
    q = float(expit(epsilon))
    below, tail = float(bdtr(v - 1, r, q)), float(bdtrc(v - 1, r, q))
    if delta == 0:
        return tail
    # P[v - i <= Bin < v] = P[Bin < v] - P[Bin < v - i].
    fewer = _below(v, r, q)
    worst = float(np.max((below - fewer) / np.arange(1, v + 1)))
    return min(1.0, tail + 2 * m * delta * worst)


def epsilon_one_run(guesses: Guesses, delta: float, confidence: float) -> float:
    """The largest epsilon whose p-value is below alpha = 1 - confidence; 0 if there is none.

    >>> round(epsilon_one_run(Guesses(canaries=1000, made=100, right=75), 1e-4, 0.95), 5)
    0.67298
    """
    alpha = 1 - confidence
    check_alpha(alpha)

    def above(epsilon: float) -> float:
        return p_value_one_run(guesses, epsilon, delta) - alpha

    if above(0.0) >= 0:
        return 0.0
    return float(brentq(above, 0.0, _LARGEST, xtol=1e-10))


def _below(v: int, r: int, q: float) -> Floats:
    """P[Bin(r, q) < v - i] for i = 1 ... v. Far below the mean it is 0 to double precision, and so is the maximum."""
    fewer = np.zeros(v)
    reach = min(v - 1, math.ceil(40 * math.sqrt(r * q * (1 - q)) + 800))
    if reach:
        fewer[:reach] = bdtr(np.arange(v - 2, v - 2 - reach, -1), r, q)
    return fewer
