"""Mechanisms of which everything is known: scores of both worlds, and the true epsilon at a delta."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq
from scipy.stats import norm

from vflpriv.common.numerics import Floats
from vflpriv.core.budgets import epsilon_of

__all__ = ["KNOWN", "Known", "allowed", "gaussian", "laplace", "response", "subsampled"]

Draw = Callable[[np.random.Generator, int, int], Floats]


def allowed(repetitions: int, level: float = 0.05) -> float:
    """The level plus three standard errors of the simulation: a bound exactly at its level fails once in a thousand."""
    return level + 3 * math.sqrt(level * (1 - level) / repetitions)


@dataclass(frozen=True, kw_only=True)
class Known:
    """`draw(rng, world, count)` gives scores; `mu` is given where the curve is Gaussian."""

    name: str
    draw: Draw
    epsilon: float
    delta: float
    mu: float | None = None
    ratios: bool = False

    def worlds(self, rng: np.random.Generator, count: int) -> tuple[Floats, Floats]:
        return self.draw(rng, 0, count), self.draw(rng, 1, count)


def gaussian(mu: float, delta: float = 1e-5, *, ratios: bool = False) -> Known:
    """N(±mu/2, 1), as they are or as log-likelihood ratios."""

    def draw(rng: np.random.Generator, world: int, count: int) -> Floats:
        scores = rng.normal(mu / 2 - world * mu, 1, count)
        return mu * scores if ratios else scores

    name = f"gaussian mu={mu} delta={delta} ratios={ratios}"
    return Known(name=name, draw=draw, epsilon=epsilon_of(mu, delta), delta=delta, mu=mu, ratios=ratios)


def laplace(epsilon: float, *, ratios: bool = False) -> Known:
    """Sensitivity 1, scale 1 / epsilon: every score beyond the two centres meets e^eps with equality."""

    def draw(rng: np.random.Generator, world: int, count: int) -> Floats:
        scores = rng.laplace(0.5 - world, 1 / epsilon, count)
        return epsilon * (np.abs(scores + 0.5) - np.abs(scores - 0.5)) if ratios else scores

    return Known(name=f"laplace {epsilon} ratios={ratios}", draw=draw, epsilon=epsilon, delta=0.0, ratios=ratios)


def response(epsilon: float, delta: float = 0.0) -> Known:
    """Randomised response that tells the truth outright with probability delta, and says so: all bounds are met."""

    def draw(rng: np.random.Generator, world: int, count: int) -> Floats:
        told, truth = rng.random(count) < delta, 1.0 - 2 * world
        lies = rng.random(count) > 1 / (1 + math.exp(-epsilon))
        return np.where(told, 10 * truth, np.where(lies, -truth, truth) * max(epsilon, 0.1))

    return Known(name=f"response {epsilon} delta={delta}", draw=draw, epsilon=epsilon, delta=delta, ratios=True)


def subsampled(rate: float, shift: float, delta: float = 1e-3) -> Known:
    """N(shift, 1) with probability `rate`, else N(0, 1), against N(0, 1): the subsampled Gaussian mechanism."""
    grid = np.linspace(-12, shift + 12, 200001)
    without = norm.pdf(grid)
    within = (1 - rate) * without + rate * norm.pdf(grid - shift)

    def over(epsilon: float) -> float:
        excess = [np.maximum(a - math.exp(epsilon) * b, 0) for a, b in ((within, without), (without, within))]
        return max(float(np.trapezoid(e, grid)) for e in excess) - delta

    def draw(rng: np.random.Generator, world: int, count: int) -> Floats:
        return rng.normal(0, 1, count) + (shift * (rng.random(count) < rate) if world == 0 else 0.0)

    name = f"subsampled rate={rate} shift={shift}"
    return Known(name=name, draw=draw, epsilon=float(brentq(over, 0, 30)), delta=delta)


KNOWN = (
    gaussian(0.0),
    gaussian(1.0),
    gaussian(3.0, ratios=True),
    gaussian(1.0, 0.1, ratios=True),
    laplace(2.0),
    laplace(1.0, ratios=True),
    response(0.0),
    response(1.0),
    response(3.0),
    response(1.0, delta=0.02),
    subsampled(0.2, 2.0),
)
