"""Limits of what other libraries are asked, each exactly at its edge."""

from __future__ import annotations

import math

import pytest

from tests.accountants.exposures import event, expose
from vflpriv.accountants import cross_checks as module
from vflpriv.accountants._merging import Merged, merge
from vflpriv.accountants.cross_checks import LIBRARIES, CrossCheck, mesh_fits
from vflpriv.accountants.rdp import Bound
from vflpriv.laws import Gaussian
from vflpriv.laws.laplace import LaplacePair

ONE = expose(event(Gaussian(1.0)))


def test_a_mesh_of_four_million_points_is_the_largest(monkeypatch: pytest.MonkeyPatch) -> None:
    for points, fits in ((4_194_304, True), (4_194_305, False)):
        monkeypatch.setattr(module, "_mesh_points", lambda merged, delta, points=points: points)
        assert mesh_fits(ONE, 1e-5) == fits
        if fits:
            module._check_mesh(merge(ONE), 1e-5)
        else:
            with pytest.raises(module._RefusedError, match="too much memory"):
                module._check_mesh(merge(ONE), 1e-5)


class _Far(LaplacePair):
    """Its losses reach as far as one says."""

    far = 1.0

    def reach(self, tail: float) -> tuple[float, float]:
        return -self.far, self.far


def test_a_loop_over_a_hundred_thousand_points_is_the_longest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "renyi_bound", lambda merged, delta: Bound(900.0, 5.0))  # steps of 0.05
    merged = Merged(mu=0.0, pairs={_Far(0.5): 1})
    monkeypatch.setattr(_Far, "far", 131_073 * 0.05 / 2)
    with pytest.raises(module._RefusedError, match="more than 131,072"):
        module._dp_accounting(merged, 0.1)
    monkeypatch.setattr(_Far, "far", 1.5)
    monkeypatch.setattr(module, "MAX_PER_POINT", 3.0 / 0.05)
    assert 0 < module._dp_accounting(merged, 0.1) <= 0.5


def test_a_figure_that_is_right_up_to_rounding_is_not_too_low() -> None:
    assert not CrossCheck(library="x", epsilon=1 - 1e-6).is_too_low(1.0)
    assert CrossCheck(library="x", epsilon=math.nextafter(1 - 1e-6, 0)).is_too_low(1.0)


def test_only_meshes_have_a_stated_error(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = {name: (lambda merged, delta: 1.0, error, note) for name, (_, error, note) in LIBRARIES.items()}
    monkeypatch.setattr(module, "LIBRARIES", asked)
    errors = {check.library: check.error for check in module.cross_checks(ONE, 1e-5)}
    assert errors == {"dp-accounting PLD": 0.0, "opacus RDP": 0.0, "opacus PRV": 0.01, "prv-accountant": 0.01}
