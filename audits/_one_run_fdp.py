"""One run, for a whole trade-off curve: which mu-GDP the guesses of a single training refute.

The conditions of `_one_run_bound` apply. Epsilon by way of mu needs a Gaussian curve (`_gdp.epsilon_from_mu`).
"""

from __future__ import annotations

import math
from statistics import NormalDist

from vflpriv.audits._bounds import check_alpha
from vflpriv.audits._one_run_bound import Guesses

__all__ = ["mu_one_run", "p_value_one_run_gdp", "refutes_gdp"]

_quantile = NormalDist().inv_cdf
_ROOT = math.sqrt(2)


def refutes_gdp(guesses: Guesses, mu: float, level: float) -> bool:
    """Whether the guesses refute mu-GDP at this level (Mahloujifar, Melis, Chaudhuri 2025, two choices a canary).

    With c right of c' guesses about m canaries: r_c = level c / m, h_c = level (c' - c) / m, and for i = c-1 ... 0
    h_i = max(h_{i+1}, f(r_{i+1})), r_i = r_{i+1} + i / (c' - i) (h_i - h_{i+1}), where f(x) = Phi(Phi^-1(x) - mu);
    refuted if r_0 + h_0 > c' / m. Both sums only grow, and once h stands still nothing moves any more: the recursion is
    left as soon as either decides, after hundreds of steps where it has a hundred thousand.
    """
    c, made, m = guesses.right, guesses.made, guesses.canaries
    r, h, limit = level * c / m, level * (made - c) / m, made / m
    for i in range(c - 1, -1, -1):
        if r >= 1:
            return True
        further = 0.5 * math.erfc((mu - _quantile(r)) / _ROOT)
        if further <= h:
            break
        r, h = r + i / (made - i) * (further - h), further
        if r + h > limit:
            return True
    return r + h > limit


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
    """The p-value of "mu-GDP": the smallest level at which it is refuted, to six digits, from above."""
    if guesses.right == 0 or not refutes_gdp(guesses, mu, 1 - 1e-9):
        return 1.0
    low, high = -300.0, 0.0  # of the level's logarithm
    while high - low > 1e-6:
        middle = (low + high) / 2
        low, high = (low, middle) if refutes_gdp(guesses, mu, math.exp(middle)) else (middle, high)
    return math.exp(high)
