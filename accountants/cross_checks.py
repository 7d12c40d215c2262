"""Other libraries' bounds on epsilon beside ours: opacus, prv-accountant and dp-accounting, with their known faults.

They decide nothing. Each library is imported inside its function (opacus brings torch) and is asked only where it knows
the noise and its mesh fits into memory; otherwise the answer is the reason why it was not asked.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass

from vflpriv.accountants._merging import Merged, merge, refusal
from vflpriv.accountants.rdp import renyi_bound
from vflpriv.core.ledger import Exposure

__all__ = ["LIBRARIES", "MAX_MESH", "MAX_PER_POINT", "CrossCheck", "cross_checks", "mesh_fits"]

MAX_MESH = 2**22
"""The most points of a mesh that a library may allocate."""

MAX_PER_POINT = 2**17
"""The most points of a mesh that a library loops over one by one."""

_MESH_ERROR = 0.01
_ROUNDING = 1e-6
_LAST_ORDER = 63
"""The largest Rényi order that opacus tries."""


@dataclass(frozen=True, kw_only=True)
class CrossCheck:
    """One library's upper bound on epsilon, or the reason why it was not asked."""

    library: str
    epsilon: float | None = None
    error: float = 0.0
    """By how much the library says that its figure may be off."""
    note: str = ""
    """A known fault that concerns this figure."""
    refusal: str | None = None

    def is_too_low(self, lower: float) -> bool:
        """Whether the figure lies below a certified lower bound on epsilon by more than its stated error.

        >>> CrossCheck(library="x", epsilon=46.73, error=0.01).is_too_low(46.8)
        True
        """
        return self.epsilon is not None and self.epsilon + self.error < lower * (1 - _ROUNDING)


class _RefusedError(Exception):
    """A library is not asked; the message is the reason."""


def cross_checks(exposure: Exposure, delta: float) -> tuple[CrossCheck, ...]:
    """What each library answers at `delta`; empty where the exposure has no finite budget to be checked."""
    if refusal(exposure) is not None:
        return ()
    merged = merge(exposure)
    if merged.leaks or not merged.all_pairs:
        return ()
    return tuple(_asked(name, merged, delta) for name in LIBRARIES)


def _asked(name: str, merged: Merged, delta: float) -> CrossCheck:
    ask, error, note = LIBRARIES[name]
    try:
        if not 0 < delta < 1:
            raise _RefusedError(f"needs δ between 0 and 1, not {delta:g}")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            epsilon = ask(merged, delta)
    except _RefusedError as refused:
        return CrossCheck(library=name, refusal=str(refused))
    except ImportError:
        return CrossCheck(library=name, refusal="is not installed: pip install 'vflpriv[cross-check]'")
    except Exception as failure:  # noqa: BLE001 (whatever another library raises: it must not end the accounting)
        reason = " ".join(f"{type(failure).__name__}: {failure}".split())
        return CrossCheck(library=name, refusal=f"failed ({reason[:120]})")
    return CrossCheck(library=name, epsilon=epsilon, error=error, note=note(merged, delta))


def _dp_accounting(merged: Merged, delta: float) -> float:
    from dp_accounting.pld import privacy_loss_distribution as pld

    known = renyi_bound(merged, delta)
    pairs = merged.all_pairs
    # The same error estimate as for our own grid, at 0.1 %.
    order = known.order if math.isfinite(known.order) else 2.0
    interval = min(0.05, math.sqrt(12e-3 * max(known.epsilon, 1e-6) / (order * sum(pairs.values()))))
    points = sum(high - low for low, high in (pair.reach(math.exp(-50)) for pair in pairs)) / interval
    if points > MAX_PER_POINT:
        raise _RefusedError(_too_large(points, MAX_PER_POINT, "time"))
    total = pld.identity(value_discretization_interval=interval)
    for pair, count in pairs.items():
        if (distribution := pair.in_dp_accounting(interval)) is None:
            raise _RefusedError(f"does not know {pair.described}")
        total = total.compose(distribution.self_compose(count))
    return float(total.get_epsilon_for_delta(delta))


def _gaussian_rows(merged: Merged) -> list[tuple[float, float, int]]:
    """(noise multiplier, sampling rate, count) of each event; refuses all but Gaussians under add-remove."""
    rows = []
    for pair, count in merged.all_pairs.items():
        if pair.sampled_gaussian is None:
            raise _RefusedError(f"does not know {pair.described}")
        rows.append((*pair.sampled_gaussian, count))
    return rows


def mesh_fits(exposure: Exposure, delta: float, most: int = MAX_MESH) -> bool:
    """Whether opacus PRV and prv-accountant can bound this exposure without running out of memory."""
    merged = merge(exposure)
    return not merged.leaks and _mesh_points(merged, delta) <= most


def _mesh_points(merged: Merged, delta: float) -> float:
    """The mesh of Gopi, Lee and Wutschitz (2021), Theorem 5.5; its length is an RDP bound at a small delta."""
    counts = sum(merged.all_pairs.values())
    length = renyi_bound(merged, delta / 4000).epsilon + 3
    mesh = _MESH_ERROR / math.sqrt(counts / 2 * math.log(12_000 / delta))
    return 2 * length / mesh


def _check_mesh(merged: Merged, delta: float) -> None:
    points = _mesh_points(merged, delta)
    if points > MAX_MESH:
        raise _RefusedError(_too_large(points, MAX_MESH, "memory"))


def _too_large(points: float, most: int, what: str) -> str:
    return f"needs too much {what}: a mesh of {points:.2g} points, more than {most:,}"


def _opacus_rdp(merged: Merged, delta: float) -> float:
    rows = _gaussian_rows(merged)
    from opacus.accountants import RDPAccountant

    accountant = RDPAccountant()
    accountant.history = rows
    return float(accountant.get_epsilon(delta))


def _opacus_prv(merged: Merged, delta: float) -> float:
    rows = _gaussian_rows(merged)
    _check_mesh(merged, delta)
    from opacus.accountants import PRVAccountant

    accountant = PRVAccountant()
    accountant.history = rows
    return float(accountant.get_epsilon(delta, eps_error=_MESH_ERROR))


def _prv_accountant(merged: Merged, delta: float) -> float:
    rows = _gaussian_rows(merged)
    _check_mesh(merged, delta)
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


def _dp_accounting_note(merged: Merged, delta: float) -> str:
    """Two faults of its accountants, avoided here by asking its distributions, and one that these have too."""
    notes = list(dict.fromkeys(pair.library_note for pair in merged.all_pairs if pair.library_note))
    if renyi_bound(merged, delta).epsilon > 745:
        notes.append("above ε = 745 it drops a term")
    return "; ".join(notes)


def _opacus_rdp_note(merged: Merged, delta: float) -> str:
    # Its conversion from Rényi divergence 0 at the largest order.
    floor = math.log1p(-1 / _LAST_ORDER) - math.log(delta * _LAST_ORDER) / (_LAST_ORDER - 1)
    return f"orders up to {_LAST_ORDER}: never below {floor:.3g} at this δ" if floor > 0 else ""


def _mesh_note(merged: Merged, delta: float) -> str:
    return f"stated error {_MESH_ERROR:g}"


def _prv_note(merged: Merged, delta: float) -> str:
    # The bias of its means, which grows with the number of compositions, is not in its stated error.
    return f"stated error {_MESH_ERROR:g}, but it can lie further below the truth"


_Question = Callable[[Merged, float], float]
_Note = Callable[[Merged, float], str]
LIBRARIES: dict[str, tuple[_Question, float, _Note]] = {
    "dp-accounting PLD": (_dp_accounting, 0.0, _dp_accounting_note),
    "opacus RDP": (_opacus_rdp, 0.0, _opacus_rdp_note),
    "opacus PRV": (_opacus_prv, _MESH_ERROR, _mesh_note),
    "prv-accountant": (_prv_accountant, _MESH_ERROR, _prv_note),
}
"""By name: the function that asks, the error that the library states, and the function that names its known faults."""
