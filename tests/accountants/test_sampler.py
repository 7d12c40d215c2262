"""What the sampler of continuous noise adds to a budget, and that calibration counts it."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from tests.accountants.exposures import event, expose
from vflpriv.accountants._sampler import delta_of_law, sampled_budget, sampled_upper, sampler_error
from vflpriv.accountants.auto import AutoAccountant
from vflpriv.accountants.calibration import calibrate_noise
from vflpriv.accountants.gdp import GdpAccountant
from vflpriv.accountants.prv import PrvAccountant
from vflpriv.accountants.rdp import RdpAccountant
from vflpriv.core.budgets import Budget, quick_upper
from vflpriv.core.ledger import Exposure
from vflpriv.laws import Gaussian


def drawn(entries: int, rounds: int, std: float = 10.0) -> Exposure:
    return expose(event(Gaussian(std).on_grid(1.0, entries), 1.0, rounds))


def test_it_grows_with_the_root_of_the_numbers_and_is_small() -> None:
    added, missed = sampler_error(drawn(1, 92))
    assert 0 < added < 1e-8
    assert missed == pytest.approx(92 * 2.0**-82)
    assert sampler_error(drawn(1, 4 * 92))[0] == pytest.approx(2 * added, rel=1e-6)
    assert sampler_error(drawn(1 << 24, 60))[0] < 1e-4
    # Of a system whose program adds noise its own way nothing is known.
    assert sampler_error(expose(event(Gaussian(10.0), 1.0, 92))) == (0.0, 0.0)


def test_a_budget_is_above_that_of_the_law_by_as_much() -> None:
    exposure = drawn(1 << 24, 60)
    of_law = expose(replace(exposure.events[0], noise=Gaussian(10.0)))
    counted, ideal = (AutoAccountant().budget(e, 1e-5) for e in (exposure, of_law))
    assert counted.delta == ideal.delta == 1e-5
    assert 0 < counted.upper - ideal.upper - sampler_error(exposure)[0] < 1e-4
    assert AutoAccountant().budget(drawn(1 << 24, 10**18), 1e-5).upper == math.inf


@pytest.mark.parametrize("entries", [1, 1 << 24])
def test_calibrated_noise_keeps_its_target_with_all_of_it(entries: int) -> None:
    def exposure_of(std: float) -> Exposure:
        return drawn(entries, 92, std)

    std = calibrate_noise(exposure_of, epsilon=1.0, delta=1e-3, accountant=AutoAccountant())
    assert 1 - 1e-3 < AutoAccountant().budget(exposure_of(std), 1e-3).upper <= 1.0


@pytest.mark.parametrize("entries", [1, 1 << 24])
def test_the_error_of_a_sampler_is_its_formula(entries: int) -> None:
    """2 (ρ √(2 N 750) + N ρ²) with ρ = 2⁻³⁷, and N 2⁻⁸² of δ, over N = 7 · entries + 5 numbers."""
    exposure = expose(event(Gaussian(10.0).on_grid(1.0, entries), 1.0, 7), event(Gaussian(3.0).on_grid(1.0, 1), 1.0, 5))
    number, rho = 7 * entries + 5, 2.0**-37
    added, missed = sampler_error(exposure)
    assert added == pytest.approx(2 * (rho * math.sqrt(1500 * number) + number * rho**2), rel=1e-12)
    assert missed == number * 2.0**-82
    # Of so many numbers the second term is the larger one.
    many = drawn(1 << 24, 10**15)
    number = 10**15 * (1 << 24)
    assert sampler_error(many)[0] == pytest.approx(2 * (rho * math.sqrt(1500 * number) + number * rho**2), rel=1e-12)


def test_delta_pays_for_both_errors_and_a_pure_budget_stays_pure() -> None:
    assert delta_of_law(1e-3, (0.2, 1e-4)) == pytest.approx(1e-3 * math.exp(-0.1) - 1e-4, rel=1e-12)
    assert delta_of_law(1e-4, (0.2, 1e-4)) == 0.0
    assert delta_of_law(0.0, (0.2, 1e-4)) == 0.0
    assert delta_of_law(1.0, (0.0, 0.0)) == 1.0


@pytest.mark.parametrize("accountant", [PrvAccountant(), RdpAccountant(), GdpAccountant()], ids=lambda a: a.name)
def test_both_ways_to_a_bound_count_the_sampler(accountant: Any) -> None:
    exposure = drawn(1 << 24, 60)
    added, missed = sampler_error(exposure)
    laws = expose(replace(exposure.events[0], noise=Gaussian(exposure.events[0].noise.std)))  # type: ignore[attr-defined]
    # The steps of the grid alone move the strength by less than 1e-8.
    ideal = accountant.budget(laws, delta_of_law(1e-5, (added, missed))).upper
    assert accountant.budget(exposure, 1e-5).upper == pytest.approx(ideal + added, rel=1e-6)
    assert quick_upper(accountant, exposure, 1e-5) == pytest.approx(ideal + added, rel=1e-6)
    assert accountant.budget(exposure, 1e-5).delta == 1e-5
    # Without anything drawn the accountant is asked as it is.
    assert accountant.budget(laws, 1e-5).upper < accountant.budget(exposure, 1e-5).upper
    assert quick_upper(accountant, laws, 1e-5) == pytest.approx(accountant.budget(laws, 1e-5).upper)


def test_what_is_counted_is_the_law_at_a_smaller_delta_and_what_is_added_to_epsilon() -> None:
    asked: list[float] = []

    class Fake:
        @sampled_budget
        def budget(self, exposure: Exposure, delta: float) -> Budget:
            asked.append(delta)
            return Budget(accountant="x", method="y", delta=delta, lower=1.0, estimate=2.0, upper=3.0)

        @sampled_upper
        def upper(self, exposure: Exposure, delta: float) -> float:
            asked.append(delta)
            return 3.0

    exposure = drawn(1 << 24, 60)
    error = sampler_error(exposure)
    budget = Fake().budget(exposure, 1e-5)
    assert (budget.lower, budget.estimate, budget.upper, budget.delta) == (1.0, 2.0, 3.0 + error[0], 1e-5)
    assert Fake().upper(exposure, 1e-5) == 3.0 + error[0]
    assert asked == [delta_of_law(1e-5, error)] * 2
    none = expose(event(Gaussian(10.0), 1.0, 60))
    assert (Fake().budget(none, 1e-5).upper, Fake().upper(none, 1e-5)) == (3.0, 3.0)
    assert asked[2:] == [1e-5] * 2
