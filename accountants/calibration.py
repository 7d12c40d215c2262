"""Calibration: the least noise for which an accountant's upper bound is within a given budget."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

from vflpriv.accountants._merging import Merged, merge
from vflpriv.accountants._sampler import delta_of_law, sampler_error
from vflpriv.accountants.rdp import RdpAccountant
from vflpriv.core.budgets import Accountant, mu_of, quick_upper
from vflpriv.core.ledger import Exposure
from vflpriv.errors import InputError

__all__ = ["calibrate_noise"]

_TOLERANCE = 1e-4
_SMALLEST, _LARGEST = 1e-12, 1e12
_MOST_STEPS = 60


def calibrate_noise(
    exposure_of: Callable[[float], Exposure], *, epsilon: float, delta: float, accountant: Accountant
) -> float:
    """The least noise std, to a relative 1e-4 of epsilon, for which the accountant's upper bound is at most `epsilon`.

    `exposure_of(std)` is the adversary's exposure if the noise to be found has that std; more noise must not cost more.
    The result is on the safe side: `accountant.budget(exposure_of(std), delta).upper <= epsilon`.
    """
    _check_target(exposure_of(1.0), epsilon, delta, accountant)
    if (exact := _scaled(exposure_of, epsilon, delta)) is not None:
        return exact

    @cache
    def upper(std: float) -> float:
        return accountant.budget(exposure_of(std), delta).upper

    @cache
    def quick(std: float) -> float:
        return quick_upper(accountant, exposure_of(std), delta)

    rough = RdpAccountant()

    @cache
    def cheap(std: float) -> float:
        return rough.budget(exposure_of(std), delta).upper

    # RDP is valid and cheap: a tighter accountant needs at most the noise that keeps the budget by RDP.
    low, high = _enclose(cheap, epsilon, 1.0)
    _, start = _search(cheap, epsilon, low, high, 0.01)
    low, high = _enclose(quick, epsilon, start)
    low, high = _search(quick, epsilon, low, high, _TOLERANCE)
    # The budget itself may be a little below its quick bound: then there is a little less noise to find.
    if upper(high) >= epsilon * (1 - _TOLERANCE):
        return high
    low, high = _enclose(upper, epsilon, high)
    return _search(upper, epsilon, low, high, _TOLERANCE)[1]


def _check_target(exposure: Exposure, epsilon: float, delta: float, accountant: Accountant) -> None:
    if not 0 < epsilon < math.inf:
        raise InputError("epsilon", epsilon, "a finite number > 0")
    if not 0 < delta < 1:
        raise InputError("delta", delta, "a number between 0 and 1")
    if (reason := accountant.supports(exposure)) is not None:
        raise InputError("accountant", accountant.name, f"one that supports this exposure: {reason}")
    if leaks := merge(exposure).leaks:
        raise InputError(
            "epsilon", epsilon, f"every message protected by noise, which these are not: {'; '.join(leaks)}"
        )


def _scaled(exposure_of: Callable[[float], Exposure], epsilon: float, delta: float) -> float | None:
    """The closed form, where all noise is Gaussian and scales with the std: mu is then inverse to it."""
    at_1, at_2 = merge(exposure_of(1.0)), merge(exposure_of(2.0))
    if not (at_1.gaussian and at_2.gaussian) or at_1.mu == 0 or not math.isclose(at_1.mu, 2 * at_2.mu, rel_tol=1e-12):
        return None
    error = sampler_error(exposure_of(1.0))
    law_delta = delta_of_law(delta, error)
    if epsilon <= error[0] or law_delta <= 0:
        return None
    target = mu_of(epsilon - error[0], law_delta)
    # Steps of the noise depend on its std: what they add to the distance is known where the std is nearly right.
    near = at_1.mu / target
    std = merge(exposure_of(near)).mu * near / target * (1 + 1e-9)
    at_std: Merged = merge(exposure_of(std))
    return std if at_std.gaussian and target * (1 - 1e-8) <= at_std.mu <= target else None


def _enclose(upper: Callable[[float], float], epsilon: float, start: float) -> tuple[float, float]:
    """Two stds, of which the first spends more than epsilon and the second does not."""
    high, factor = start, 1.1
    while upper(high) > epsilon:
        if high >= _LARGEST:
            expected = f"more than {upper(high):.6g}, which other releases cost however large this noise is"
            raise InputError("epsilon", epsilon, expected)
        high, factor = min(high * factor, _LARGEST), factor * factor
    low, factor = high / 1.1, 1.1
    while upper(low) <= epsilon:
        high, low, factor = low, low / factor, factor * factor
        if low < _SMALLEST:
            return low, high
    return low, high


def _search(
    upper: Callable[[float], float], epsilon: float, low: float, high: float, tolerance: float
) -> tuple[float, float]:
    """Narrows the two stds by secants of log upper over log std, with halving where a secant gains little."""
    spent_low, spent_high = upper(low), upper(high)
    points = [(low, spent_low), (high, spent_high)]
    for step in range(_MOST_STEPS):
        if spent_high >= epsilon * (1 - tolerance) or high / low <= 1 + 1e-12:
            break
        middle = math.sqrt(low * high)
        if step % 4 < 3:
            # The two latest points are the closest ones; their secant may lead outside.
            guess = _secant(points[-2], points[-1], epsilon * (1 - tolerance / 2))
            middle = guess if low < guess < high else middle
        spent = upper(middle)
        points.append((middle, spent))
        if spent > epsilon:
            low, spent_low = middle, spent
        else:
            high, spent_high = middle, spent
    return low, high


def _secant(first: tuple[float, float], second: tuple[float, float], target: float) -> float:
    """Where the line through two points (std, spent), both on a logarithmic scale, meets the target; NaN if nowhere."""
    (x, spent_x), (y, spent_y) = first, second
    if not (0 < spent_x < math.inf and 0 < spent_y < math.inf) or spent_x == spent_y:
        return math.nan
    share = math.log(spent_x / target) / math.log(spent_x / spent_y)
    return x * math.exp(min(max(share * math.log(y / x), -50.0), 50.0))
