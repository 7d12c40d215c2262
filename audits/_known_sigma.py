"""A lower bound on mu from the means of scores whose noise is known: the tightest there is, where it applies."""

from __future__ import annotations

import math

from scipy.special import ndtri

from vflpriv.audits._bounds import Floats, check_alpha

__all__ = ["mu_known_sigma", "standardised"]

_SAME = 1e-3


def mu_known_sigma(inside: Floats, outside: Floats, confidence: float) -> float:
    """A lower bound on mu from scores of standard deviation 1, linear in Gaussian releases of known std.

    A unit-length combination of such releases has the same std in both worlds, and means at most mu apart: the
    difference of sample means, less z sqrt(1/n + 1/n'), exceeds mu with probability at most 1 - confidence.
    It says nothing of whether the noise is what it is said to be; tests that count errors do.
    """
    check_alpha(1 - confidence)
    spread = math.sqrt(1 / len(inside) + 1 / len(outside))
    return max(0.0, float(inside.mean() - outside.mean() - ndtri(confidence) * spread))


def standardised(ratios: Floats, strengths: Floats) -> Floats | None:
    """Log-likelihood ratios as scores of standard deviation 1; None where the worlds' distance varies between trials.

    `strengths` holds each trial's summed squared distance between the worlds' means, in units of the noise. The ratio
    is N(±s/2, s) where the distance s is the same in every trial; a distance that follows the noise is not normal.
    """
    if not len(strengths) or strengths.min() <= 0 or strengths.max() > strengths.min() * (1 + _SAME):
        return None
    return ratios / math.sqrt(float(strengths.max()))
