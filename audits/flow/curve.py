"""The trade-off of one pair of worlds where Gaussian noise and choices add up: δ at every ε, without trials.

With Gaussian noise of μ and independent choices whose likelihood ratio is e^l with probability p(l), worlds are told
apart by δ(ε) = Σ p(l) δ_μ(ε − l): given the choices, what remains is the Gaussian curve, moved by l.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from scipy.optimize import brentq
from scipy.special import log_ndtr

from vflpriv.audits.flow.tracer.events import Choice
from vflpriv.common.numerics import Floats
from vflpriv.core.budgets import epsilon_of, mu_of
from vflpriv.core.law import Pair

__all__ = ["PairCurve", "Part", "of_choices", "of_epsilon", "of_pair"]

_MOST = 20_000
"""Atoms of a product of choices beyond which it is bounded by the sum of their epsilons alone."""
_BINS = 512
_GRID = 200
_EXACT = 1e-12
"""Masses that add up to 1 as nearly as this miss nothing."""


Atoms = tuple[Floats, Floats]
"""Losses log(p/q), each once, and their masses under p; what is missing to 1 has an infinite loss."""
Part = tuple[Atoms, Atoms]
"""What one choice shows, seen from either world."""


@dataclass(frozen=True, kw_only=True, eq=False)
class PairCurve:
    """What tells two worlds apart: Gaussian noise, and the losses of everything else, seen from either world."""

    mu: float = 0.0
    directions: Part | None = None
    """Of all choices together; None where there is none."""

    @classmethod
    def of(cls, mu: float, parts: Iterable[Part]) -> PairCurve | None:
        """All parts together; None where they have too many values to be listed."""
        product: Part | None = None
        for part in parts:
            product = part if product is None else (_joined(product[0], part[0]), _joined(product[1], part[1]))
            if len(product[0][0]) > _MOST:
                return None
        return cls(mu=mu, directions=product)

    def delta(self, epsilon: float) -> float:
        """The larger δ of the two directions."""
        if self.directions is None:
            return float(_gaussian(self.mu, np.array([epsilon]))[0])
        return max(self._towards(atoms, epsilon) for atoms in self.directions)

    def _towards(self, atoms: Atoms, epsilon: float) -> float:
        losses, masses = atoms
        return float(masses @ _gaussian(self.mu, epsilon - losses)) + _missing(masses)

    def epsilon(self, delta: float) -> float:
        """The smallest ε ≥ 0 at this δ."""
        if self.directions is None:
            return epsilon_of(self.mu, delta)
        most = max(float(losses.max(initial=0.0)) for losses, _ in self.directions)
        if delta <= 0:
            return math.inf if self.mu or self._certain else most
        high = most + epsilon_of(self.mu, delta) if math.isfinite(self.mu) else math.inf
        if self.delta(high) > delta:
            return math.inf
        return 0.0 if self.delta(0.0) <= delta else float(brentq(lambda e: self.delta(e) - delta, 0.0, high))

    @property
    def _certain(self) -> bool:
        return self.directions is not None and any(_missing(masses) for _, masses in self.directions)

    def least_mu(self) -> float:
        """A μ such that no curve of a smaller one lies below: of Gaussian noise alone, its own."""
        if self.directions is None:
            return self.mu
        most = max(float(losses.max(initial=0.0)) for losses, _ in self.directions) + 6 * self.mu
        grid = np.linspace(0.0, most, _GRID)
        return max(self.mu, *(mu_of(float(e), self.delta(float(e))) for e in grid[:-1]))


def of_choices(choices: Sequence[Choice]) -> list[Part]:
    """The losses of each element of choices that differs between the worlds."""
    parts = []
    for choice in choices:
        # Their probabilities are computed in single precision, and add up to 1 no better.
        first, second = (_normalised(weights.to(torch.float64).numpy()) for weights in choice.weights)
        differs = ~np.isclose(first, second, rtol=1e-6, atol=0).all(axis=1)
        parts += [(_atoms(p, q), _atoms(q, p)) for p, q in zip(first[differs], second[differs], strict=True)]
    return parts


def of_epsilon(epsilon: float) -> Part:
    """Randomised response: no mechanism of this ε tells the worlds apart better."""
    right = 1 / (1 + math.exp(-epsilon))
    p, q = np.array([right, 1 - right]), np.array([1 - right, right])
    return _atoms(p, q), _atoms(q, p)


def of_pair(pair: Pair) -> Part:
    """A pair of distributions in bins of its loss: whoever is shown the bin alone tells the worlds apart no better."""
    low, high = pair.reach(0.0)
    edges = np.concatenate([[-math.inf], np.linspace(low, high, _BINS), [math.inf]])
    p, q = pair.masses(edges)
    return _atoms(p, q), _atoms(q, p)


def _normalised(weights: Floats) -> Floats:
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


def _atoms(p: Floats, q: Floats) -> Atoms:
    both = (p > 0) & (q > 0)
    return _merged(np.log(p[both]) - np.log(q[both]), p[both])


def _joined(first: Atoms, second: Atoms) -> Atoms:
    return _merged(np.add.outer(first[0], second[0]).ravel(), np.multiply.outer(first[1], second[1]).ravel())


def _missing(masses: Floats) -> float:
    """The mass of an infinite loss."""
    missing = 1 - math.fsum(masses)
    return missing if missing > _EXACT else 0.0


def _merged(losses: Floats, masses: Floats) -> Atoms:
    values, places = np.unique(np.round(losses, 9), return_inverse=True)
    return values, np.bincount(places, masses, len(values)).astype(np.float64)


def _gaussian(mu: float, epsilon: Floats) -> Floats:
    """δ_μ(ε) at any ε, also below 0."""
    if mu == 0:
        return np.maximum(0.0, -np.expm1(epsilon))
    first, second = log_ndtr(-epsilon / mu + mu / 2), epsilon + log_ndtr(-epsilon / mu - mu / 2)
    with np.errstate(invalid="ignore"):
        return np.asarray(np.maximum(0.0, -np.exp(first) * np.expm1(np.minimum(0.0, second - first))))
