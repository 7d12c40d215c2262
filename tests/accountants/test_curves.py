"""Curves of budgets: each is read from certified bounds, so each lies on the safe side of the truth."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import ndtri

from tests.accountants.exposures import event, expose
from tests.support import make_system
from vflpriv.accountants.auto import AutoAccountant
from vflpriv.accountants.curves import ALPHAS, DELTAS, over_rounds, privacy_curve, record_epsilons
from vflpriv.accountants.rdp import RdpAccountant
from vflpriv.core.budgets import curve, delta_of, epsilon_of
from vflpriv.core.units import Unit
from vflpriv.core.views import Adversary
from vflpriv.laws import Gaussian, Laplace, RandomizedResponse


def test_a_gaussian_curve_is_the_closed_form():
    found = privacy_curve(AutoAccountant(), expose(event(Gaussian(2.0), 1.0, 9)))
    assert found.exact
    assert np.array_equal(found.epsilon_lower, found.epsilon_upper)
    assert found.epsilon_upper == pytest.approx([epsilon_of(1.5, d) for d in DELTAS])
    assert found.betas == pytest.approx(curve(1.5, found.alphas))


def test_a_curve_of_bounds_lies_below_the_true_one_and_close_to_it():
    """RDP knows nothing of the closed form; its curve of lines must not promise more than there is."""
    exposure = expose(event(Gaussian(2.0), 1.0, 9))
    tight, loose = privacy_curve(AutoAccountant(), exposure), privacy_curve(RdpAccountant(), exposure)
    assert not loose.exact
    assert np.all(loose.betas <= tight.betas + 1e-12)
    assert np.all(np.diff(loose.betas) <= 1e-12)
    assert np.all(loose.betas <= 1 - loose.alphas + 1e-12)


def test_a_coin_has_two_lines():
    found = privacy_curve(AutoAccountant(), expose(event(RandomizedResponse(1.0)), unit=Unit.LABEL))
    exact = np.maximum(0, np.maximum(1 - math.e * found.alphas, (1 - found.alphas) / math.e))
    assert np.all(found.betas <= exact + 1e-9)
    assert found.betas == pytest.approx(exact, abs=2e-3)


def test_sampled_noise_is_bracketed():
    """The dual of delta(eps) = q delta_1 needs no accountant: one seen release."""
    exposure = expose(event(Gaussian(1.0), 1.0, 20, 0.1), event(Laplace(5.0)))
    found = privacy_curve(AutoAccountant(), exposure, deltas=np.array([1e-6, 1e-3, 0.03, 0.1]))
    assert np.all(found.epsilon_lower <= found.epsilon_upper)
    assert np.all(np.diff(found.epsilon_upper) < 0)
    # Every promised line: no (alpha, beta) above what some (eps, delta) allows.
    for epsilon, delta in zip(found.epsilon_upper, found.deltas, strict=True):
        assert np.max(1 - delta - math.exp(epsilon) * found.alphas - found.betas) <= 1e-12


def test_an_unprotected_message_leaves_nothing():
    found = privacy_curve(AutoAccountant(), expose(unprotected=("labels carry no noise",)))
    assert np.all(np.isinf(found.epsilon_upper))
    assert np.all(found.betas == 0)


def test_epsilon_over_rounds_rises_to_the_whole_runs():
    system = make_system("dpzv-joint", rounds=40)
    adversary, accountant = Adversary.parse("devices(all)"), AutoAccountant()
    found = over_rounds(accountant, system.ledger, adversary, Unit.LABEL, 1e-3, points=9)
    assert (found.rounds[0], found.rounds[-1], len(found.rounds)) == (1, 40, 9)
    assert np.all(np.diff(found.epsilon_upper) >= 0)
    whole = accountant.budget(system.ledger.exposure(adversary, Unit.LABEL), 1e-3)
    assert found.epsilon_upper[-1] == whole.upper
    one = system.ledger.until(1).exposure(adversary, Unit.LABEL)
    assert found.epsilon_upper[0] == pytest.approx(epsilon_of(one.mu, 1e-3))


def test_each_records_own_epsilon():
    system = make_system("dpzv-joint", rounds=40)
    exposure = system.ledger.exposure(Adversary.parse("device(1)"), Unit.LABEL)
    found = record_epsilons(exposure, 1e-3)
    assert found is not None
    assert exposure.counts is not None
    (one,) = exposure.events
    ratio = one.sensitivity / one.noise.std
    assert found == pytest.approx([epsilon_of(ratio * math.sqrt(n), 1e-3) for n in exposure.counts])
    assert found.max() == pytest.approx(AutoAccountant().budget(exposure, 1e-3).upper)
    assert found[exposure.worst] == found.max()
    assert delta_of(exposure.mu, float(found.max())) == pytest.approx(1e-3)


def test_records_have_no_epsilon_of_their_own_where_batches_are_secret():
    system = make_system("dpzv-joint", rounds=40, schedule="poisson")
    assert record_epsilons(system.ledger.exposure(Adversary.parse("model"), Unit.LABEL), 1e-3) is None


def test_curves_are_dense_where_they_bend_and_reach_both_ends():
    assert np.all(np.diff(DELTAS) > 0)
    assert (DELTAS[0], DELTAS[-1]) == pytest.approx((1e-12, 0.95))
    small, large = DELTAS[DELTAS < 0.011], DELTAS[DELTAS > 0.011]
    assert small[1:] / small[:-1] == pytest.approx(np.full(10, 10.0))
    assert (large[0], len(large)) == (pytest.approx(0.013), 20)
    assert (ALPHAS[0], ALPHAS[-1]) == (0.0, 1.0)
    assert ALPHAS + ALPHAS[::-1] == pytest.approx(np.ones(len(ALPHAS)))
    assert np.diff(ndtri(ALPHAS[1:-1])) == pytest.approx(np.full(180, 0.05))


def test_a_cost_beyond_the_largest_float_still_has_a_line():
    found = privacy_curve(RdpAccountant(), expose(event(Laplace(1e-3))), deltas=np.array([1e-5]))
    assert 900 < found.epsilon_upper[0] <= 1000
    assert found.betas[0] == 1 - 1e-5
    assert np.all(found.betas[1:] < 1e-290)


def test_a_curve_over_rounds_has_24_points_unless_told():
    system = make_system("dpzv-joint", rounds=40)
    found = over_rounds(AutoAccountant(), system.ledger, Adversary.parse("device(1)"), Unit.LABEL, 1e-3)
    assert (len(found.rounds), found.rounds[-1]) == (24, 40)


def test_records_have_no_epsilon_of_their_own_without_counts_or_without_gaussians():
    gaussian = expose(event(Gaussian(2.0), 1.0, 9))
    assert gaussian.gaussian
    assert record_epsilons(gaussian, 1e-3) is None
    counted = replace(gaussian, squares=np.array([0.25, 1.0, 0.25]))
    found = record_epsilons(counted, 1e-3)
    assert found == pytest.approx([epsilon_of(mu, 1e-3) for mu in (0.5, 1.0, 0.5)])
    assert record_epsilons(replace(counted, events=(event(Laplace(2.0)),)), 1e-3) is None
