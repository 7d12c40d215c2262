"""Whether recorded messages can hold the noise that a ledger says is on them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.special import gammainc

from vflpriv.audits._bounds import Floats
from vflpriv.releases import Gaussian, Laplace, Noise

__all__ = ["noise_p_value"]


def noise_p_value(noise: Noise, values: Sequence[Floats]) -> float | None:
    """The p-value of "every entry carries independent noise of this size, or more"; None for other noises.

    Around any signal, known or not, |signal + noise| is stochastically at least |noise|, as the noise is symmetric and
    has one peak. Conditional on all earlier entries that stays so, whatever the signal learnt from them. So Σx²/σ² is
    at least chi-squared with n degrees of freedom (Gaussian), and Σ|x|/b at least Gamma(n) (Laplace).

    >>> noise_p_value(Gaussian(1.0), [np.zeros(10)])
    0.0
    """
    if isinstance(noise, Gaussian):
        total, shape = sum(float(np.square(v / noise.std).sum()) for v in values) / 2, 0.5
    elif isinstance(noise, Laplace):
        total, shape = sum(float(np.abs(v / noise.scale).sum()) for v in values), 1.0
    else:
        return None
    count = sum(v.size for v in values)
    return float(gammainc(shape * count, total)) if count else None
