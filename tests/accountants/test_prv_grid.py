"""What the grid does when it does not fit, and how long budgets take."""

from __future__ import annotations

import math
import subprocess
import sys

import numpy as np
import pytest

from tests.accountants.exposures import event, expose
from vflpriv.accountants import _composition, prv
from vflpriv.accountants._lattice import optimistic, pessimistic
from vflpriv.accountants.auto import AutoAccountant
from vflpriv.accountants.prv import PrvAccountant
from vflpriv.accountants.rdp import RdpAccountant
from vflpriv.core.units import Unit
from vflpriv.laws import Gaussian, Laplace, RandomizedResponse
from vflpriv.laws.sampled import SampledGaussianPair

MODULES = ("auto", "calibration", "cross_checks", "gdp", "prv", "rdp")


@pytest.fixture(autouse=True)
def nothing_is_known() -> None:
    """Bounds that another test, or another grid, has found are computed again."""
    prv._bounds.cache_clear()


def test_the_same_releases_are_bounded_once(monkeypatch):
    """Whoever sees them; other counts and another delta are computed by themselves."""
    computed, bracket = [], prv._bracket
    monkeypatch.setattr(prv, "_bracket", lambda *a, **k: computed.append(a[1]) or bracket(*a, **k))
    one = event(Gaussian(1.0), 1.0, 10, 0.1)
    for unit in (Unit.LABEL, Unit.RECORD):
        PrvAccountant().budget(expose(one, unit=unit), 1e-5)
    assert computed == [1e-5]
    PrvAccountant().budget(expose(one, unit=Unit.LABEL), 1e-6)
    PrvAccountant().budget(expose(event(Gaussian(1.0), 1.0, 11, 0.1), unit=Unit.LABEL), 1e-5)
    assert computed == [1e-5, 1e-6, 1e-5]


def test_a_mesh_that_would_not_fit_falls_back_to_rdp_and_says_so():
    exposure = expose(event(Gaussian(20.0), 1.0, 10**12, 1e-4))
    budget = PrvAccountant().budget(exposure, 1e-5)
    assert budget.upper == RdpAccountant().budget(exposure, 1e-5).upper < math.inf
    assert budget.lower == 0
    assert "Rényi" in budget.method
    assert "grid would not fit" in budget.method
    assert any("points" in note for note in budget.assumptions)
    assert "grid would not fit" in AutoAccountant().budget(exposure, 1e-5).method


def test_the_grid_is_checked_before_it_is_allocated(monkeypatch):
    exposure = expose(event(Gaussian(1.0), 1.0, 10_000, 0.01))
    free = PrvAccountant().budget(exposure, 1e-5)
    sizes = []
    convolve = _composition._convolve
    monkeypatch.setattr(_composition, "_convolve", lambda parts, n: sizes.append(n) or convolve(parts, n))
    for limit in (2**14, 2**8):
        sizes.clear()
        monkeypatch.setattr(_composition, "MAX_GRID_POINTS", limit)
        monkeypatch.setattr(prv, "MAX_GRID_POINTS", limit)
        prv._bounds.cache_clear()
        tight = PrvAccountant().budget(exposure, 1e-5)
        assert tight.lower <= free.upper <= tight.upper * (1 + 1e-6)
        assert all(size <= 1.1 * limit for size in sizes)
    assert "grid would not fit" in tight.method


@pytest.mark.parametrize(
    "exposure",
    [
        expose(event(Gaussian(0.8), 1.0, 100_000, 0.001)),
        expose(event(Gaussian(2.0), 2.0, 1_000_000, 0.01), unit=Unit.LABEL),
        expose(event(Gaussian(0.05), 1.0, 10, 1e-4)),
        expose(event(Gaussian(30.0), 1.0, 100_000), event(Gaussian(1.0), 1.0, 500, 0.02), event(Laplace(3.0), 1.0, 50)),
        expose(event(RandomizedResponse(0.01), 1.0, 100_000)),
    ],
    ids=["dp-sgd", "label", "catastrophe", "mix", "coins"],
)
def test_budgets_are_tight_with_bounded_work(exposure, monkeypatch):
    """Work is counted in points transformed: the same on every machine, which seconds are not."""
    points = []
    convolve = _composition._convolve
    counting = lambda parts, n: points.append(n * len(parts)) or convolve(parts, n)  # noqa: E731
    monkeypatch.setattr(_composition, "_convolve", counting)
    budget = PrvAccountant().budget(exposure, 1e-6)
    assert sum(points) <= _composition.MAX_WORK
    assert budget.lower >= 0.99 * budget.upper
    assert "privacy-loss distribution" in budget.method


def test_a_rare_catastrophe_below_delta_costs_nothing():
    """Noise far too small, but a record is met with probability 1e-6 < delta."""
    exposure = expose(event(Gaussian(0.01), 1.0, 1, 1e-6))
    assert PrvAccountant().budget(exposure, 1e-5).upper == 0
    assert RdpAccountant().budget(exposure, 1e-5).upper > 100


def test_torch_is_loaded_neither_by_a_module_nor_by_a_budget():
    code = (
        "import importlib, sys\n"
        "def check(what):\n"
        "    heavy = {'torch', 'opacus'} & set(sys.modules)\n"
        "    if heavy: sys.exit(f'{what} loads {heavy}')\n"
        f"for module in {MODULES!r}:\n"
        "    importlib.import_module(f'vflpriv.accountants.{module}')\n"
        "    check(module)\n"
        "from tests.accountants.exposures import event, expose\n"
        "from vflpriv.common.registry import available\n"
        "from vflpriv.laws import Gaussian\n"
        "for name, accountant in available('accountant').items():\n"
        "    accountant().budget(expose(event(Gaussian(1.0))), 1e-5)\n"
        "    check(f'a budget by {name}')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("rate", "noise", "rounds", "delta", "unit", "truth"),
    [
        (1e-6, 0.5, 10**5, 1e-3, Unit.ADD_REMOVE, 0.0),
        (1e-6, 0.5, 10**5, 1e-9, Unit.RECORD, 0.296),
        (1e-6, 0.5, 10**4, 1e-12, Unit.RECORD, 0.947),
        (1e-5, 0.1, 10**5, 1e-5, Unit.ADD_REMOVE, 308.37),
    ],
)
def test_rare_sampling_with_little_noise_is_tight(rate, noise, rounds, delta, unit, truth):
    """Nearly all losses are close to 0 and a few are large: the grid must be fine enough for one and reach the other.

    The truths are dp-accounting's at a grid step of 2e-5 from above, where rounding lets it: for delta = 1e-12 its own
    values scatter from 0.74 to 1.13, and the truth is between this accountant's two bounds.
    """
    sensitivity = 1.0 if unit is Unit.ADD_REMOVE else 2.0
    budget = PrvAccountant().budget(expose(event(Gaussian(noise), sensitivity, rounds, rate), unit=unit), delta)
    assert budget.lower <= truth * 1.001
    assert truth * 0.999 <= budget.upper <= truth * 1.02 + 1e-5
    assert budget.lower >= truth * 0.98


@pytest.mark.parametrize(
    ("rate", "std", "count"),
    [(1e-6, 0.3, 10**7), (1e-5, 0.3, 10**7), (1e-4, 0.3, 10**6), (1e-4, 0.8, 10**6)],
)
def test_rare_sampling_over_many_rounds_is_bracketed_on_the_first_grid(rate, std, count, monkeypatch):
    """Rounding that costs a release a millionth costs ten million of them everything."""
    steps = []
    bracket_at = prv._bracket_at
    monkeypatch.setattr(prv, "_bracket_at", lambda *a, **k: steps.append(a[3]) or bracket_at(*a, **k))
    budget = PrvAccountant().budget(expose(event(Gaussian(std), 1.0, count, rate), unit=Unit.ADD_REMOVE), 1e-5)
    assert budget.upper * (1 - 1e-3) <= budget.lower <= budget.upper
    assert len(steps) == 1


@pytest.mark.parametrize("pair", [SampledGaussianPair(1.25, 1e-4), SampledGaussianPair(2.0, 1e-6)])
@pytest.mark.parametrize("step", [5e-6, 1.08e-5, 2e-5])
def test_rounding_from_below_lowers_the_mean_loss_by_little_and_never_raises_it(pair, step):
    """What rounding takes from the mean counts once for every release; most of the loss lies near its lower end."""
    below, above = (rounding(pair, step, 1e-18) for rounding in (optimistic, pessimistic))
    means = [float(np.sum(lattice.masses * lattice.losses)) for lattice in (below, above)]
    assert 0.5 * means[1] <= means[0] <= means[1]


def test_very_many_different_releases_that_are_met_often_are_bracketed():
    rates, stds = np.linspace(1e-5, 1e-4, 300), np.linspace(1.0, 3.0, 300)
    parts = [event(Gaussian(float(s)), 1.0, 1000, float(q)) for q, s in zip(rates, stds, strict=True)]
    budget = PrvAccountant().budget(expose(*parts, unit=Unit.ADD_REMOVE), 1e-5)
    assert 0.95 * budget.upper <= budget.lower <= budget.upper


@pytest.mark.parametrize("accountant", [PrvAccountant(), AutoAccountant()], ids=["prv", "auto"])
@pytest.mark.parametrize(
    "exposure",
    [
        expose(event(Gaussian(0.8), 1.0, 10_000, 0.001)),
        expose(event(Gaussian(2.0), 1.0, 100)),
        expose(event(Gaussian(2.0), 1.0, 100, 0.1), event(Laplace(3.0), 1.0, 50)),
    ],
    ids=["sampled", "exact", "mix"],
)
def test_the_upper_bound_alone_is_never_below_that_of_the_budget(accountant, exposure):
    upper = accountant.budget(exposure, 1e-5).upper
    assert upper <= accountant.upper(exposure, 1e-5) <= upper * (1 + 1e-3)
