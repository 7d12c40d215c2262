"""Numbers side by side: ε beside ε, bounds that say something, and the cause of a verdict in its words."""

from __future__ import annotations

import math

import pytest

from tests.report.examples import dpzv_device_claim
from tests.report.rows import budget, claim, measured, one_run
from vflpriv.core.claims import Verdict
from vflpriv.render.first_page import comparable

BROKEN = ("sensitivity of scalar", "noise of scalar")


def violated(**fields: object) -> object:
    return claim("c", budget("device", None), Verdict.VIOLATED, **fields)


def test_measured_epsilon_stands_beside_the_claimed_one() -> None:
    refuted = dpzv_device_claim()
    assert comparable.claimed(refuted) == ("ε = 1.00", "μ = 0.388")
    assert comparable.measured(refuted) == ("μ ≥ 0.750", "ε ≥ 0.35")


def test_the_figure_that_refutes_comes_first_and_epsilon_of_any_mechanism_elsewhere() -> None:
    row = measured("worst-case", 0.75, (131, 128), epsilon=0.4)
    assert comparable.measured(violated(measurements=(row,))) == ("μ ≥ 0.750", "ε ≥ 0.40")
    in_epsilon = row.model_copy(update={"measure": "ε", "figure": 1.4, "epsilon": 1.4})
    assert comparable.measured(violated(measurements=(in_epsilon,))) == ("ε ≥ 1.40", "μ ≥ 0.750")
    kept = row.model_copy(update={"refutes": False})
    assert comparable.measured(violated(measurements=(kept,))) == ("ε ≥ 0.40", "μ ≥ 0.750")


def test_what_holds_under_gaussian_noise_alone_says_so_and_exact_figures_are_equal() -> None:
    row = measured("worst-case", 0.75, (131, 128), epsilon=0.4, assumes_gaussian=True)
    assert comparable.measured(violated(measurements=(row,))) == ("μ ≥ 0.750, if Gaussian", "ε ≥ 0.40")
    exact = row.model_copy(update={"exact": True, "assumes_gaussian": False, "epsilon": None})
    assert comparable.measured(violated(measurements=(exact,))) == ("μ = 0.750", "")


def test_the_test_that_refutes_is_shown_even_if_the_strongest_canary_does_not() -> None:
    rows = (measured("crafted", 0.9, (100, 100)), measured("worst-case", 0.1, (190, 190)))
    assert comparable.measured(violated(measurements=rows)).main == "μ ≥ 0.900"
    once = claim("c", budget("device", None), Verdict.VIOLATED, measurements=(*rows[1:], one_run(0.62)))
    assert "0.620" in comparable.measured(once).line


@pytest.mark.parametrize(
    ("upper", "shown"),
    [(2.9, "ε ≤ 2.90"), (50.0, "ε ≤ 50.0"), (50.1, "no useful bound"), (math.inf, "no useful bound")],
)
def test_a_bound_above_fifty_is_of_no_use(upper: float, shown: str) -> None:
    assert comparable.accounted(budget("device", 0.9, epsilon_upper=upper)).main == shown
    assert comparable.accounted(budget("server", None, not_applicable="it holds them")).main == "n/a"


def test_what_is_broken_stands_in_the_verdict() -> None:
    broken = violated(broken=BROKEN)
    assert comparable.verdict_words(broken) == "violated · sensitivity broken"
    assert comparable.measured(broken).main == "–"
    # A measurement that refutes the claim says more than a premise.
    measurement = dpzv_device_claim().model_copy(update={"broken": BROKEN})
    assert comparable.verdict_words(measurement) == "violated"
    assert comparable.verdict_words(claim("c", budget("device", 0.3), Verdict.CONSISTENT)) == "consistent"


def test_nothing_is_called_measured_that_was_not() -> None:
    assert comparable.measured(claim("c", budget("device", 0.3), Verdict.UNMEASURED)).main == "not measured"
    # A test of another audit, which has no row of its own.
    assert comparable.measured(violated()).main == "refuted"
