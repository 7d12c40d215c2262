"""Sums and searches of accountants against numbers that are known on paper: odd counts, huge mu, power laws."""

from __future__ import annotations

import math
from dataclasses import replace
from statistics import NormalDist

import numpy as np
import pytest

from tests.accountants.exposures import event, expose
from vflpriv.accountants import auto
from vflpriv.accountants._merging import Merged, merge
from vflpriv.accountants._sampler import delta_of_law, sampler_error
from vflpriv.accountants.auto import AutoAccountant
from vflpriv.accountants.calibration import _enclose, _scaled, _search, _secant, calibrate_noise
from vflpriv.accountants.curves import _lines, record_epsilons
from vflpriv.accountants.gdp import (
    CENTRAL_LIMIT,
    GdpAccountant,
    approximations,
    central_limit,
    exact_budget,
    unsampled,
)
from vflpriv.accountants.prv import PrvAccountant
from vflpriv.core.budgets import Budget, Tightness, epsilon_of, mu_of
from vflpriv.core.law import Pair
from vflpriv.core.ledger import Event, Exposure, Sampling
from vflpriv.errors import InputError
from vflpriv.laws import Gaussian, Laplace

# Sums ---------------------------------------------------------------------------------------------------------------


def test_squares_of_gaussians_add_and_the_others_are_counted() -> None:
    exposure = expose(event(Gaussian(3.0), 1.7, 5), event(Gaussian(0.7), 0.3, 2), event(Laplace(2.5), 0.9, 7))
    merged = merge(exposure)
    assert merged.mu == pytest.approx(math.sqrt(5 * (1.7 / 3) ** 2 + 2 * (0.3 / 0.7) ** 2))
    assert list(merged.pairs.values()) == [7]
    assert merged.attained
    assert Merged(mu=1.0, pairs={}).attained


@pytest.mark.parametrize(
    "nothing",
    [
        event(Laplace(2.0), 1.0, 0),
        event(Laplace(2.0), 0.0, 3),
        event(Laplace(2.0), 1.0, -1),
        event(Laplace(2.0), -1.0, 3),
        event(Gaussian(2.0), 1.0, 3, rate=0.0),
        event(Gaussian(1e200), 1e-200, 3, rate=0.5),
    ],
)
def test_what_costs_nothing_is_left_out(nothing: Event) -> None:
    merged = merge(expose(nothing))
    assert (merged.mu, merged.pairs, merged.leaks) == (0.0, {}, ())


def test_a_record_that_is_in_every_batch_is_not_sampled() -> None:
    for rate in (1.0, 1.5):
        assert merge(expose(event(Gaussian(3.0), 1.7, 5, rate=rate))) == merge(expose(event(Gaussian(3.0), 1.7, 5)))


def test_one_bound_among_closed_forms_makes_a_bound() -> None:
    """A law of whose neighbours none attains its Gaussian curve, in either order."""

    class Loose(Gaussian):
        def attains(self, count: int) -> bool:
            return False

    for events in ((event(Gaussian(1.0)), event(Loose(1.0))), (event(Loose(1.0)), event(Gaussian(1.0)))):
        merged = merge(expose(*events))
        assert not merged.attained
        budget = exact_budget("gdp", merged, 1e-3)
        assert (budget.lower, budget.mu, budget.method) == (0.0, None, "a bound on the composition of Gaussians")
        assert budget.upper == pytest.approx(epsilon_of(math.sqrt(2), 1e-3))
    attained = exact_budget("gdp", merge(expose(event(Gaussian(1.0)))), 1e-3)
    assert (attained.lower, attained.mu) == (attained.upper, 1.0)
    assert attained.method == "exact composition of Gaussians"


# The closed form ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mu", [1.1e7, 1.7e7, 3e9, 1e20, 1e100])
def test_beyond_what_floats_can_invert_epsilon_is_the_quantile(mu: float) -> None:
    """P(N(mu²/2, mu²) > ε) = δ without the second term, which is below 1e-300 there."""
    budget = exact_budget("gdp", Merged(mu=mu, pairs={}), 1e-3)
    expected = mu * (mu / 2 + NormalDist().inv_cdf(1 - 1e-3))
    assert budget.upper == pytest.approx(expected, rel=1e-12)
    assert budget.upper >= mu * mu / 2


def test_the_two_ways_to_invert_agree_where_they_meet() -> None:
    below, above = (exact_budget("gdp", Merged(mu=mu, pairs={}), 0.3).upper for mu in (9.999999e6, 1.0000001e7))
    assert below < above < below * (1 + 1e-6)


@pytest.mark.parametrize("mu", [2.0, 3e7])
def test_no_gaussian_has_a_pure_epsilon(mu: float) -> None:
    assert exact_budget("gdp", Merged(mu=mu, pairs={}), 0.0).upper == math.inf


def test_sampled_pairs_without_their_sampling() -> None:
    """Five releases at strength 0.3 and three at 0.5: mu² = 0.45 + 0.75."""
    exposure = expose(event(Gaussian(1.0), 0.3, 5, rate=0.1), event(Gaussian(2.0), 1.0, 3, rate=0.2))
    assert unsampled(merge(exposure).pairs, 1e-5) == pytest.approx(epsilon_of(math.sqrt(1.2), 1e-5))


@pytest.mark.parametrize(("rate", "strength", "count"), [(0.3, 0.7, 7), (0.05, 1.3, 11)])
def test_the_central_limit_is_its_formula(rate: float, strength: float, count: int) -> None:
    exposure = expose(event(Gaussian(1.0), strength, count, rate=rate), event(Gaussian(2.0), 1.0, 3))
    mu = math.sqrt(3 / 4 + count * rate**2 * math.expm1(strength**2))
    assert central_limit(exposure, 1e-3) == pytest.approx(epsilon_of(mu, 1e-3))
    assert approximations(exposure, 1e-3) == {CENTRAL_LIMIT: central_limit(exposure, 1e-3)}


def test_other_noise_beside_sampled_gaussians_has_no_central_limit() -> None:
    mixed = expose(event(Gaussian(1.0), 0.3, 5, rate=0.1), event(Laplace(2.0)))
    assert approximations(mixed, 1e-3) == {}
    with pytest.raises(ValueError, match="Gaussian noise in sums only"):
        central_limit(mixed, 1e-3)
    assert "sampled in secret" in str(GdpAccountant().supports(mixed))
    assert GdpAccountant().supports(expose(event(Laplace(2.0)))) == "not all noise is Gaussian"


# The tightest accountant --------------------------------------------------------------------------------------------


class _Fixed:
    """An accountant with one answer."""

    def __init__(self, name: str, upper: float, tightness: Tightness | None, reason: str | None = None) -> None:
        self.name, self.upper, self.reason = name, upper, reason
        if tightness is not None:
            self.tightness = tightness

    def __call__(self) -> _Fixed:
        return self

    def supports(self, exposure: Exposure) -> str | None:
        return self.reason

    def budget(self, exposure: Exposure, delta: float) -> Budget:
        return Budget(
            accountant=self.name, method="fixed", delta=delta, lower=0.0, estimate=self.upper, upper=self.upper
        )


def answering(monkeypatch: pytest.MonkeyPatch, *accountants: _Fixed) -> AutoAccountant:
    monkeypatch.setattr(auto, "available", lambda kind: {a.name: a for a in accountants})
    monkeypatch.setattr(auto, "quick_upper", lambda a, exposure, delta: a.upper)
    return AutoAccountant()


def test_the_least_of_the_tightest_that_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    exact = _Fixed("exact", 1.0, Tightness.EXACT, reason="too many")
    tight = [_Fixed("a", 3.0, Tightness.TIGHT), _Fixed("b", 2.0, Tightness.TIGHT), _Fixed("c", 4.0, Tightness.TIGHT)]
    loose = _Fixed("loose", 1.5, None)
    chosen = answering(monkeypatch, exact, *tight, loose)
    exposure = expose(event(Gaussian(1.0)))
    budget = chosen.budget(exposure, 1e-3)
    assert (budget.upper, budget.accountant, budget.method) == (2.0, "auto", "b: fixed (too many)")
    assert chosen.upper(exposure, 1e-3) == 2.0
    assert chosen.supports(exposure) is None
    alone = answering(monkeypatch, tight[0])
    assert alone.budget(exposure, 1e-3).method == "a: fixed"


def test_where_none_answers_all_reasons_are_given(monkeypatch: pytest.MonkeyPatch) -> None:
    reasons = [("a", Tightness.EXACT, "x"), ("b", Tightness.TIGHT, "y"), ("c", Tightness.LOOSE, "x")]
    chosen = answering(monkeypatch, *(_Fixed(name, 1.0, tightness, reason) for name, tightness, reason in reasons))
    assert chosen.supports(expose(event(Gaussian(1.0)))) == "x; y"
    unknown = replace(event(Gaussian(1.0)), sampling=Sampling("by moonlight", 0.1))
    assert "by moonlight" in str(chosen.supports(expose(unknown)))
    assert chosen.supports(expose(not_applicable="nothing to protect")) == "not applicable: nothing to protect"


# Calibration --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("power", [0.5, 1.0, 2.5])
@pytest.mark.parametrize(("x", "y", "target"), [(2.0, 5.0, 0.3), (5.0, 2.0, 0.3), (0.1, 0.3, 17.0), (0.2, 0.3, 0.9)])
def test_a_secant_meets_a_power_law(power: float, x: float, y: float, target: float) -> None:
    met = _secant((x, 3 * x**-power), (y, 3 * y**-power), target)
    assert met == pytest.approx((3 / target) ** (1 / power))


@pytest.mark.parametrize("pair", [(0.0, 1.0), (1.0, 0.0), (math.inf, 1.0), (1.0, math.inf), (0.4, 0.4)])
def test_a_secant_through_nothing_meets_nothing(pair: tuple[float, float]) -> None:
    assert math.isnan(_secant((2.0, pair[0]), (5.0, pair[1]), 0.3))


def test_a_secant_that_leads_far_stays_a_number() -> None:
    assert _secant((2.0, 1.0), (3.0, 0.999999), 1e-3) == pytest.approx(2.0 * math.exp(50.0))
    assert _secant((2.0, 1.0), (3.0, 0.999999), 1e3) == pytest.approx(2.0 * math.exp(-50.0))


@pytest.mark.parametrize(
    ("epsilon", "start", "low", "high"),
    [
        (1 / 1.5, 1.0, 1.1**3, 1.1**7 / 1.1**2),
        (1.0, 1.0, 1 / 1.1, 1.0),
        (0.5, 3.0, 3.0 / 1.1**8, 3.0 / 1.1**4),
    ],
)
def test_stds_are_enclosed_by_growing_steps(epsilon: float, start: float, low: float, high: float) -> None:
    assert _enclose(lambda std: 1 / std, epsilon, start) == pytest.approx((low, high))


def test_what_no_noise_can_reach_is_refused_and_what_needs_none_has_the_least() -> None:
    with pytest.raises(InputError, match=r"more than 2, which other releases cost however large"):
        _enclose(lambda std: 2.0, 0.3, 1.0)
    low, high = _enclose(lambda std: 0.3, 0.3, 1.0)
    assert low < 1e-12 < high


@pytest.mark.parametrize("tolerance", [1e-2, 1e-4])
def test_a_search_of_a_power_law_takes_one_secant(tolerance: float) -> None:
    asked: list[float] = []

    def spent(std: float) -> float:
        asked.append(std)
        return 3 / std**1.7

    low, high = _search(spent, 0.3, 1.0, 50.0, tolerance)
    assert 0.3 * (1 - tolerance) <= 3 / high**1.7 <= 0.3 < 3 / low**1.7
    assert 3 / high**1.7 == pytest.approx(0.3 * (1 - tolerance / 2), rel=1e-9)
    assert len(asked) == 3


def test_a_search_of_a_step_narrows_to_the_step() -> None:
    """No secant helps where the cost jumps over the target: halving finds the place to the last digits."""
    asked: list[float] = []

    def spent(std: float) -> float:
        asked.append(std)
        return 5.0 if std < math.pi else 0.1

    low, high = _search(spent, 0.3, 1.0, 50.0, 1e-4)
    assert low < math.pi <= high
    assert high / low - 1 < 1e-4
    assert len(asked) <= 62


def test_gaussian_noise_that_scales_is_calibrated_in_closed_form() -> None:
    std = _scaled(lambda s: expose(event(Gaussian(s), 1.7, 3)), 1.3, 1e-5)
    assert std is not None
    assert 0 < std / (1.7 * math.sqrt(3) / mu_of(1.3, 1e-5)) - 1 < 1.5e-9


def test_what_does_not_scale_has_no_closed_form() -> None:
    fixed = event(Gaussian(2.0))
    for exposure_of in (
        lambda s: expose(event(Gaussian(s)), fixed),
        lambda s: expose(event(Gaussian(s)), event(Laplace(2.0))),
        lambda s: expose(),
        lambda s: expose(event(Gaussian(s)), *([event(Laplace(2.0))] if s == 2 else [])),
        lambda s: expose(event(Gaussian(s)), *([] if s in (1, 2) else [event(Laplace(2.0))])),
    ):
        assert _scaled(exposure_of, 1.3, 1e-5) is None  # type: ignore[no-untyped-call]


@pytest.mark.parametrize("entries", [1, 1 << 24])
def test_the_closed_form_counts_the_grid_and_the_sampler(entries: int) -> None:
    """The mu that is left for the law is met to a hundred millionth, on the safe side."""

    def exposure_of(std: float) -> Exposure:
        return expose(event(Gaussian(std).on_grid(1.7, entries), 1.7, 60))

    std = _scaled(exposure_of, 1.3, 1e-5)
    assert std is not None
    error = sampler_error(exposure_of(1.0))
    target = mu_of(1.3 - error[0], delta_of_law(1e-5, error))
    assert target * (1 - 1e-8) <= merge(exposure_of(std)).mu <= target < mu_of(1.3, 1e-5)
    # No more noise than the sampler leaves room for.
    assert _scaled(exposure_of, 0.9 * error[0], 1e-5) is None
    assert _scaled(exposure_of, error[0], 1e-5) is None
    missed = error[1] * math.exp(error[0] / 2)
    assert _scaled(exposure_of, 1.3, 0.999 * missed) is None


def test_steps_that_jump_with_the_noise_have_no_closed_form() -> None:
    target = mu_of(1.0, 1e-3)
    near = 1.0 / target

    def jumping(at: float, below: float, above: float) -> float | None:
        return _scaled(lambda s: expose(event(Gaussian(s), below if s < at * near else above)), 1.0, 1e-3)

    assert jumping(0.85, 1.0, 0.9) == pytest.approx(0.9 * near, rel=1e-8)
    assert jumping(0.95, 1.0, 0.9) is None, "nine tenths of the noise are too little where it jumps back"
    assert jumping(1.0 + 5e-10, 1.0, 0.9) is None, "and ten too much where it jumps on the way"
    assert jumping(1.0 + 5e-10, 1.0, 1.0 - 0.8e-8) is not None
    assert jumping(1.0 + 5e-10, 1.0, 1.0 - 1.2e-8) is None
    # Another noise that appears at the very end is no Gaussian.
    late = expose(event(Gaussian(near * (1 + 1e-9))), event(Laplace(2.0)))
    assert _scaled(lambda s: late if s > near else expose(event(Gaussian(s))), 1.0, 1e-3) is None


@pytest.mark.parametrize(
    ("epsilon", "delta", "field"), [(math.inf, 1e-3, "epsilon"), (0.0, 1e-3, "epsilon"), (1.0, 1.0, "delta")]
)
def test_targets_are_finite_and_positive(epsilon: float, delta: float, field: str) -> None:
    with pytest.raises(InputError, match=field):
        calibrate_noise(lambda s: expose(event(Gaussian(s))), epsilon=epsilon, delta=delta, accountant=GdpAccountant())


def test_calibrated_noise_of_secret_batches_spends_the_budget_and_no_more() -> None:
    accountant = PrvAccountant()

    def exposure_of(std: float) -> Exposure:
        return expose(event(Gaussian(std), 0.7, 30, rate=0.1), event(Laplace(30.0)))

    std = calibrate_noise(exposure_of, epsilon=1.1, delta=1e-4, accountant=accountant)
    assert 1.1 * (1 - 2e-4) <= accountant.budget(exposure_of(std), 1e-4).upper <= 1.1


class _Coarse(GdpAccountant):
    """Its quick bound is three percent above its budget."""

    def upper(self, exposure: Exposure, delta: float) -> float:
        return 1.03 * self.budget(exposure, delta).upper


def test_the_budget_decides_where_the_quick_bound_lies_above_it() -> None:
    """In closed form: mu² of 0.9 falls by the 0.25 of a fixed release, and the noise has what is left."""

    def exposure_of(std: float) -> Exposure:
        return expose(event(Gaussian(std), 1.7, 3), event(Gaussian(2.0)))

    for accountant in (GdpAccountant(), _Coarse()):
        std = calibrate_noise(exposure_of, epsilon=epsilon_of(0.9, 1e-3), delta=1e-3, accountant=accountant)
        assert std == pytest.approx(1.7 * math.sqrt(3 / (0.81 - 0.25)), rel=3e-4)
        assert accountant.budget(exposure_of(std), 1e-3).upper <= epsilon_of(0.9, 1e-3)


# Curves -------------------------------------------------------------------------------------------------------------


def test_a_steep_line_adds_nothing_and_raises_nothing() -> None:
    betas = _lines(np.array([5000.0, 1.0, math.inf]), np.array([1e-9, 0.1, 0.0]), np.array([0.0, 0.05, 1.0]))
    expected = [1 - 1e-9, max(1 - 0.1 - math.e * 0.05, (1 - 0.1 - 0.05) / math.e), 0.0]
    assert betas == pytest.approx(expected)


def test_records_have_an_epsilon_of_their_own_only_under_gaussian_noise_alone() -> None:
    exposure = replace(expose(event(Gaussian(1.0))), squares=np.array([1.0, 0.25]))
    assert record_epsilons(exposure, 1e-3) == pytest.approx([epsilon_of(1.0, 1e-3), epsilon_of(0.5, 1e-3)])
    assert record_epsilons(replace(exposure, unprotected=("rows",)), 1e-3) is None
    assert record_epsilons(replace(exposure, squares=None), 1e-3) is None


def test_pairs_of_releases_are_what_the_laws_say() -> None:
    (pair,) = merge(expose(event(Laplace(2.0), 3.0, 4))).pairs
    assert isinstance(pair, Pair)
    assert pair.pure_cost == pytest.approx(1.5)
