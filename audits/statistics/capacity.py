"""The most that any attack could learn of labels from noised scalars, however clever: a channel's capacity."""

from __future__ import annotations

import math

from scipy.stats import norm
from torch import Tensor

from vflpriv.errors import InputError

__all__ = ["gain_ceiling"]


def gain_ceiling(scalars: Tensor, noise_std: float, records: int, *, confidence: float) -> float:
    """What the scalars (T,) of a view can add to the share of right guesses over these records, at most.

    Through Gaussian noise of this std a scalar carries at most ½ ln(1 + P/σ²) nats, P the mean square of what lies
    below the noise; what was sent before does not raise that. Labels of different people are independent given the
    features, so a label's part is the total over the records on average, and by Pinsker's inequality I nats move the
    chance of a right guess by √(I/2) at most, whatever was known before. P is the upper end of its interval here.
    """
    if not noise_std > 0:
        raise InputError("noise_std", noise_std, "a positive number: without noise a scalar may carry anything")
    rounds, variance = len(scalars), noise_std**2
    power = max(0.0, float(scalars.double().square().mean()) - variance)
    spread = math.sqrt((2 * variance**2 + 4 * power * variance) / rounds)
    power += float(norm.ppf(confidence)) * spread
    nats = rounds / 2 * math.log1p(power / variance)
    return min(1.0, math.sqrt(nats / records / 2))
