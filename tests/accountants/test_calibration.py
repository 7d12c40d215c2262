"""From a budget to the noise: published values, the safe side, and targets that no noise can reach."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.accountants.exposures import event, expose
from vflpriv.accountants.auto import AutoAccountant
from vflpriv.accountants.calibration import calibrate_noise
from vflpriv.accountants.gdp import GdpAccountant
from vflpriv.accountants.prv import PrvAccountant
from vflpriv.accountants.rdp import RdpAccountant
from vflpriv.errors import InputError
from vflpriv.laws import Exact, Gaussian, Laplace

ORACLES = [
    (1.0, 1e-5, 1.0, 1_000, 117.973),
    (1.0, 1e-5, 0.01, 10_000, 3.8128),
    (0.1, 1e-6, 0.01, 1_000, 11.56),
    (0.01, 1e-5, 0.01, 1_000, 77.13),
    pytest.param(8.0, 1e-5, 0.001, 100_000, 0.5603, marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("epsilon", "delta", "q", "T", "std"), ORACLES)
def test_published_noise(epsilon, delta, q, T, std):
    def exposure_of(noise):
        return expose(event(Gaussian(noise), 1.0, T, q))

    found = calibrate_noise(exposure_of, epsilon=epsilon, delta=delta, accountant=PrvAccountant())
    assert found == pytest.approx(std, rel=3e-4)
    assert epsilon * (1 - 1e-4) <= PrvAccountant().budget(exposure_of(found), delta).upper <= epsilon


@given(epsilon=st.floats(0.05, 30), delta=st.sampled_from([1e-3, 1e-5, 1e-8]), count=st.integers(1, 5000))
@settings(max_examples=25)
def test_closed_form_is_on_the_safe_side(epsilon, delta, count):
    def exposure_of(noise):
        return expose(event(Gaussian(noise), 1.0, count), event(Gaussian(3 * noise), 2.0, 2 * count))

    std = calibrate_noise(exposure_of, epsilon=epsilon, delta=delta, accountant=GdpAccountant())
    assert epsilon * (1 - 1e-4) <= GdpAccountant().budget(exposure_of(std), delta).upper <= epsilon


@given(epsilon=st.floats(0.3, 20), rate=st.floats(0.001, 0.5), count=st.integers(1, 2000))
@settings(max_examples=10)
def test_rdp_search_is_on_the_safe_side(epsilon, rate, count):
    def exposure_of(noise):
        return expose(event(Gaussian(noise), 1.0, count, rate))

    std = calibrate_noise(exposure_of, epsilon=epsilon, delta=1e-5, accountant=RdpAccountant())
    assert epsilon * (1 - 1e-4) <= RdpAccountant().budget(exposure_of(std), 1e-5).upper <= epsilon


def test_noise_beside_fixed_releases():
    def exposure_of(noise):
        return expose(event(Gaussian(noise), 1.0, 100), event(Laplace(20.0), 1.0, 4))

    accountant = AutoAccountant()
    std = calibrate_noise(exposure_of, epsilon=2.0, delta=1e-5, accountant=accountant)
    assert 2.0 * (1 - 1e-4) <= accountant.budget(exposure_of(std), 1e-5).upper <= 2.0


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ({"epsilon": 0.0}, "epsilon = 0.0: expected a finite number > 0"),
        ({"epsilon": -1.0}, "epsilon = -1.0: expected a finite number > 0"),
        ({"delta": 0.0}, "delta = 0.0: expected a number between 0 and 1"),
        ({"delta": 1.0}, "delta = 1.0: expected a number between 0 and 1"),
    ],
)
def test_impossible_targets(target, words):
    arguments = {"epsilon": 1.0, "delta": 1e-5, **target}
    with pytest.raises(InputError) as error:
        calibrate_noise(lambda std: expose(event(Gaussian(std))), accountant=GdpAccountant(), **arguments)
    assert str(error.value) == words


def test_unprotected_messages_are_named():
    def exposure_of(noise):
        return expose(event(Gaussian(noise)), unprotected=("gradient (of the loss) carries no noise",))

    with pytest.raises(InputError, match=r"gradient \(of the loss\) carries no noise"):
        calibrate_noise(exposure_of, epsilon=1.0, delta=1e-5, accountant=AutoAccountant())
    with pytest.raises(InputError, match="message"):
        calibrate_noise(
            lambda std: expose(event(Gaussian(std)), event(Exact())),
            epsilon=1.0,
            delta=1e-5,
            accountant=AutoAccountant(),
        )


def test_a_floor_below_which_no_noise_helps_is_named():
    def exposure_of(noise):
        return expose(event(Gaussian(noise)), event(Laplace(1.0), 1.0, 10))

    with pytest.raises(InputError, match="which other releases cost"):
        calibrate_noise(exposure_of, epsilon=0.5, delta=1e-5, accountant=RdpAccountant())


def test_an_accountant_that_does_not_support_the_exposure_is_refused():
    with pytest.raises(InputError, match="not a bound"):
        calibrate_noise(
            lambda std: expose(event(Gaussian(std), 1.0, 10, 0.1)), epsilon=1.0, delta=1e-5, accountant=GdpAccountant()
        )
