"""Pure epsilon: budgets and claims at delta = 0."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.accountants.exposures import event, expose
from vflpriv.accountants.auto import AutoAccountant
from vflpriv.accountants.gdp import GdpAccountant
from vflpriv.accountants.prv import PrvAccountant
from vflpriv.accountants.rdp import RdpAccountant
from vflpriv.audits.verdict import Accounted, judge
from vflpriv.core.budgets import curve, mu_of_pure
from vflpriv.core.claims import Claim, Verdict
from vflpriv.core.ledger import Event, Sampling
from vflpriv.core.units import Unit
from vflpriv.laws import Gaussian, Laplace, RandomizedResponse

ACCOUNTANTS = [AutoAccountant(), PrvAccountant(), RdpAccountant()]


def pure_claim(epsilon: float) -> Claim:
    return Claim.of_epsilon(
        epsilon, 0.0, key="k", source="s", where="w", statement="x", unit=Unit.LABEL, view="devices(all)"
    )


@pytest.mark.parametrize("accountant", ACCOUNTANTS, ids=lambda a: a.name)
def test_pure_epsilons_add_up(accountant):
    # ALIBI: one-hot labels at L1 distance 2, Laplace noise of std 1: 2√2. Three coins of 0.5.
    exposure = expose(event(Laplace(1 / math.sqrt(2)), 2.0), event(RandomizedResponse(0.5), 1.0, 3), unit=Unit.LABEL)
    budget = accountant.budget(exposure, 0.0)
    assert budget.upper == pytest.approx(2 * math.sqrt(2) + 1.5, rel=1e-12)
    assert budget.delta == 0
    assert "pure" in budget.method
    assert budget.upper >= accountant.budget(exposure, 1e-9).upper


@pytest.mark.parametrize("accountant", ACCOUNTANTS, ids=lambda a: a.name)
def test_an_epsilon_whose_exponential_is_too_large_for_a_float_is_counted(accountant):
    exposure = expose(event(RandomizedResponse(800.0), 1.0, 3), unit=Unit.LABEL)
    assert accountant.budget(exposure, 0.0).upper == 2400.0
    # Three right answers of three, and nothing else, is what delta = 1e-5 leaves of it: log(1 - 1e-5) less.
    assert accountant.budget(exposure, 1e-5).upper == pytest.approx(2400.0, abs=1e-4)


@pytest.mark.parametrize("accountant", [*ACCOUNTANTS, GdpAccountant()], ids=lambda a: a.name)
def test_gaussian_noise_is_never_pure(accountant):
    assert accountant.budget(expose(event(Gaussian(100.0))), 0.0).upper == math.inf
    assert accountant.budget(expose(), 0.0).upper == 0


@pytest.mark.parametrize("accountant", ACCOUNTANTS, ids=lambda a: a.name)
def test_only_a_sum_hides_who_took_part(accountant):
    """A row that is seen to be there gives away all of its epsilon, however rarely it is."""

    def upper(noise, scheme):
        one = Event(kind="m", noise=noise, sensitivity=1.0, count=1, sampling=Sampling(scheme, 0.1))
        return accountant.budget(expose(one, unit=Unit.LABEL), 0.0).upper

    assert upper(Laplace(1.0), "poisson") == pytest.approx(math.log1p(0.1 * math.expm1(1.0)))
    assert upper(Laplace(1.0), "poisson-seen") == 1.0
    assert upper(RandomizedResponse(1.0), "poisson") == 1.0


def test_a_pure_claim_implies_the_curve_that_touches_its_own():
    alpha = np.linspace(0, 1, 2001)
    for epsilon in (0.1, 1.0, 5.0):
        mu = pure_claim(epsilon).mu
        own = np.maximum(0, np.maximum(1 - math.exp(epsilon) * alpha, math.exp(-epsilon) * (1 - alpha)))
        assert np.all(curve(mu, alpha) <= own + 1e-12)
        corner = 1 / (1 + math.exp(epsilon))
        assert float(curve(mu, corner)) == pytest.approx(corner, rel=1e-9)
    assert mu_of_pure(0.0) == 0
    assert math.isfinite(mu_of_pure(2000.0))


@pytest.mark.parametrize(
    ("noise", "word"),
    [(Laplace(1.0), Verdict.UNMEASURED), (Laplace(0.9), Verdict.UNSUPPORTED), (Gaussian(9), Verdict.UNSUPPORTED)],
)
def test_a_pure_claim_is_judged_by_pure_epsilon(noise, word):
    """Gaussian noise has a small mu here, and still no pure epsilon."""
    accounted = AutoAccountant().budget(expose(event(noise), unit=Unit.LABEL), 0.0)
    verdict = judge(pure_claim(1.0), Accounted(rigorous=accounted), [], alpha=0.05)
    assert verdict.verdict is word


def test_the_central_limit_never_decides():
    """Its value is within the claim, the certified bound is not: the claim is unsupported."""
    exposure = expose(event(Gaussian(0.4), 1.0, 100, 1e-4), unit=Unit.ADD_REMOVE)
    budget = AutoAccountant().budget(exposure, 1e-5)
    (limit,) = budget.approximations.values()
    assert all("not a bound" in name for name in budget.approximations)
    claim = Claim.of_epsilon(
        0.5, 1e-5, key="k", source="s", where="w", statement="x", unit=Unit.ADD_REMOVE, view="outsider"
    )
    assert limit < claim.epsilon < budget.lower
    found = judge(claim, Accounted(rigorous=budget), [], alpha=0.05)
    assert found.verdict is Verdict.UNSUPPORTED
