"""Cells that public libraries answer well, badly or not at all, with the right answer for ours."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import binom

from tests.accountants.exposures import event, expose
from vflpriv.accountants._merging import SEEN
from vflpriv.accountants.gdp import CENTRAL_LIMIT, GdpAccountant, central_limit
from vflpriv.accountants.prv import PrvAccountant
from vflpriv.accountants.rdp import RdpAccountant
from vflpriv.core.budgets import epsilon_of
from vflpriv.core.ledger import Sampling
from vflpriv.core.units import Unit
from vflpriv.laws import Gaussian, Laplace, RandomizedResponse

DELTA = 1e-5
# q, noise multiplier, T: the truth, opacus RDP, the central limit. dp-accounting says 909.83 in the last cell: its
# search for epsilon drops e^{eps - loss} where e^{-loss} underflows; its own delta(908.888) is 1e-5.
CELLS = [
    (0.001, 0.8, 10_000, 0.7824, 1.3838, 0.7025),
    (0.01, 1.0, 10_000, 6.1877, 6.7127, 6.007),
    (0.01, 0.5, 1_000, 13.3608, 15.464, 11.99),
    (0.0167, 2.0, 6_000, 2.8970, 3.1467, 2.860),
    (0.001, 0.4, 100_000, 37.3975, 41.40, 55.7),
    (0.1, 5.0, 100_000, 46.8369, 49.45, 46.887),
    (0.001, 0.3, 1_000_000, 908.87, 955.07, math.inf),
]


@pytest.mark.parametrize(("q", "nu", "T", "truth", "by_opacus", "limit"), CELLS)
def test_poisson_add_remove(q, nu, T, truth, by_opacus, limit):
    exposure = expose(event(Gaussian(nu), 1.0, T, q))
    budget, rdp = PrvAccountant().budget(exposure, DELTA), RdpAccountant().budget(exposure, DELTA)
    assert budget.lower - 1e-4 <= truth * (1 + 3e-5)
    assert truth * (1 - 3e-5) <= budget.upper
    assert budget.upper - budget.lower <= 1e-3 * truth
    assert truth <= rdp.upper <= by_opacus + 1e-3
    if math.isfinite(limit):
        assert budget.approximations[CENTRAL_LIMIT] == pytest.approx(limit, rel=1e-3)


@pytest.mark.parametrize(
    ("q", "nu", "T", "add_remove", "replace_one"),
    [(0.01, 1, 1_000, 1.828, 2.843), (0.001, 1, 10_000, 0.476, 0.793), (0.01, 2, 10_000, 2.163, 4.396)],
)
@pytest.mark.parametrize("unit", [Unit.LABEL, Unit.RECORD, Unit.FEATURES])
def test_adjacency(unit, q, nu, T, add_remove, replace_one):
    one = PrvAccountant().budget(expose(event(Gaussian(nu), 1.0, T, q)), DELTA)
    two = PrvAccountant().budget(expose(event(Gaussian(nu), 2.0, T, q), unit=unit), DELTA)
    assert one.upper == pytest.approx(add_remove, abs=1e-3)
    assert two.upper == pytest.approx(replace_one, abs=1e-3)
    assert any("replace-one pair" in note for note in two.assumptions)
    assert two.upper <= RdpAccountant().budget(expose(event(Gaussian(nu), 2.0, T, q), unit=unit), DELTA).upper


@pytest.mark.parametrize("accountant", [GdpAccountant(), PrvAccountant()])
def test_plain_gaussians_are_exact(accountant):
    assert accountant.budget(expose(event(Gaussian(1.0))), DELTA).upper == pytest.approx(4.3772, abs=1e-4)
    assert accountant.budget(expose(event(Gaussian(20.0), 1.0, 1000)), DELTA).upper == pytest.approx(7.5113, abs=1e-4)
    replaced = expose(event(Gaussian(1.0), 2.0), unit=Unit.RECORD)
    assert accountant.budget(replaced, DELTA).upper == pytest.approx(9.997, abs=1e-3)


@pytest.mark.parametrize("unit", [Unit.ADD_REMOVE, Unit.RECORD])
def test_sampling_that_can_be_seen_amplifies_less(unit):
    """A row that is there or not is not hidden by a sum: delta(eps) = q delta_1(eps), here for one release."""
    secret = event(Gaussian(1.0), 2.0, 1, 0.01)
    seen = replace(secret, sampling=Sampling(SEEN, 0.01))
    budget = PrvAccountant().budget(expose(seen, unit=unit), DELTA)
    assert budget.upper == pytest.approx(epsilon_of(2.0, DELTA / 0.01), rel=1e-3)
    assert budget.lower <= epsilon_of(2.0, DELTA / 0.01) <= budget.upper
    for accountant in (PrvAccountant(), RdpAccountant()):
        hidden, shown = (accountant.budget(expose(e, unit=unit), DELTA).upper for e in (secret, seen))
        assert hidden < shown < accountant.budget(expose(replace(seen, sampling=None), unit=unit), DELTA).upper
    assert "secret" in GdpAccountant().supports(expose(seen, unit=unit))


def test_thousand_different_gaussians_are_one():
    exposure = expose(*(event(Gaussian(float(std))) for std in np.linspace(20, 60, 1000)))
    budget = PrvAccountant().budget(exposure, DELTA)
    assert budget.upper == pytest.approx(3.94153, abs=1e-5)
    assert budget.mu is not None, "composed in closed form, no grid"


def exact_coins(epsilon: float, count: int, delta: float) -> float:
    """The exact epsilon of `count` randomized responses: a sum over the number of right answers."""
    k = np.arange(count + 1)
    log_p, loss = binom.logpmf(k, count, 1 / (1 + math.exp(-epsilon))), epsilon * (2 * k - count)

    def excess(target: float) -> float:
        return float(np.sum(np.exp(log_p) * np.maximum(0, -np.expm1(target - loss)))) - delta

    return float(brentq(excess, 0, count * epsilon))


@pytest.mark.parametrize(("epsilon", "published"), [(math.log(3), 90.7815), (1.0, 79.84)])
def test_randomized_response_counts(epsilon, published):
    exact = exact_coins(epsilon, 100, DELTA)
    budget = PrvAccountant().budget(expose(event(RandomizedResponse(epsilon), 1.0, 100), unit=Unit.LABEL), DELTA)
    assert exact == pytest.approx(published, abs=5e-3)
    assert budget.lower <= exact <= budget.upper
    assert budget.upper == pytest.approx(exact, rel=1e-6)
    assert RdpAccountant().budget(expose(event(RandomizedResponse(epsilon), 1.0, 100)), DELTA).upper >= exact


@pytest.mark.parametrize(("unit", "sensitivity", "truth"), [(Unit.ADD_REMOVE, 1.0, 4.598), (Unit.RECORD, 2.0, 8.057)])
def test_mix_of_noises(unit, sensitivity, truth):
    mix = expose(
        event(Gaussian(5.0), sensitivity, 10),
        event(Gaussian(1.0), sensitivity, 1000, 0.01),
        event(Laplace(10.0), sensitivity, 5),
        event(RandomizedResponse(0.5), 1.0, 3),
        unit=unit,
    )
    budget = PrvAccountant().budget(mix, DELTA)
    assert budget.upper == pytest.approx(truth, abs=1e-3)
    assert budget.lower == pytest.approx(budget.upper, rel=1e-3)


def test_fifty_different_pairs():
    rates, stds = np.logspace(-3, np.log10(0.05), 50), np.linspace(0.7, 3, 50)
    exposure = expose(*(event(Gaussian(float(s)), 1.0, 100, float(q)) for q, s in zip(rates, stds, strict=True)))
    budget = PrvAccountant().budget(exposure, DELTA)
    assert budget.upper == pytest.approx(2.08076, abs=1e-3)
    assert budget.lower <= 2.08077


@pytest.mark.slow
def test_thousand_different_pairs():
    rates, stds = np.linspace(0.005, 0.05, 1000), np.linspace(0.8, 1.5, 1000)
    exposure = expose(*(event(Gaussian(float(s)), 1.0, 1, float(q)) for q, s in zip(rates, stds, strict=True)))
    budget = PrvAccountant().budget(exposure, DELTA)
    assert budget.lower <= 4.15905
    assert budget.upper == pytest.approx(4.15904, rel=1e-3)
    assert budget.lower >= 0.99 * budget.upper


def test_orders_have_no_floor():
    """With orders capped at 63, RDP cannot go below 0.103 at this delta."""
    tiny = expose(event(Gaussian(1000.0), 1.0, 1, 0.01))
    assert RdpAccountant().budget(tiny, DELTA).upper < 1e-3
    quiet = expose(event(Gaussian(1000.0)))
    assert RdpAccountant().budget(quiet, DELTA).upper < 2 * GdpAccountant().budget(quiet, DELTA).upper


@pytest.mark.parametrize("delta", [1e-14, 1e-16, 1e-30, 1e-100])
def test_tiny_deltas_stay_finite_and_bracketed(delta):
    exposure = expose(event(Gaussian(1.0), 1.0, 1_000, 0.01))
    budget, rdp = PrvAccountant().budget(exposure, delta), RdpAccountant().budget(exposure, delta)
    assert 0 < budget.lower <= budget.upper <= rdp.upper < math.inf
    assert budget.lower >= 0.99 * budget.upper


def test_the_central_limit_is_no_bound():
    exposure = expose(event(Gaussian(0.4), 1.0, 100, 1e-4))
    budget = PrvAccountant().budget(exposure, DELTA)
    assert central_limit(exposure, DELTA) == pytest.approx(0.068, abs=1e-3)
    assert budget.upper == pytest.approx(1.31, abs=5e-3)
    assert budget.lower > 19 * central_limit(exposure, DELTA)
