"""Bounds from draws of the privacy loss, where the distance between the worlds follows what was sent.

Along one transcript the loss L of a pair of worlds is known exactly: each release adds the log-likelihood ratio of its
noise under either world, given everything before it. At every ε the worlds are told apart by δ(ε) = E[(1 - e^(ε - L))₊]
over transcripts of the first world, the mean of a variable between 0 and 1. So independent trainings bound it, by the
same bets as any other such mean, and nothing is assumed of how L is distributed.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from vflpriv.audits.statistics.bounds import check_alpha
from vflpriv.audits.statistics.means import FINE, p_value_mean
from vflpriv.common.numerics import Floats
from vflpriv.core.budgets import delta_of

__all__ = ["epsilon_of_losses", "missed", "mu_of_losses", "p_value_losses", "p_value_reached"]

_HALVINGS = 40
_MOST_MU = 16.0


def _told_apart(losses: Floats, epsilon: float) -> list[float]:
    """Of each draw, what it adds to δ at this ε."""
    values: list[float] = np.maximum(0.0, -np.expm1(np.minimum(0.0, epsilon - losses))).tolist()
    return values


def p_value_losses(losses: Floats, epsilon: float, delta: float) -> float:
    """The p-value of "the pair of worlds is (ε, δ)-indistinguishable", from draws of its loss in the first world.

    >>> p_value_losses(np.full(50, 3.0), 3.0, 1e-3), p_value_losses(np.full(50, 3.0), 1.0, 1e-3) < 1e-9
    (1.0, True)
    """
    return p_value_mean(_told_apart(losses, epsilon), delta, FINE)


def p_value_reached(mu: float, count: int, epsilon: float, delta: float) -> float:
    """The p-value of "the pair is (ε, δ)-indistinguishable", where each of so many transcripts had at least this μ.

    Of all transcripts of the first world a share η has less, and the worlds are told apart by δ_μ(ε) - η at least
    (docs/what-a-trace-proves.md, Lemma 4b). If that is no more than δ, then η ≥ δ_μ(ε) - δ, and none of so many
    transcripts was among that share.

    >>> round(p_value_reached(20.0, 30, 1.0, 1e-5), 9), p_value_reached(0.1, 30, 1.0, 1e-5)
    (0.0, 1.0)
    """
    probability: float = (1 - max(0.0, delta_of(mu, epsilon) - delta)) ** count
    return probability


def missed(count: int, confidence: float) -> float:
    """The largest share of which none of so many draws need be, at this confidence."""
    share: float = 1 - (1 - confidence) ** (1 / count)
    return share


def epsilon_of_losses(losses: Floats, delta: float, confidence: float) -> float:
    """The largest ε that is refuted at this δ: a lower bound on the pair's ε."""
    return _largest(float(losses.max(initial=0.0)), 1 - confidence, lambda e: p_value_losses(losses, e, delta))


def mu_of_losses(losses: Floats, confidence: float) -> float:
    """The largest μ whose trade-off curve is refuted at ε = 0, where hundreds of draws show most of it."""
    return _largest(_MOST_MU, 1 - confidence, lambda mu: p_value_losses(losses, 0.0, delta_of(mu, 0.0)))


def _largest(high: float, alpha: float, p_value: Callable[[float], float]) -> float:
    """The largest figure that is refuted at this level, where larger ones have larger p-values; 0 if none is."""
    check_alpha(alpha)
    low = 0.0
    for _ in range(_HALVINGS if high > 0 else 0):
        middle = (low + high) / 2
        low, high = (middle, high) if p_value(middle) <= alpha else (low, middle)
    return low
