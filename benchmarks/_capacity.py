"""The capacity of a noisy channel as a ceiling: the most that any attack can learn about labels from noised scalars."""

from __future__ import annotations

import math

from scipy.stats import norm
from torch import Tensor

from vflpriv.errors import InputError

__all__ = ["gain_ceiling"]


def gain_ceiling(scalars: Tensor, noise_std: float, records: int, *, confidence: float) -> float:
    """The most that the scalars (T,) of a view can add to the share of right guesses over these records.

    Through Gaussian noise of this std a scalar carries at most ½ ln(1 + P/σ²) nats, P being the mean square of the
    noiseless value; earlier messages do not raise that. If the labels of different records are independent given the
    features, a label's share is on average the total divided by the number of records, and by Pinsker's inequality I
    nats move the chance of a right guess by at most √(I/2), whatever was known before. P is estimated from the scalars;
    the upper end of its interval is used.
    """
    if not noise_std > 0:
        raise InputError("noise_std", noise_std, "a positive number: without noise a scalar may carry anything")
    rounds, variance = len(scalars), noise_std**2
    power = max(0.0, float(scalars.double().square().mean()) - variance)
    spread = math.sqrt((2 * variance**2 + 4 * power * variance) / rounds)
    power += float(norm.ppf(confidence)) * spread
    nats = rounds / 2 * math.log1p(power / variance)
    return min(1.0, math.sqrt(nats / records / 2))
