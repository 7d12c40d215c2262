"""Bounds on epsilon and mu, and p-values of claims, from one training with many canaries.

Each of m canaries is in or out by a fair coin of its own; the adversary guesses some of the coins. The bounds hold if
the coins are independent and fair, each privacy unit holds at most one canary, and for which canaries a guess is made,
and which one, is decided without their coins: from what the view shows and from canaries set aside.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from scipy.optimize import brentq
from scipy.special import bdtr, bdtrc, expit

from vflpriv.audits.statistics.bounds import check_alpha, check_delta
from vflpriv.common.numerics import Floats

__all__ = ["Guesses", "epsilon_one_run", "mu_one_run", "p_value_one_run", "p_value_one_run_gdp", "refutes_gdp"]

_LARGEST = 100.0
"""An epsilon beyond what any number of guesses can show."""
_quantile = NormalDist().inv_cdf
_ROOT = math.sqrt(2)


@dataclass(frozen=True, kw_only=True)
class Guesses:
    """Guesses `made` about m `canaries`, and how many were `right`; the number was fixed before a coin was seen."""

    canaries: int
    made: int
    right: int

    def __post_init__(self) -> None:
        if not 0 <= self.right <= self.made <= self.canaries or self.canaries < 1:
            raise ValueError(
                f"Expected 0 <= right={self.right} <= made={self.made} <= canaries={self.canaries} and a canary."
            )


def p_value_one_run(guesses: Guesses, epsilon: float, delta: float) -> float:
    """The p-value of "the mechanism is (epsilon, delta)-DP" (Steinke, Nasr, Jagielski 2023, Theorem 5.2).

    With q = e^eps / (1 + e^eps), v right of r guesses and m canaries, it is P[Bin(r, q) >= v] + 2 m delta times the
    maximum over 1 <= i <= v of P[v - i <= Bin(r, q) < v] / i. The second term counts all m canaries, not the r with a
    guess: delta may fail for any of them.

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
    reach = min(v - 1, 20 * math.isqrt(r) + 800)
    if reach:
        fewer[:reach] = bdtr(np.arange(v - 2, v - 2 - reach, -1), r, q)
    return fewer


def refutes_gdp(guesses: Guesses, mu: float, level: float) -> bool:
    """Whether the guesses refute mu-GDP at this level (Mahloujifar, Melis, Chaudhuri 2025, two choices per canary).

    With c right of c' guesses about m canaries: r_c = level c / m, h_c = level (c' - c) / m, and for i = c-1 ... 0
    h_i = max(h_{i+1}, f(r_{i+1})), r_i = r_{i+1} + i / (c' - i) (h_i - h_{i+1}), where f(x) = Phi(Phi^-1(x) - mu);
    refuted if r_0 + h_0 > c' / m. Both sums only grow, and once h stays the same nothing changes any more: the
    recursion ends as soon as either decides, often after hundreds of steps instead of a hundred thousand.
    """
    c, made, m = guesses.right, guesses.made, guesses.canaries
    r, h, limit = level * c / m, level * (made - c) / m, made / m
    for i in range(c - 1, -1, -1):
        curve = 0.5 * math.erfc((mu - _quantile(r)) / _ROOT)
        if curve <= h:
            break
        r, h = r + i / (made - i) * (curve - h), curve
        if r + h > limit:
            return True
    return False


def mu_one_run(guesses: Guesses, confidence: float) -> float:
    """The largest mu that the guesses refute at 1 - confidence, to six digits, from below; 0 if there is none."""
    level = 1 - confidence
    check_alpha(level)
    if guesses.right == 0 or not refutes_gdp(guesses, 0.0, level):
        return 0.0
    low, high = 0.0, 1.0
    while refutes_gdp(guesses, high, level):
        low, high = high, 2 * high
    while high - low > 1e-6 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if refutes_gdp(guesses, middle, level) else (low, middle)
    return low


def p_value_one_run_gdp(guesses: Guesses, mu: float) -> float:
    """The p-value of "the mechanism is mu-GDP": the smallest level that refutes it, to six digits, from above."""
    if guesses.right == 0 or not refutes_gdp(guesses, mu, 1 - 1e-9):
        return 1.0
    low, high = -300.0, 0.0  # logarithms of levels
    while high - low > 1e-6:
        middle = (low + high) / 2
        low, high = (low, middle) if refutes_gdp(guesses, mu, math.exp(middle)) else (middle, high)
    return math.exp(high)
