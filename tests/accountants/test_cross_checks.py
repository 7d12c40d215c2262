"""Other libraries beside ours: they bracket the same truth where they apply, and say why where they do not."""

from __future__ import annotations

import math

import pytest

from tests.accountants.exposures import event, expose
from vflpriv.accountants import cross_checks as module
from vflpriv.accountants._merging import Merged
from vflpriv.accountants.cross_checks import LIBRARIES, CrossCheck, cross_checks, mesh_fits
from vflpriv.accountants.prv import PrvAccountant
from vflpriv.accountants.rdp import Bound
from vflpriv.core.ledger import Exposure
from vflpriv.core.units import Unit
from vflpriv.laws import Gaussian, Laplace, RandomizedResponse
from vflpriv.laws.laplace import LaplacePair
from vflpriv.laws.pairs import Diluted, PurePair

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


class _Interval(LaplacePair):
    """Keeps the interval at which dp-accounting was asked, and says how far its losses reach."""

    asked: list[float] = []  # noqa: RUF012 (one list for all)
    far = 0.5

    def in_dp_accounting(self, interval):
        self.asked.append(interval)
        return super().in_dp_accounting(interval)

    def reach(self, tail):
        assert tail == math.exp(-50)
        return -self.far, 2 * self.far


@pytest.mark.parametrize(
    ("bound", "interval"),
    [
        (Bound(2.0, 5.0), math.sqrt(12e-3 * 2.0 / (5.0 * 7))),
        (Bound(2.0, math.inf), math.sqrt(12e-3 * 2.0 / (2.0 * 7))),
        (Bound(0.0, 5.0), math.sqrt(12e-9 / (5.0 * 7))),
        (Bound(900.0, 5.0), 0.05),
    ],
)
def test_dp_accounting_is_asked_on_a_grid_with_an_error_of_a_thousandth(monkeypatch, bound, interval):
    monkeypatch.setattr(module, "renyi_bound", lambda merged, delta: bound)
    monkeypatch.setattr(_Interval, "far", 0.5 * min(1.0, interval * 1000))
    _Interval.asked.clear()
    merged = Merged(mu=0.0, pairs={_Interval(0.5): 4, _Interval(0.25): 3})
    module._dp_accounting(merged, 0.1)
    assert _Interval.asked == pytest.approx([interval, interval], rel=1e-9)


def test_dp_accounting_is_not_asked_for_more_points_than_it_can_loop_over(monkeypatch):
    monkeypatch.setattr(module, "renyi_bound", lambda merged, delta: Bound(900.0, 5.0))
    merged = Merged(mu=0.0, pairs={_Interval(0.5): 4, _Interval(0.25): 3})
    # Two pairs of three times `far` at a step of 0.05.
    for most, refused in ((2 * 1.5 / 0.05 + 1e-6, False), (2 * 1.5 / 0.05 - 1e-6, True)):
        monkeypatch.setattr(module, "MAX_PER_POINT", most)
        if refused:
            with pytest.raises(module._RefusedError, match="needs too much time: a mesh of 60 points"):
                module._dp_accounting(merged, 0.1)
        else:
            ours = PrvAccountant().budget(expose(event(Laplace(2.0), 1.0, 4), event(Laplace(4.0), 1.0, 3)), 0.1)
            assert module._dp_accounting(merged, 0.1) == pytest.approx(ours.upper, rel=0.05)
    with pytest.raises(module._RefusedError, match="does not know"):
        module._dp_accounting(Merged(mu=0.0, pairs={Diluted(LaplacePair(0.1), 0.1): 1}), 0.1)


def test_a_mesh_is_counted_before_it_is_made(monkeypatch):
    """Gopi, Lee and Wutschitz: 2 (ε at δ/4000 + 3) over 0.01 / √(T/2 · log 12000/δ)."""
    asked = []
    monkeypatch.setattr(module, "renyi_bound", lambda merged, delta: asked.append(delta) or Bound(2.0, 5.0))
    exposure = expose(event(Gaussian(1.0), 1.0, 30, 0.1), event(Gaussian(2.0), 1.0, 20, 0.1))
    points = 2 * 5.0 / 0.01 * math.sqrt(25 * math.log(12_000 / 1e-3))
    assert module._mesh_points(module.merge(exposure), 1e-3) == pytest.approx(points, rel=1e-12)
    assert asked == [pytest.approx(1e-3 / 4000)]
    assert mesh_fits(exposure, 1e-3, most=math.ceil(points))
    assert not mesh_fits(exposure, 1e-3, most=math.floor(points))
    assert not mesh_fits(expose(*exposure.events, unprotected=("x",)), 1e-3)
    for most, refused in ((points + 1e-6, False), (points - 1e-6, True)):
        monkeypatch.setattr(module, "MAX_MESH", most)
        if refused:
            with pytest.raises(module._RefusedError, match="needs too much memory: a mesh of"):
                module._check_mesh(module.merge(exposure), 1e-3)
        else:
            module._check_mesh(module.merge(exposure), 1e-3)


def test_known_faults_are_named_where_they_concern_a_figure(monkeypatch):
    merged = Merged(mu=0.0, pairs={PurePair(0.5): 1, LaplacePair(0.5): 2, PurePair(0.7): 1})
    for epsilon, said in ((745.0, False), (745.1, True)):
        monkeypatch.setattr(module, "renyi_bound", lambda merged, delta, epsilon=epsilon: Bound(epsilon, 5.0))
        note = module._dp_accounting_note(merged, 1e-3)
        assert note == PurePair.library_note + ("; above ε = 745 it drops a term" if said else "")
    # Rényi divergence 0 at the order 63, converted: log(1 - 1/63) - log(63 δ) / 62.
    assert module._opacus_rdp_note(merged, 1e-9) == "orders up to 63: never below 0.251 at this δ"
    edge = math.exp(62 * math.log1p(-1 / 63)) / 63
    assert module._opacus_rdp_note(merged, edge * 1.001) == ""
    assert module._opacus_rdp_note(merged, edge * 0.98) != ""
    assert math.log1p(-1 / 63) - math.log(63e-9) / 62 == pytest.approx(0.2514, abs=1e-3)


def test_rows_of_other_libraries_are_noise_rate_and_count():
    exposure = expose(event(Gaussian(2.0), 0.5, 30, 0.1), event(Gaussian(3.0), 1.0, 4))
    rows = module._gaussian_rows(module.merge(exposure))
    assert sorted(rows) == [(pytest.approx(1.5), 1.0, 1), (4.0, 0.1, 30)]
    with pytest.raises(module._RefusedError, match="does not know"):
        module._gaussian_rows(module.merge(expose(event(Laplace(2.0)))))


@pytest.mark.parametrize(
    ("epsilon", "low"), [(0.99, False), (0.9899, True), (0.9899985, True), (0.9899995, False), (None, False)]
)
def test_a_figure_is_too_low_beyond_its_error_and_rounding(epsilon, low):
    assert CrossCheck(library="x", epsilon=epsilon, error=0.01).is_too_low(1.0) is low
    assert CrossCheck(library="x", epsilon=1.0).error == 0.0


@pytest.mark.parametrize("delta", [0.0, 1.0])
def test_no_library_is_asked_at_a_delta_that_is_none(delta):
    checks = cross_checks(expose(event(Gaussian(1.0))), delta)
    assert {check.refusal for check in checks} == {f"needs δ between 0 and 1, not {delta:g}"}
    assert cross_checks(expose(not_applicable="nothing"), 1e-3) == cross_checks(expose(), 1e-3) == ()


def test_a_long_failure_is_cut_off(monkeypatch):
    def failing(merged, delta):
        raise ValueError("x" * 500)

    known = module.LIBRARIES
    monkeypatch.setattr(module, "LIBRARIES", {"opacus PRV": (failing, *known["opacus PRV"][1:])})
    (check,) = cross_checks(expose(event(Gaussian(1.0))), 1e-3)
    assert check.refusal == f"failed (ValueError: {'x' * 108})"
