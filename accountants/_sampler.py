"""What a sampler in floating point adds to a budget: its draws stand for those of the law, and are not quite them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from typing import Any

from vflpriv.core.budgets import Budget
from vflpriv.core.ledger import Exposure

__all__ = ["SamplerError", "delta_of_law", "sampled_budget", "sampled_upper", "sampler_error"]

_LOSS = 2.0**-37
_TAIL = 2.0**-82
_UNLIKELY = 750.0

SamplerError = tuple[float, float]
"""What is added to ε, and what is taken off δ, so that a budget of the law is one of its sampler."""


def sampler_error(exposure: Exposure) -> SamplerError:
    """What the sampler of continuous noise (`vflpriv.laws.continuous`) costs over all numbers of an exposure.

    Let P be the law of one number of steps, and P̃ that of the sampler: Box-Muller from uniforms of 126 bits for the
    length and 63 for the angle, or the logarithm of one, in double precision, rounded to steps, plus a whole number
    that is uniform over a window of 2⁻⁵ to 2⁻⁴ of the scale. That number is exact, so that either law gives n the mass
    of a window around n. Logarithm, root, sine or cosine and their product err by at most 6.2 units in the last place
    of the length r together, 2⁻⁴⁹·⁴ r (by four on the CPU, where `vflpriv.laws.continuous` has its own), the rounded
    uniforms by 2⁻⁵²/r. A draw then falls on the wrong side of an end b of the window with a probability of at most
    2 (2⁻⁴⁹·⁴ (|b| + 0.8) + 2⁻⁵² min(1/|b|, 15)) φ(b): r ≤ |z| + |z'| for the twin z' of the draw z, which is
    independent of it and 0.8 long on average; 1/r is at most 15 on average near b = 0, lengths below 2⁻²⁵ left out,
    which have probability 2⁻⁵¹. Of the mass of the window, at least 2⁻⁵ φ(b) / 1.5, both
    ends are less than ρ = 2⁻³⁷ for |b| ≤ 13. (The logarithm of Laplace noise errs by less.) So |log P̃/P| ≤ ρ as far as
    the sampler reaches, which is 13.2 standard deviations or 87 scales; it misses what lies beyond.

    N such numbers, each given those before, have log P̃/P ≤ η = ρ √(2 N log 1/β) + N ρ² but for a probability β: the
    mean of each is at most ρ², and the sum keeps to Azuma's bound. The same holds of log Q/Q̃ in the other world. With
    P(S) ≤ e^ε Q(S) + δ that is P̃(S) ≤ e^{ε + 2η} Q̃(S) + e^η δ + β (1 + e^{ε + η}) + t: t = N 2⁻⁸³ bounds that a draw
    lies beyond 10.5 standard deviations, or 58 scales; nearer ones lie within reach of the other world's value if one
    release moves no number by more than 2.7 (or 29). β = e⁻⁷⁵⁰ is nothing up to ε = 700. All of it is
    ε + 2η at δ e^{-η} - t; here t is twice as much, for β and what η takes off δ beside e^{-η} · t.
    """
    drawn = sum(event.count * event.noise.drawn for event in exposure.events)
    return 2 * _LOSS * (math.sqrt(2 * drawn * _UNLIKELY) + drawn * _LOSS), drawn * _TAIL


def delta_of_law(delta: float, error: SamplerError) -> float:
    """The δ at which the budget of the law is asked for; a pure one stays one, and its sampler is taken to be exact."""
    added, missed = error
    return max(delta * math.exp(-added / 2) - missed, 0.0) if delta else 0.0


def sampled_budget(budget: Callable[[Any, Exposure, float], Budget]) -> Callable[[Any, Exposure, float], Budget]:
    """The method `budget` of an accountant of laws, as one of what samplers draw from them."""

    @wraps(budget)
    def counted(self: Any, exposure: Exposure, delta: float) -> Budget:
        error = sampler_error(exposure)
        if not any(error):
            return budget(self, exposure, delta)
        of_law = budget(self, exposure, delta_of_law(delta, error))
        return replace(of_law, delta=delta, upper=of_law.upper + error[0])

    return counted


def sampled_upper(upper: Callable[[Any, Exposure, float], float]) -> Callable[[Any, Exposure, float], float]:
    """The method `upper` of an accountant of laws, as one of what samplers draw from them."""

    @wraps(upper)
    def counted(self: Any, exposure: Exposure, delta: float) -> float:
        error = sampler_error(exposure)
        return (
            upper(self, exposure, delta_of_law(delta, error)) + error[0] if any(error) else upper(self, exposure, delta)
        )

    return counted
