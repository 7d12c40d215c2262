"""Standard laws of single draws: their quantiles, by which a function of draws is recognised, and what they cost.

The law that a release has with draws of a family as its noise is one of `vflpriv.laws`; a family without one hides
nothing that could be accounted for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from vflpriv.core.law import Law
from vflpriv.laws import Gaussian, Laplace
from vflpriv.laws.laplace import standard_laplace

__all__ = [
    "DISCRETE",
    "EXPONENTIAL",
    "FAMILIES",
    "GEOMETRIC",
    "GUMBEL",
    "LAPLACE",
    "NORMAL",
    "STEPS",
    "UNIFORM",
    "Family",
]


@dataclass(frozen=True)
class Family:
    """The law of one standard draw."""

    name: str
    quantile: Callable[[Tensor], Tensor]
    law: Callable[[float], Law] | None = None
    """The law of this draw times a factor, as noise on a value."""
    cdf: Callable[[Tensor], Tensor] | None = None


def _laplace_cdf(x: Tensor) -> Tensor:
    return torch.where(x < 0, 0.5 * x.clamp(max=0).exp(), 1 - 0.5 * (-x.clamp(min=0)).exp())


UNIFORM = Family("uniform", lambda u: u, None, lambda x: x.clamp(0, 1))
NORMAL = Family("normal", torch.special.ndtri, Gaussian, torch.special.ndtr)
LAPLACE = Family("laplace", standard_laplace, Laplace, _laplace_cdf)
EXPONENTIAL = Family("exponential", lambda u: -torch.log1p(-u), None, lambda x: -torch.expm1(-x.clamp(min=0)))
GUMBEL = Family("gumbel", lambda u: -torch.log(-torch.log(u)), None, lambda x: torch.exp(-torch.exp(-x)))
DISCRETE = Family("discrete", lambda u: u)
"""Coins and other draws with few values."""
STEPS = Family("whole steps", lambda u: u)
"""Noise on a grid, of a law of its own."""
GEOMETRIC = Family("geometric", lambda u: u)
"""Whole numbers from 0 on, each less likely than the one before by a factor that is kept with the draws."""

FAMILIES = (UNIFORM, NORMAL, LAPLACE, EXPONENTIAL, GUMBEL, DISCRETE, STEPS, GEOMETRIC)
"""In the order of the numbers by which draws know them."""
