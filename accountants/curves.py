"""Curves of an exposure: delta by epsilon, the trade-off function, epsilon by rounds, and each record's epsilon."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from vflpriv.common.numerics import Floats
from vflpriv.core.budgets import Accountant, curve, epsilon_of
from vflpriv.core.ledger import Exposure, Ledger, Reading
from vflpriv.core.units import Unit
from vflpriv.core.views import Adversary

__all__ = ["ALPHAS", "DELTAS", "PrivacyCurve", "RoundCurve", "over_rounds", "privacy_curve", "record_epsilons"]


DELTAS: Floats = np.concatenate([np.geomspace(1e-12, 1e-2, 11), np.geomspace(0.013, 0.95, 20)])
"""Deltas at which a curve is computed: sparse where delta is small, dense where it shapes the trade-off function."""

ALPHAS: Floats = np.concatenate([[0.0], ndtr(np.linspace(-4.5, 4.5, 181)), [1.0]])
"""False-positive rates, dense at both ends."""


@dataclass(frozen=True, eq=False, kw_only=True)
class PrivacyCurve:
    """delta(epsilon) and f(alpha) of one exposure.

    The truth at `deltas[i]` lies between `epsilon_lower[i]` and `epsilon_upper[i]`. No test with a false-positive rate
    of `alphas[j]` has a false-negative rate below `betas[j]`; with `exact`, the best test attains it.
    """

    deltas: Floats
    epsilon_lower: Floats
    epsilon_upper: Floats
    alphas: Floats
    betas: Floats
    exact: bool


@dataclass(frozen=True, eq=False, kw_only=True)
class RoundCurve:
    """Epsilon at `delta` of a run that stops after `rounds[i]` rounds."""

    delta: float
    rounds: NDArray[np.int64]
    epsilon_lower: Floats
    epsilon_upper: Floats


def privacy_curve(
    accountant: Accountant, exposure: Exposure, *, deltas: Floats = DELTAS, alphas: Floats = ALPHAS
) -> PrivacyCurve:
    """Both curves from the accountant's budgets at each delta; the closed form where the curve is Gaussian."""
    budgets = [accountant.budget(exposure, float(d)) for d in deltas]
    upper = np.array([b.upper for b in budgets])
    mu = budgets[0].mu
    return PrivacyCurve(
        deltas=deltas,
        epsilon_lower=np.array([b.lower for b in budgets]),
        epsilon_upper=upper,
        alphas=alphas,
        betas=_lines(upper, deltas, alphas) if mu is None else curve(mu, alphas),
        exact=mu is not None,
    )


def _lines(epsilons: Floats, deltas: Floats, alphas: Floats) -> Floats:
    """f(alpha) >= max over (eps, delta) of 1 - delta - e^eps alpha and e^-eps (1 - delta - alpha) (Wasserman, Zhou)."""
    finite = np.isfinite(epsilons)
    # e^700 is about the largest float; a line with a steeper slope adds nothing.
    steep = np.exp(np.minimum(epsilons[finite], 700.0))[:, None]
    room = 1 - deltas[finite][:, None]
    lines = np.maximum(room - steep * alphas, (room - alphas) / steep)
    return np.asarray(lines.max(axis=0, initial=0.0))


def over_rounds(
    accountant: Accountant,
    ledger: Ledger,
    adversary: Adversary,
    unit: Unit,
    delta: float,
    *,
    reading: Reading = Reading.RIGOROUS,
    points: int = 24,
) -> RoundCurve:
    """Epsilon of the same run if it stopped after fewer rounds."""
    total = ledger.schedule.rounds
    rounds = np.unique(np.linspace(1, total, min(points, total)).round().astype(np.int64))
    exposures = [ledger.until(int(t)).exposure(adversary, unit, reading=reading) for t in rounds]
    budgets = [accountant.budget(exposure, delta) for exposure in exposures]
    return RoundCurve(
        delta=delta,
        rounds=rounds,
        epsilon_lower=np.array([b.lower for b in budgets]),
        epsilon_upper=np.array([b.upper for b in budgets]),
    )


def record_epsilons(exposure: Exposure, delta: float) -> Floats | None:
    """Each record's exact epsilon, if batches are known and all noise is Gaussian; else None."""
    if exposure.squares is None or not exposure.gaussian:
        return None
    squares, square_of = np.unique(exposure.squares, return_inverse=True)
    return np.array([epsilon_of(math.sqrt(s), delta) for s in squares])[square_of]
