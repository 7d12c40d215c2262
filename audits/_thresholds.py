"""Tests whose threshold lies far out, where a mechanism that hides its batches gives most away."""

from __future__ import annotations

import math

import numpy as np
from scipy.special import logsumexp

from vflpriv.audits._bounds import Errors, Floats
from vflpriv.audits._gdp import mu_rectangle
from vflpriv.seeds import host_generator

__all__ = ["p_value_rectangle", "secret_threshold"]

_SIMULATED = 40_000
_CANDIDATES = 200


def secret_threshold(*, ratio: float, rate: float, rounds: int, trials: int, confidence: float, seed: int) -> float:
    """The threshold that a simulation of the declared mechanism recommends, before any trial.

    The record is in each of `rounds` rounds with probability `rate`; there it adds ±1/2 times `ratio` standard
    deviations of the noise. Of the thresholds tried, the one with the largest bound on mu to be expected.
    """
    generator = host_generator(seed, "search", 1)
    scores = []
    for sign in (1.0, -1.0):
        total = np.zeros(_SIMULATED)
        for _ in range(rounds):
            coin = generator.random(_SIMULATED) < rate
            x = generator.standard_normal(_SIMULATED) + coin * sign * ratio / 2
            total += _log(x, ratio / 2, rate) - _log(x, -ratio / 2, rate)
        scores.append(np.sort(total))
    inside, outside = scores
    found = np.quantile(np.concatenate(scores), np.linspace(0.02, 1, _CANDIDATES, endpoint=False))
    fnr = np.searchsorted(inside, found, side="right") / _SIMULATED
    fpr = 1 - np.searchsorted(outside, found, side="right") / _SIMULATED
    bounds = [
        mu_rectangle(
            Errors(
                false_positives=math.ceil(a * trials),
                negatives=trials,
                false_negatives=math.ceil(b * trials),
                positives=trials,
            ),
            confidence,
        ).mu
        for a, b in zip(fpr, fnr, strict=True)
    ]
    return float(found[int(np.argmax(np.asarray(bounds, dtype=np.float64)))])


def _log(x: Floats, mean: float, rate: float) -> Floats:
    parts = np.stack((math.log(rate) - (x - mean) ** 2 / 2, math.log1p(-rate) - x**2 / 2))
    return np.asarray(logsumexp(parts, axis=0), dtype=np.float64)


def p_value_rectangle(errors: Errors, mu: float) -> float:
    """The p-value of "mu-GDP" from two separate error rates: the smallest alpha at which `mu_rectangle` exceeds mu."""

    def exceeds(log_alpha: float) -> bool:
        return (mu_rectangle(errors, -math.expm1(log_alpha)).mu or 0.0) > mu

    low, high = math.log(1e-15), math.log(0.999)
    if not exceeds(high):
        return 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if exceeds(middle) else (middle, high)
    return math.exp(high)
