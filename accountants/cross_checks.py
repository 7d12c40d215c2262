"""Upper bounds by other libraries, to compare ours with. They decide nothing, and are computed only on request.

Each library is imported inside its function (opacus imports torch) and called only if its mesh fits in memory. Known
faults: prv-accountant's upper bound can lie below the truth for many compositions, and dp-accounting's conversion from
delta drops a term above epsilon = 745; so none of these is ever a budget.
"""

from __future__ import annotations

import math
import warnings
from typing import Any

from vflpriv.accountants._merging import Merged, check, merge, refusal
from vflpriv.accountants._pairs import (
    GaussianPair,
    LaplacePair,
    Pair,
    RandomizedResponsePair,
    SampledGaussianPair,
    SampledReplacementPair,
)
from vflpriv.accountants.rdp import renyi_bound
from vflpriv.core.ledger import Exposure

__all__ = ["MAX_MESH", "MAX_PER_POINT", "cross_checks", "mesh_fits"]

MAX_MESH = 2**22
"""The most points of a mesh that a library may allocate."""

MAX_PER_POINT = 2**17
"""The most points where a library loops over them one by one."""

_MESH_ERROR = 0.01


def cross_checks(exposure: Exposure, delta: float) -> dict[str, float]:
    """Upper bounds on epsilon by dp-accounting (PLD), opacus (RDP and PRV) and prv-accountant, where they apply.

    For `Budget.checks`. A library that does not know the noise or the unit, or whose mesh would not fit, is left out.
    """
    check(refusal(exposure), delta)
    merged = merge(exposure)
    if merged.leaks or not merged.all_pairs:
        return {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        bounds = {
            "dp-accounting PLD": _dp_accounting(merged, delta),
            "opacus RDP": _opacus_rdp(merged, delta),
            "opacus PRV": _opacus_prv(merged, delta),
            "prv-accountant": _prv_accountant(merged, delta),
        }
    return {name: value for name, value in bounds.items() if value is not None}


def _dp_accounting(merged: Merged, delta: float) -> float | None:
    from dp_accounting.pld import privacy_loss_distribution as pld

    known = renyi_bound(merged, delta)
    pairs = merged.all_pairs
    # The same error estimate as for our own grid, at 0.1 %.
    order = known.order if math.isfinite(known.order) else 2.0
    interval = min(0.05, math.sqrt(12e-3 * max(known.epsilon, 1e-6) / (order * sum(pairs.values()))))
    reach = [pair.reach(math.exp(-50)) for pair in pairs]
    if sum(high - low for low, high in reach) / interval > MAX_PER_POINT:
        return None
    total = pld.identity(value_discretization_interval=interval)
    for pair, count in pairs.items():
        single = _library_distribution(pair, interval)
        if single is None:
            return None
        total = total.compose(single.self_compose(count))
    return float(total.get_epsilon_for_delta(delta))


def _library_distribution(pair: Pair, interval: float) -> Any:
    from dp_accounting import NeighboringRelation
    from dp_accounting.pld import privacy_loss_distribution as pld

    grid = {"value_discretization_interval": interval}
    if isinstance(pair, GaussianPair):
        return pld.from_gaussian_mechanism(1 / pair.mu, **grid)
    if isinstance(pair, SampledGaussianPair):
        return pld.from_gaussian_mechanism(1 / pair.mu, sampling_prob=pair.rate, **grid)
    if isinstance(pair, SampledReplacementPair):
        replaced = NeighboringRelation.REPLACE_ONE
        return pld.from_gaussian_mechanism(2 / pair.mu, sampling_prob=pair.rate, neighboring_relation=replaced, **grid)
    if isinstance(pair, LaplacePair):
        return pld.from_laplace_mechanism(1 / pair.shift, **grid)
    if isinstance(pair, RandomizedResponsePair):
        return pld.from_randomized_response(2 / (1 + math.exp(pair.epsilon)), 2, **grid)
    return None


def _rows(merged: Merged) -> list[tuple[float, float, int]] | None:
    """(noise multiplier, sampling rate, count) of each event, if all are Gaussians under add-remove."""
    rows = []
    for pair, count in merged.all_pairs.items():
        if not isinstance(pair, GaussianPair | SampledGaussianPair):
            return None
        rows.append((1 / pair.mu, pair.rate if isinstance(pair, SampledGaussianPair) else 1.0, count))
    return rows


def mesh_fits(exposure: Exposure, delta: float, most: int = MAX_MESH) -> bool:
    """Whether opacus PRV and prv-accountant can bound this exposure without running out of memory."""
    merged = merge(exposure)
    return not merged.leaks and _fits(merged, delta, most)


def _fits(merged: Merged, delta: float, most: int = MAX_MESH) -> bool:
    """Whether the mesh of Gopi, Lee, Wutschitz 2021, Theorem 5.5, fits; its length is an RDP bound at a small delta."""
    counts = sum(merged.all_pairs.values())
    length = renyi_bound(merged, delta / 4000).epsilon + 3
    mesh = _MESH_ERROR / math.sqrt(counts / 2 * math.log(12_000 / delta))
    return 2 * length / mesh <= most


def _opacus_rdp(merged: Merged, delta: float) -> float | None:
    if (rows := _rows(merged)) is None:
        return None
    from opacus.accountants import RDPAccountant

    accountant = RDPAccountant()
    accountant.history = rows
    return float(accountant.get_epsilon(delta))


def _opacus_prv(merged: Merged, delta: float) -> float | None:
    if (rows := _rows(merged)) is None or not _fits(merged, delta):
        return None
    from opacus.accountants import PRVAccountant

    accountant = PRVAccountant()
    accountant.history = rows
    return float(accountant.get_epsilon(delta, eps_error=_MESH_ERROR))


def _prv_accountant(merged: Merged, delta: float) -> float | None:
    if (rows := _rows(merged)) is None or not _fits(merged, delta):
        return None
    import prv_accountant

    counts = [count for _, _, count in rows]
    prvs = [
        prv_accountant.PoissonSubsampledGaussianMechanism(noise_multiplier=noise, sampling_probability=rate)
        for noise, rate, _ in rows
    ]
    accountant = prv_accountant.PRVAccountant(
        prvs=prvs, eps_error=_MESH_ERROR, delta_error=delta / 1000, max_self_compositions=counts
    )
    return float(accountant.compute_epsilon(delta, counts)[2])
