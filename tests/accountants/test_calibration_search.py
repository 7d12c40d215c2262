"""The search of the noise, piece by piece: two stds around the target, secants between them, and the closed form."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from tests.accountants.exposures import event, expose
from vflpriv.accountants import calibration
from vflpriv.accountants.calibration import _enclose, _scaled, _search, _secant, calibrate_noise
from vflpriv.accountants.gdp import GdpAccountant
from vflpriv.accountants.rdp import RdpAccountant
from vflpriv.core.budgets import mu_of
from vflpriv.core.ledger import Exposure
from vflpriv.errors import InputError
from vflpriv.laws import Gaussian, Laplace


class Spent:
    """An ε that falls with the std as a power, and which stds were asked for."""

    def __init__(self, scale: float, power: float = 1.0) -> None:
        self.scale, self.power, self.asked = scale, power, list[float]()

    def __call__(self, std: float) -> float:
        self.asked.append(std)
        return self.scale / std**self.power


def of_gaussians(*events: tuple[float, float, int]) -> Callable[[float], Exposure]:
    """Releases of noise so many times as large as what is to be found: (times, sensitivity, count)."""
    return lambda std: expose(*(event(Gaussian(times * std), length, count) for times, length, count in events))


@pytest.mark.parametrize("least", [3e-9, 0.02, 0.95, 1.0, 1.05, 7.0, 4e8])
def test_two_stds_enclose_the_least_noise(least: float) -> None:
    """Factors grow as squares of 1.1 from the start, so that any noise is found within a few steps."""
    spent = Spent(2.0 * least)
    low, high = _enclose(spent, 2.0, 1.0)
    assert spent(low) > 2.0 >= spent(high)
    assert low < high
    assert len(set(spent.asked)) <= 16


def test_the_stds_around_it_start_from_where_one_is_told_and_widen_by_squares() -> None:
    above, below = Spent(20.0), Spent(0.1)
    assert _enclose(above, 2.0, 3.0) == pytest.approx((3.0 * 1.1**11, 3.0 * 1.1**13))
    assert above.asked == pytest.approx([3.0 * 1.1**k for k in (0, 1, 3, 7, 15, 14, 13, 11)])
    assert _enclose(below, 2.0, 3.0) == pytest.approx((3.0 / 1.1**64, 3.0 / 1.1**32))
    assert below.asked == pytest.approx([3.0 / 1.1**k for k in (0, 1, 2, 4, 8, 16, 32, 64)])


def test_exactly_the_target_is_enough_noise() -> None:
    for start in (1.0, 1.1):  # asked for at first, and on the way down
        spent = Spent(2.0)
        assert _enclose(spent, 2.0, start) == (1 / 1.1, 1.0)
        assert spent.asked == [start, *([1.0] if start > 1 else []), 1 / 1.1]


def test_noise_has_a_largest_and_a_smallest_size() -> None:
    with pytest.raises(InputError) as error:
        _enclose(lambda std: 3.0 + 1 / std, 2.5, 1.0)
    assert str(error.value) == (
        "epsilon = 2.5: expected more than 3, which other releases cost however large this noise is"
    )
    spent = Spent(2.0 * 9.9e11)
    assert _enclose(spent, 2.0, 1.0)[1] == 1e12
    with pytest.raises(InputError, match=r"expected more than 2\.2, which"):
        _enclose(Spent(2.0 * 1.1e12), 2.0, 1.0)
    low, high = _enclose(lambda std: 0.0, 2.5, 1.0)
    assert 0 < low < 1e-12 <= high < 1.0
    low, high = _enclose(lambda std: 0.0, 2.5, 1.65e-12)
    assert 0.7e-12 < low < 1e-12 <= high < 1.2e-12


@pytest.mark.parametrize("power", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("tolerance", [1e-2, 1e-4])
def test_secants_end_within_the_tolerance_below_the_target(power: float, tolerance: float) -> None:
    """Of a power the secant on logarithmic scales is exact: the third std that is asked for is the last."""
    spent = Spent(5.0, power)
    least = 2.5 ** (1 / power)
    low, high = _search(spent, 2.0, least / 3, 4 * least, tolerance)
    assert spent.asked[:2] == [least / 3, 4 * least]
    assert spent(high) == pytest.approx(2.0 * (1 - tolerance / 2), rel=1e-9)
    assert low == least / 3
    assert len(spent.asked) == 4


def test_what_is_near_enough_is_not_searched() -> None:
    spent = Spent(2.0)
    assert _search(spent, 2.0, 0.5, 1.00005, 1e-4) == (0.5, 1.00005)
    assert len(spent.asked) == 2
    assert _search(spent, 2.0, 0.5, 1.0002, 1e-4) != (0.5, 1.0002)


def test_a_jump_is_searched_by_halving_until_the_last_digits() -> None:
    """Between infinity and what is far below the target no secant exists."""
    asked = []

    def spent(std: float) -> float:
        asked.append(std)
        return math.inf if std < 0.3 else 1e-3

    low, high = _search(spent, 2.0, 0.01, 9.0, 1e-4)
    assert low < 0.3 <= high
    assert 1 < high / low <= 1 + 1e-12
    assert asked[2:4] == pytest.approx([math.sqrt(0.01 * 9.0), math.sqrt(0.01 * math.sqrt(0.01 * 9.0))])
    assert 40 < len(asked) < 50


def test_a_secant_that_leads_outside_is_replaced_by_the_middle() -> None:
    """Of a curve with a bend the line through its two latest points is not always between the stds."""
    for bend in (0.4, 1.3, 5.0):

        def spent(std: float, bend: float = bend) -> float:
            return 2.5 + (bend - std) if std < bend else 2.5 * (bend / std) ** 9

        low, high = _search(spent, 2.0, bend / 7, 30 * bend, 1e-4)
        assert 2.0 * (1 - 1e-4) <= spent(high) <= 2.0 < spent(low)


@pytest.mark.parametrize("target", [0.5, 1.0, 3.0])
def test_a_secant_on_logarithmic_scales(target: float) -> None:
    spent = Spent(7.0, 1.7)
    found = _secant((0.5, spent(0.5)), (4.0, spent(4.0)), target)
    assert spent(found) == pytest.approx(target, rel=1e-12)
    assert _secant((4.0, spent(4.0)), (0.5, spent(0.5)), target) == pytest.approx(found, rel=1e-12)


def test_no_secant_through_what_is_no_ordinary_number() -> None:
    for one in (0.0, math.inf, 1.0):
        assert math.isnan(_secant((1.0, one), (2.0, 1.0), 0.5))
        assert math.isnan(_secant((1.0, 1.0), (2.0, one), 0.5))
    assert _secant((1.0, 1.0), (2.0, 1.0 - 1e-12), 0.5) == pytest.approx(math.exp(50.0))
    assert _secant((1.0, 1.0), (2.0, 1.0 - 1e-12), 2.0) == pytest.approx(math.exp(-50.0))
    assert _secant((1.0, 1.0), (2.0, 0.9), 0.9) == pytest.approx(2.0)


@pytest.mark.parametrize("epsilon", [0.2, 1.0, 9.0])
def test_the_closed_form_of_gaussian_noise(epsilon: float) -> None:
    """mu² is the sum of count (sensitivity / std)²: no more noise than that asks for, to a relative 1e-8."""
    found = _scaled(of_gaussians((1.0, 1.5, 7), (3.0, 2.0, 4)), epsilon, 1e-5)
    exact = math.sqrt(7 * 1.5**2 + 4 * (2 / 3) ** 2) / mu_of(epsilon, 1e-5)
    assert found is not None
    assert exact <= found <= exact * (1 + 1e-8)


def test_the_closed_form_is_of_noise_that_all_scales() -> None:
    fixed = expose(event(Gaussian(5.0), 1.0, 3))
    assert _scaled(lambda std: fixed, 1.0, 1e-5) is None
    assert _scaled(lambda std: expose(event(Gaussian(std)), event(Gaussian(5.0))), 1.0, 1e-5) is None
    assert _scaled(lambda std: expose(event(Gaussian(std)), event(Laplace(5.0))), 1.0, 1e-5) is None
    assert _scaled(lambda std: expose(event(Laplace(std))), 1.0, 1e-5) is None
    assert _scaled(lambda std: expose(event(Gaussian(std), 0.0)), 1.0, 1e-5) is None
    for one, other in ((1.0, 2.0), (2.0, 1.0)):  # of one std alone it is Gaussian
        beside = {one: (event(Laplace(5.0)),)}
        assert _scaled(lambda s, more=beside: expose(event(Gaussian(s)), *more.get(s, ())), 1.0, 1e-5) is None
        assert _scaled(of_gaussians((one, other, 1)), 1.0, 1e-5) is not None


@pytest.mark.parametrize("error", [(0.0, 0.0), (0.25, 2e-6)])
def test_the_samplers_error_is_taken_off_the_target(
    error: tuple[float, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calibration, "sampler_error", lambda exposure: error)
    law_delta = calibration.delta_of_law(1e-5, error)
    found = _scaled(of_gaussians((1.0, 1.0, 1)), 1.0, 1e-5)
    assert found == pytest.approx(1 / mu_of(1.0 - error[0], law_delta), rel=1e-8)


def test_no_closed_form_where_the_samplers_error_is_the_whole_target(monkeypatch: pytest.MonkeyPatch) -> None:
    for error in ((1.0, 0.0), (1.5, 0.0), (0.0, 1.0)):
        monkeypatch.setattr(calibration, "sampler_error", lambda exposure, error=error: error)
        assert _scaled(of_gaussians((1.0, 1.0, 1)), 1.0, 1e-5) is None


def test_steps_of_the_noise_are_counted_where_it_ends() -> None:
    """A step of a fixed share of the std adds to the distance of any std; one that jumps has no closed form."""

    def stepped(jump: float) -> Callable[[float], Exposure]:
        return lambda std: expose(event(Gaussian(std), 1.0 if std < 3 else 1.0 + jump))

    near = 1 / mu_of(1.0, 1e-5)
    assert near > 3
    found = _scaled(stepped(1e-3), 1.0, 1e-5)
    assert found == pytest.approx(near * (1 + 1e-3), rel=1e-8)

    def late(std: float) -> Exposure:  # what it adds begins beyond the first guess
        return expose(event(Gaussian(std), 1.0 if std <= near * (1 + 1e-10) else 1.1))

    assert _scaled(late, 1.0, 1e-5) is None
    assert _scaled(lambda std: expose(event((Gaussian if std < 3 else Laplace)(std))), 1.0, 1e-5) is None


class Hasty(RdpAccountant):
    """Its quick bound is a quarter above its budget."""

    def upper(self, exposure: Exposure, delta: float) -> float:
        return 1.25 * self.budget(exposure, delta).upper


def test_noise_is_searched_by_the_budget_where_the_quick_bound_is_above_it() -> None:
    def exposure_of(std: float) -> Exposure:
        return expose(event(Gaussian(std), 1.0, 10), event(Laplace(20.0)))

    found = [calibrate_noise(exposure_of, epsilon=2.0, delta=1e-5, accountant=a) for a in (Hasty(), RdpAccountant())]
    assert found[0] == pytest.approx(found[1], rel=2e-4)
    assert 2.0 * (1 - 1e-4) <= RdpAccountant().budget(exposure_of(found[0]), 1e-5).upper <= 2.0


@pytest.mark.parametrize("epsilon", [math.inf, math.nan, 0.0])
def test_a_target_is_a_finite_number(epsilon: float) -> None:
    with pytest.raises(InputError, match="expected a finite number > 0"):
        calibrate_noise(of_gaussians((1.0, 1.0, 1)), epsilon=epsilon, delta=1e-5, accountant=RdpAccountant())


def test_the_tight_bound_is_searched_from_where_renyi_is_near() -> None:
    """Fixed releases beside the noise: no closed form, and the budget is used up to its last ten-thousandth."""

    def exposure_of(std: float) -> Exposure:
        return expose(event(Gaussian(std), 1.0, 10), event(Gaussian(20.0)))

    for accountant in (GdpAccountant(), RdpAccountant()):
        std = calibrate_noise(exposure_of, epsilon=2.0, delta=1e-5, accountant=accountant)
        assert 2.0 * (1 - 1e-4) <= accountant.budget(exposure_of(std), 1e-5).upper <= 2.0
