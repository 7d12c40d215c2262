"""Other libraries beside ours: they bracket the same truth where they apply, and stay out where they do not."""

from __future__ import annotations

import pytest

from tests.accountants.exposures import event, expose
from vflpriv.accountants.cross_checks import cross_checks
from vflpriv.accountants.prv import PrvAccountant
from vflpriv.core.releases import Gaussian, Laplace, RandomizedResponse
from vflpriv.core.units import Unit

DELTA = 1e-5
pytestmark = pytest.mark.filterwarnings("ignore")


def test_all_libraries_agree_on_poisson_sampling():
    exposure = expose(event(Gaussian(1.0), 1.0, 1_000, 0.01), event(Gaussian(20.0), 1.0, 3))
    budget, checks = PrvAccountant().budget(exposure, DELTA), cross_checks(exposure, DELTA)
    assert set(checks) == {"dp-accounting PLD", "opacus RDP", "opacus PRV", "prv-accountant"}
    assert all(value >= budget.lower for value in checks.values())
    assert checks["dp-accounting PLD"] == pytest.approx(budget.upper, rel=5e-3)
    assert checks["opacus PRV"] == pytest.approx(budget.upper, abs=0.02)
    assert checks["prv-accountant"] == pytest.approx(budget.upper, abs=0.02)
    assert checks["opacus RDP"] > budget.upper


@pytest.mark.parametrize(
    ("unit", "events"),
    [
        (Unit.RECORD, [event(Gaussian(1.0), 2.0, 1_000, 0.01)]),
        (Unit.ADD_REMOVE, [event(Gaussian(1.0), 1.0, 100, 0.05), event(Laplace(2.0)), event(RandomizedResponse(0.5))]),
    ],
)
def test_dp_accounting_knows_replacement_and_other_noises(unit, events):
    exposure = expose(*events, unit=unit)
    budget, checks = PrvAccountant().budget(exposure, DELTA), cross_checks(exposure, DELTA)
    assert set(checks) == {"dp-accounting PLD"}
    assert budget.lower <= checks["dp-accounting PLD"]
    assert checks["dp-accounting PLD"] == pytest.approx(budget.upper, rel=1e-2)


def test_meshes_that_would_not_fit_are_not_tried():
    exposure = expose(event(Gaussian(0.3), 1.0, 1_000_000, 0.001))
    assert "opacus PRV" not in cross_checks(exposure, DELTA)
    assert "prv-accountant" not in cross_checks(exposure, DELTA)


def test_nothing_to_check_beside_an_infinite_budget():
    assert cross_checks(expose(event(Gaussian(1.0)), unprotected=("labels carry no noise",)), DELTA) == {}
