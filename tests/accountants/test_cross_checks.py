"""Other libraries beside ours: they bracket the same truth where they apply, and say why where they do not."""

from __future__ import annotations

import pytest

from tests.accountants.exposures import event, expose
from vflpriv.accountants import cross_checks as module
from vflpriv.accountants.cross_checks import LIBRARIES, CrossCheck, cross_checks
from vflpriv.accountants.prv import PrvAccountant
from vflpriv.core.ledger import Exposure
from vflpriv.core.units import Unit
from vflpriv.laws import Gaussian, Laplace, RandomizedResponse

DELTA = 1e-5
pytestmark = pytest.mark.filterwarnings("ignore")


def answers(exposure: Exposure) -> dict[str, CrossCheck]:
    return {check.library: check for check in cross_checks(exposure, DELTA)}


def test_all_libraries_agree_on_poisson_sampling():
    exposure = expose(event(Gaussian(1.0), 1.0, 1_000, 0.01), event(Gaussian(20.0), 1.0, 3))
    budget, checks = PrvAccountant().budget(exposure, DELTA), answers(exposure)
    assert set(checks) == set(LIBRARIES)
    assert not any(check.is_too_low(budget.lower) for check in checks.values())
    epsilons = {name: check.epsilon for name, check in checks.items()}
    assert all(value >= budget.lower for value in epsilons.values())
    assert epsilons["dp-accounting PLD"] == pytest.approx(budget.upper, rel=5e-3)
    assert epsilons["opacus PRV"] == pytest.approx(budget.upper, abs=0.02)
    assert epsilons["prv-accountant"] == pytest.approx(budget.upper, abs=0.02)
    assert epsilons["opacus RDP"] > budget.upper
    assert checks["opacus RDP"].note == "orders up to 63: never below 0.103 at this δ"
    assert (checks["prv-accountant"].error, checks["opacus RDP"].error) == (0.01, 0.0)


@pytest.mark.parametrize(
    ("unit", "events", "note", "refusal"),
    [
        (
            Unit.RECORD,
            [event(Gaussian(1.0), 2.0, 1_000, 0.01)],
            "its RDP accountant would not double the sensitivity",
            "does not know sampled batches in which a record is replaced",
        ),
        (
            Unit.ADD_REMOVE,
            [event(Gaussian(1.0), 1.0, 100, 0.05), event(Laplace(2.0)), event(RandomizedResponse(0.5))],
            "its accountant ignores the count of randomised responses; composed here",
            "does not know Laplace noise",
        ),
    ],
)
def test_dp_accounting_knows_replacement_and_other_noises(unit, events, note, refusal):
    exposure = expose(*events, unit=unit)
    budget, checks = PrvAccountant().budget(exposure, DELTA), answers(exposure)
    found = checks.pop("dp-accounting PLD")
    assert budget.lower <= found.epsilon
    assert found.epsilon == pytest.approx(budget.upper, rel=1e-2)
    assert found.note == note
    assert {check.refusal for check in checks.values()} == {refusal}
    assert {check.epsilon for check in checks.values()} == {None}


def test_meshes_that_would_not_fit_are_not_tried():
    checks = answers(expose(event(Gaussian(0.3), 1.0, 1_000_000, 0.001)))
    for name in ("opacus PRV", "prv-accountant"):
        assert checks[name].epsilon is None
        assert checks[name].refusal.startswith("needs too much memory: a mesh of ")


def test_a_figure_below_the_truth_is_marked():
    """prv-accountant on 1e5 compositions: its upper bound lies 0.1 below the truth, ten times its stated error."""
    exposure = expose(event(Gaussian(5.0), 1.0, 100_000, 0.1))
    budget = PrvAccountant().budget(exposure, DELTA)
    assert budget.lower == pytest.approx(46.836, abs=0.05)
    wrong = CrossCheck(library="prv-accountant", epsilon=46.73, error=0.01)
    assert wrong.is_too_low(budget.lower)
    assert not CrossCheck(library="prv-accountant", epsilon=46.83, error=0.01).is_too_low(46.836)
    assert not CrossCheck(library="prv-accountant", refusal="is not installed").is_too_low(46.836)


def test_a_library_that_fails_is_named_and_ends_nothing(monkeypatch):
    def broken(merged, delta):
        raise ZeroDivisionError("by\nzero")

    def missing(merged, delta):
        raise ModuleNotFoundError("opacus")

    known = module.LIBRARIES
    monkeypatch.setitem(known, "opacus PRV", (broken, *known["opacus PRV"][1:]))
    monkeypatch.setitem(known, "opacus RDP", (missing, *known["opacus RDP"][1:]))
    checks = answers(expose(event(Gaussian(1.0))))
    assert checks["opacus PRV"].refusal == "failed (ZeroDivisionError: by zero)"
    assert checks["opacus RDP"].refusal == "is not installed: pip install 'vflpriv[cross-check]'"
    assert checks["dp-accounting PLD"].epsilon is not None
    pure = cross_checks(expose(event(Laplace(2.0))), 0.0)
    assert {check.refusal for check in pure} == {"needs δ between 0 and 1, not 0"}


def test_nothing_to_check_beside_an_infinite_budget():
    assert cross_checks(expose(event(Gaussian(1.0)), unprotected=("labels carry no noise",)), DELTA) == ()
