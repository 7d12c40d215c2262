"""A claim of μ-GDP is held against the whole accounted curve, not against its value at one δ."""

from __future__ import annotations

import pytest

from tests.accountants.exposures import event, expose
from vflpriv.accountants.auto import AutoAccountant
from vflpriv.core.budgets import epsilon_of, mu_of, mu_of_pure
from vflpriv.core.ledger import Exposure
from vflpriv.core.units import Unit
from vflpriv.laws import Gaussian, Laplace, RandomizedResponse
from vflpriv.run.summary.budgets import curve_excess

AUTO = AutoAccountant()
COIN = expose(event(RandomizedResponse(1.0)), unit=Unit.LABEL)


@pytest.mark.parametrize("noise", [RandomizedResponse(1.0), Laplace(1.0)], ids=str)
def test_a_curve_with_the_same_epsilon_at_one_delta_is_exceeded_elsewhere(noise) -> None:
    exposure, mu = expose(event(noise), unit=Unit.LABEL), mu_of(1.0, 1e-5)
    assert AUTO.budget(exposure, 1e-5).upper <= epsilon_of(mu, 1e-5) * (1 + 1e-6)
    excess = curve_excess(AUTO, exposure, mu)
    assert excess is not None
    assert excess.delta > 0.01
    assert excess.accounted > excess.claimed + 0.3


def test_the_least_curve_that_randomised_response_keeps_is_not_exceeded() -> None:
    least = mu_of_pure(1.0)
    assert curve_excess(AUTO, COIN, least * (1 + 1e-6)) is None
    assert curve_excess(AUTO, COIN, 0.99 * least) is not None


def test_a_gaussian_curve_is_exceeded_exactly_where_mu_is() -> None:
    exposure: Exposure = expose(event(Gaussian(2.0)))
    assert curve_excess(AUTO, exposure, 0.5) is None
    assert curve_excess(AUTO, exposure, 0.499) is not None


def test_secret_batches_exceed_their_central_limit_far_out() -> None:
    exposure = expose(event(Gaussian(1.0), 1.0, 100, 0.01), unit=Unit.ADD_REMOVE)
    mu = mu_of(AUTO.budget(exposure, 1e-3).upper, 1e-3)
    excess = curve_excess(AUTO, exposure, 1.01 * mu)
    assert excess is not None
    assert excess.delta < 1e-3
