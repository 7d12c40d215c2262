"""What the sampler of continuous noise adds to a budget, and that calibration counts it."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from tests.accountants.exposures import event, expose
from vflpriv.accountants._sampler import sampler_error
from vflpriv.accountants.auto import AutoAccountant
from vflpriv.accountants.calibration import calibrate_noise
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
