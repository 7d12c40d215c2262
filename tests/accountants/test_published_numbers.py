"""The numbers of the papers under audit, as the accountants see them: claimed, known batches, secret batches."""

from __future__ import annotations

import math

import pytest

from tests.accountants.exposures import event, expose
from vflpriv.accountants.auto import AutoAccountant
from vflpriv.accountants.gdp import GdpAccountant, central_limit
from vflpriv.accountants.prv import PrvAccountant
from vflpriv.accountants.rdp import RdpAccountant
from vflpriv.core.budgets import mu_of
from vflpriv.core.units import Unit
from vflpriv.laws import Gaussian, Laplace

# D, B, M, T, claimed epsilon, claimed mu, noise multiplier, secret epsilon, device (mu, epsilon), all (mu, epsilon)
DPZV = [
    (60000, 64, 7, 93750, 0.5, 0.2169, 1.5057, 0.58, (2.510, 10.26), (6.64, 41.76)),
    (60000, 64, 7, 93750, 1, 0.3884, 0.8409, 1.63, (4.495, 23.23), (11.89, 106.58)),
    (60000, 64, 7, 93750, 2, 0.6919, 0.4720, 12.66, (8.007, 55.96), (21.19, 288.96)),
    (60000, 256, 7, 23437, 1, 0.3884, 1.6817, 1.12, (2.247, 8.85), (5.95, 35.25)),
    (1437, 64, 4, 1122, 1, 0.3884, 3.8410, 1.03, (0.920, 2.83), (1.84, 6.80)),
    (1437, 32, 4, 898, 2, 0.6919, 0.9644, 3.05, (2.318, 9.22), (4.64, 24.32)),
]
DELTA, CLIP = 1e-3, 1.0


def noise_std(records: int, rounds: int, mu: float) -> float:
    return 2 * CLIP * math.sqrt(rounds) / (records * mu)  # DPZV, Theorem VI.5


@pytest.mark.parametrize(("D", "B", "M", "T", "claimed", "mu", "nu", "secret", "device", "everyone"), DPZV)
def test_dpzv_known_batches(D, B, M, T, claimed, mu, nu, secret, device, everyone):
    exact = mu_of(claimed, DELTA)
    std = noise_std(D, T, exact)
    assert exact == pytest.approx(mu, abs=1e-4)
    assert std * B / (2 * CLIP) == pytest.approx(nu, abs=1e-3)
    for rounds, (mu_seen, epsilon_seen) in ((T / M, device), (T, everyone)):
        # A real number of participations n, as one release whose mu is √n times that of one.
        n = rounds * B / D
        budget = GdpAccountant().budget(
            expose(event(Gaussian(std), 2 * CLIP / B * math.sqrt(n)), unit=Unit.RECORD), DELTA
        )
        assert budget.mu == pytest.approx(mu_seen, abs=0.01)
        assert budget.lower == budget.estimate == budget.upper == pytest.approx(epsilon_seen, abs=0.01)


@pytest.mark.parametrize(("D", "B", "M", "T", "claimed", "mu", "nu", "secret", "device", "everyone"), DPZV)
def test_dpzv_secret_batches_cost_more_than_claimed(D, B, M, T, claimed, mu, nu, secret, device, everyone):
    std = noise_std(D, T, mu_of(claimed, DELTA))
    exposure = expose(event(Gaussian(std), 2 * CLIP / B, T, B / D))
    budget = PrvAccountant().budget(exposure, DELTA)
    assert budget.upper == pytest.approx(secret, rel=0.02)
    assert budget.lower == pytest.approx(budget.upper, rel=5e-3)
    assert budget.lower > claimed


@pytest.mark.parametrize(("n", "mu", "epsilon"), [(12, 0.902, 2.76), (13, 0.939, 2.90), (50, 1.841, 6.80)])
def test_dpzv_real_schedules_have_whole_counts(n, mu, epsilon):
    D, B, _, T, claimed, *_ = DPZV[4]
    std = noise_std(D, T, mu_of(claimed, DELTA))
    budget = GdpAccountant().budget(expose(event(Gaussian(std), 2 * CLIP / B, n), unit=Unit.LABEL), DELTA)
    assert (budget.mu, budget.upper) == (pytest.approx(mu, abs=1e-3), pytest.approx(epsilon, abs=0.01))


def test_dpzv_full_batches_are_as_claimed():
    D, _, _, T, claimed, *_ = DPZV[4]
    std = noise_std(D, T, mu_of(claimed, DELTA))
    budget = GdpAccountant().budget(expose(event(Gaussian(std), 2 * CLIP / D, T), unit=Unit.RECORD), DELTA)
    assert budget.upper == pytest.approx(claimed, rel=1e-9)


def test_vafl_claims_a_tenth_of_its_mu():
    N, N_m, K, S, c = 60000, 600, 10_000, 2.0, 10.0
    claimed = S * N_m * math.sqrt(K) / (N * c)
    participations = round(K * N_m / N)
    budget = GdpAccountant().budget(expose(event(Gaussian(c), S, participations), unit=Unit.FEATURES), 1e-5)
    assert (claimed, budget.mu) == (pytest.approx(0.2), pytest.approx(2.0))


@pytest.mark.parametrize(
    ("T", "sigma", "exact", "by_rdp"),
    [(53, 5, 6.81, 7.33), (265, 10, 7.78, 8.36), (530, 30, 3.23, 3.50), (530, 70, 1.25, 1.37)],
)
def test_vimadmm_exact_and_by_the_papers_formula(T, sigma, exact, by_rdp):
    exposure = expose(event(Gaussian(sigma * CLIP), CLIP, T), unit=Unit.CLIENT_ZERO)
    assert GdpAccountant().budget(exposure, 1e-5).upper == pytest.approx(exact, abs=0.01)
    assert RdpAccountant().budget(exposure, 1e-5).upper == pytest.approx(by_rdp, abs=0.01)


def test_vimadmm_replacement_of_a_client_doubles_mu():
    exposure = expose(event(Gaussian(30 * CLIP), 2 * CLIP, 530), unit=Unit.CLIENT)
    assert AutoAccountant().budget(exposure, 1e-5).upper == pytest.approx(7.25, abs=0.01)


@pytest.mark.parametrize(("spread", "epsilon"), [(1.0, 2.83), (2.0, 1.41)])
@pytest.mark.parametrize("accountant", [RdpAccountant(), PrvAccountant(), AutoAccountant()])
def test_alibi(accountant, spread, epsilon):
    # One-hot labels differ by 2 in L1; Laplace noise of std λ has scale λ/√2.
    exposure = expose(event(Laplace(spread / math.sqrt(2)), 2.0), unit=Unit.LABEL)
    budget = accountant.budget(exposure, 1e-9)
    assert 2 * math.sqrt(2) / spread == pytest.approx(epsilon, abs=0.005)
    assert budget.upper == pytest.approx(2 * math.sqrt(2) / spread, rel=1e-6)


@pytest.mark.parametrize(
    ("epsilon", "delta", "mu"),
    [(1, 1e-3, 0.388401), (10, 1e-3, 2.462693), (1, 1e-5, 0.268051), (8, 1e-5, 1.666031)],
)
def test_closed_form_to_and_fro(epsilon, delta, mu):
    budget = GdpAccountant().budget(expose(event(Gaussian(1.0), mu)), delta)
    assert budget.upper == pytest.approx(epsilon, abs=2e-5)


def test_the_central_limit_is_below_the_truth_for_dpzv():
    D, B, _, T, claimed, *_ = DPZV[1]
    exposure = expose(event(Gaussian(noise_std(D, T, mu_of(claimed, DELTA))), 2 * CLIP / B, T, B / D))
    assert central_limit(exposure, DELTA) < PrvAccountant().budget(exposure, DELTA).lower
