"""What one pair of worlds costs at a δ: no less than what is sent as it is shows, no more than all it is made of."""

from __future__ import annotations

import math
from dataclasses import dataclass

from vflpriv.audits.flow.curve import PairCurve, Part, of_choices, of_epsilon, of_pair
from vflpriv.audits.flow.loss import Loss
from vflpriv.audits.flow.observation import Observation
from vflpriv.core.budgets import mu_of_pure

__all__ = ["SAME", "Figures", "figures_of"]

SAME = 1e-6
"""Figures that agree so closely, relative to their size, are the same."""


@dataclass(frozen=True, kw_only=True)
class Figures:
    """The μ or ε of a pair: it is at least and at most so much."""

    least: float
    most: float
    mu: float | None
    """The exact μ, where noise is Gaussian and there is nothing else."""
    epsilon: float
    """At the δ, the least."""

    @property
    def exact(self) -> bool:
        return self.most <= self.least * (1 + SAME)


def figures_of(observation: Observation, delta: float, *, by_mu: bool = False) -> Figures:
    """The figures of what is sent as it is, and of all that messages are made of.

    A view that is sent something made of another party's noised messages is sent no more than those: they count in the
    upper figure alone, and never accuse.
    """
    shown, loss = observation.shown, observation.loss
    sent = of_choices([choice for choice in observation.choices if choice.exact])
    least = _curve(shown, [*sent, *(of_pair(pair) for _, pair in shown.pure)]) or PairCurve()
    pure = bool(loss.pure or observation.choices)
    epsilon = least.epsilon(delta)
    if delta == 0 and least.mu == 0:
        # Bins of a loss do not reach its ends.
        epsilon = (PairCurve.of(0.0, sent) or PairCurve()).epsilon(0.0) + math.fsum(e for e, _ in shown.pure)
    exact_mu = None if pure else least.mu
    if by_mu:
        at_most = math.hypot(loss.mu, mu_of_pure(loss.epsilon)) if pure else loss.mu
        return Figures(least=least.least_mu(), most=at_most, mu=exact_mu, epsilon=epsilon)
    most = _curve(loss, [*of_choices(observation.choices), *(of_epsilon(e) for e, _ in loss.pure)])
    added = loss.epsilon + PairCurve(mu=loss.mu).epsilon(delta)
    at_most = added if most is None else min(added, most.epsilon(delta))
    return Figures(least=epsilon, most=at_most, mu=exact_mu, epsilon=epsilon)


def _curve(loss: Loss, parts: list[Part]) -> PairCurve | None:
    """What the loss and its choices add up to; None where some of it has no noise of a known law."""
    return None if math.isinf(loss.mu) else PairCurve.of(loss.mu, parts)
