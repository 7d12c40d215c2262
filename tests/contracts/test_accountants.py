"""What every accountant must keep, whichever way it counts."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.accountants.exposures import event, expose
from vflpriv.accountants.gdp import GdpAccountant
from vflpriv.common.registry import available
from vflpriv.core.budgets import Tightness
from vflpriv.core.ledger import Event, Sampling
from vflpriv.core.units import Unit
from vflpriv.laws import Exact, Gaussian, Laplace, RandomizedResponse

ACCOUNTANTS = available("accountant")
pytestmark = pytest.mark.parametrize("name", sorted(ACCOUNTANTS))

# A grid changes with its exposure, so bounds may move against the trend by its error.
SLACK = 1 + 2e-3
STDS, COUNTS, RATES = st.floats(0.4, 20), st.integers(1, 3000), st.floats(0.001, 0.9)
DELTAS = st.sampled_from([1e-9, 1e-6, 1e-5, 1e-3, 1e-2])
UNITS = st.sampled_from(list(Unit))


def upper(name, exposure, delta=1e-5):
    """The upper bound, or None where the accountant says that it cannot tell."""
    accountant = ACCOUNTANTS[name]()
    if accountant.supports(exposure) is not None:
        with pytest.raises(ValueError, match="Expected an exposure that can be accounted for"):
            accountant.budget(exposure, delta)
        return None
    budget = accountant.budget(exposure, delta)
    assert budget.accountant == name
    assert budget.delta == delta
    assert 0 <= budget.lower <= budget.estimate <= budget.upper
    assert not math.isnan(budget.lower + budget.upper)
    return budget.upper


def rises(low, high):
    """Whether a bound did not fall, where there are both."""
    return low is None or high is None or low <= high * SLACK + 1e-9


def test_it_says_what_it_is(name):
    assert ACCOUNTANTS[name].name == name
    assert ACCOUNTANTS[name].summary
    assert isinstance(ACCOUNTANTS[name].tightness, Tightness)


@given(std=STDS, factor=st.floats(1.05, 5), count=COUNTS, rate=RATES, unit=UNITS, delta=DELTAS)
@settings(max_examples=8)
def test_more_noise_costs_less(name, std, factor, count, rate, unit, delta):
    for sampled in (None, rate):
        less, more = (expose(event(Gaussian(s), 1.0, count, sampled), unit=unit) for s in (std, factor * std))
        assert rises(upper(name, more, delta), upper(name, less, delta))


@given(std=STDS, count=COUNTS, more=st.integers(1, 3000), rate=RATES, unit=UNITS)
@settings(max_examples=8)
def test_more_releases_cost_more(name, std, count, more, rate, unit):
    few, many = (expose(event(Gaussian(std), 1.0, n, rate), unit=unit) for n in (count, count + more))
    assert rises(upper(name, few), upper(name, many))
    few, many = (expose(event(Gaussian(std), 1.0, n), unit=unit) for n in (count, count + more))
    assert rises(upper(name, few), upper(name, many))


@given(std=STDS, count=COUNTS, rate=RATES, factor=st.floats(0.1, 0.95), unit=UNITS)
@settings(max_examples=8)
def test_rarer_sampling_costs_less_than_none(name, std, count, rate, factor, unit):
    rarer, rare, always = (
        upper(name, expose(event(Gaussian(std), 1.0, count, q), unit=unit)) for q in (factor * rate, rate, None)
    )
    assert rises(rarer, rare)
    assert rises(rare, always)


@given(std=STDS, count=COUNTS, rate=RATES, unit=UNITS, delta=DELTAS)
@settings(max_examples=8)
def test_epsilon_falls_as_delta_grows(name, std, count, rate, unit, delta):
    exposure = expose(event(Gaussian(std), 1.0, count, rate), event(Laplace(10 * std)), unit=unit)
    assert rises(upper(name, exposure, 10 * delta), upper(name, exposure, delta))


@pytest.mark.parametrize("noise", [Gaussian(2.0), Laplace(5.0), RandomizedResponse(0.3)], ids=str)
@pytest.mark.parametrize("rate", [None, 0.1])
def test_n_releases_cost_the_same_as_one_with_count_n(name, noise, rate):
    one = upper(name, expose(event(noise, 1.0, 12, rate)))
    split = upper(name, expose(*(event(noise, 1.0, 1, rate) for _ in range(12))))
    assert one == (None if split is None else pytest.approx(split, rel=1e-12))
    shuffled = upper(name, expose(event(noise, 1.0, 5, rate), event(Gaussian(9.0)), event(noise, 1.0, 7, rate)))
    sorted_ = upper(name, expose(event(Gaussian(9.0)), event(noise, 1.0, 12, rate)))
    assert shuffled == (None if sorted_ is None else pytest.approx(sorted_, rel=1e-9))


@pytest.mark.parametrize("noise", [Gaussian(2.0), Laplace(5.0)], ids=str)
def test_only_the_ratio_of_noise_and_sensitivity_counts(name, noise):
    scaled = Gaussian(200.0) if isinstance(noise, Gaussian) else Laplace(500.0)
    one, hundred = upper(name, expose(event(noise, 1.0, 5))), upper(name, expose(event(scaled, 100.0, 5)))
    assert one == (None if hundred is None else pytest.approx(hundred, rel=1e-9))


@given(std=STDS, count=COUNTS, delta=DELTAS)
@settings(max_examples=10)
def test_never_below_the_exact_value(name, std, count, delta):
    exposure = expose(event(Gaussian(std), 1.0, count), event(Gaussian(2 * std), 1.0, count))
    exact = GdpAccountant().budget(exposure, delta).upper
    assert upper(name, exposure, delta) >= exact * (1 - 1e-12)


@given(
    std=st.floats(1e-3, 1e3),
    scale=st.floats(1e-2, 1e3),
    coin=st.floats(1e-6, 50),
    count=st.integers(1, 10**6),
    rate=st.floats(1e-6, 1),
    unit=UNITS,
    delta=st.floats(1e-12, 0.5),
)
@settings(max_examples=12)
def test_extremes_are_numbers(name, std, scale, coin, count, rate, unit, delta):
    upper(name, expose(event(Gaussian(std), 1.0, count, rate), unit=unit), delta)
    upper(name, expose(event(Laplace(scale), 1.0, 10, rate), event(RandomizedResponse(coin), 1.0, 3), unit=unit), delta)


def test_unprotected_messages_make_epsilon_infinite(name):
    leak = "gradient (of the loss) carries no noise"
    for exposure in (
        expose(event(Gaussian(1.0)), unprotected=(leak,), assumptions=("assumed",)),
        expose(event(Gaussian(1.0), 1.0, 10, 0.1), unprotected=(leak,), assumptions=("assumed",)),
    ):
        budget = ACCOUNTANTS[name]().budget(exposure, 1e-5)
        assert budget.lower == budget.estimate == budget.upper == math.inf
        assert budget.assumptions[0] == "assumed"
        assert any(leak in note for note in budget.assumptions)


@pytest.mark.parametrize("noise", [Exact(), Gaussian(0.0), Laplace(0.0), RandomizedResponse(math.inf)], ids=str)
def test_noise_that_bounds_nothing_makes_epsilon_infinite(name, noise):
    budget = ACCOUNTANTS[name]().budget(expose(event(noise)), 1e-5)
    assert budget.upper == math.inf
    assert any("message" in note for note in budget.assumptions)


def test_unbounded_sensitivity_makes_epsilon_infinite(name):
    assert upper(name, expose(event(Gaussian(1.0), math.inf))) == math.inf


def test_nothing_seen_costs_nothing(name):
    for exposure in (expose(), expose(event(Gaussian(1.0), 0.0, 10)), expose(event(Gaussian(1.0), 1.0, 0))):
        assert upper(name, exposure) == 0


def test_assumptions_of_the_exposure_come_first(name):
    budget = ACCOUNTANTS[name]().budget(expose(event(Gaussian(1.0)), assumptions=("one", "two")), 1e-5)
    assert budget.assumptions[:2] == ("one", "two")


def test_a_question_that_does_not_arise_is_refused(name):
    reason = ACCOUNTANTS[name]().supports(expose(not_applicable="the server holds the labels"))
    assert reason == "not applicable: the server holds the labels"
    assert upper(name, expose(not_applicable="the server holds the labels")) is None


def test_sampling_without_a_theorem_is_refused(name):
    fixed = Event(kind="m", noise=Gaussian(1.0), sensitivity=1.0, count=5, sampling=Sampling("shuffled", 0.1))
    assert "shuffled" in ACCOUNTANTS[name]().supports(expose(fixed))
    assert upper(name, expose(fixed)) is None


@pytest.mark.parametrize("delta", [1.0, -1e-5, math.nan])
def test_delta_outside_0_and_1_is_refused(name, delta):
    with pytest.raises(ValueError, match="Expected 0 <= delta < 1"):
        ACCOUNTANTS[name]().budget(expose(event(Gaussian(1.0))), delta)


@given(std=STDS, count=COUNTS, rate=RATES, unit=UNITS, delta=DELTAS)
@settings(max_examples=10)
def test_rdp_is_never_below_prv_nor_auto(name, std, count, rate, unit, delta):
    exposure = expose(event(Gaussian(std), 1.0, count, rate), event(Gaussian(3 * std)), unit=unit)
    found, rdp = upper(name, exposure, delta), upper("rdp", exposure, delta)
    assert found is None or found <= rdp
