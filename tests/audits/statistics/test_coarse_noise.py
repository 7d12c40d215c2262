"""Steps of noise: each model is found in its own noise and in no finer one, and its parts are counted one by one."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from vflpriv.audits.statistics.coarse_noise import (
    Model,
    _common_step,
    _fused,
    _in_steps,
    _last_place,
    _models,
    _shares,
    established,
    settled,
)

SINGLE, DOUBLE, HALF = np.dtype(np.float32), np.dtype(np.float64), np.dtype(np.float16)
STD = 0.3


def values(count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Noiseless values of single precision, and standard normals."""
    rng = np.random.default_rng(seed)
    return rng.uniform(-2, 2, count).astype(np.float32).astype(np.float64), rng.standard_normal(count)


def kept(released: np.ndarray, noiseless: np.ndarray, std: float = STD, kind: np.dtype = SINGLE) -> list[str]:
    return [model.what for model in established(released, noiseless, std, kind)]


def single(numbers: np.ndarray) -> np.ndarray:
    return numbers.astype(np.float32).astype(np.float64)


def test_noise_that_is_rounded_once_keeps_to_no_model() -> None:
    noiseless, draws = values(3000)
    assert kept(single(noiseless + STD * draws), noiseless) == []
    assert kept(single(noiseless + 7.7 * draws), noiseless, 7.7) == []
    assert kept(noiseless + STD * draws, noiseless, STD, DOUBLE)[0] == "53 binary digits", "nothing is finer"


def test_noise_of_single_precision_keeps_to_its_digits() -> None:
    noiseless, draws = values(3000)
    assert kept(single(noiseless + single(7.7 * draws)), noiseless, 7.7) == ["24 binary digits"]
    scaled = single(np.float64(np.float32(7.7)) * single(draws))
    assert "24 binary digits before it is scaled to its std" in kept(single(noiseless + scaled), noiseless, 7.7)
    fused = single(noiseless + np.float64(np.float32(7.7)) * single(draws))
    assert kept(fused, noiseless, 7.7) == ["24 binary digits before it is scaled and added in one"]


@pytest.mark.parametrize("power", [-12, -20])
def test_noise_in_steps_keeps_to_them_and_to_finer_ones(power: int) -> None:
    """A std of 0.3 is 0.6 times 2^-1: steps of 2^(-1 - 12) beside it are twelve powers of two finer."""
    noiseless, draws = values(200)
    step = 2.0 ** (power - 1)
    released = noiseless + np.rint(STD * draws / step) * step
    found = kept(released, noiseless, STD, DOUBLE)
    assert found[0] == f"steps of 2^{power - 1}, which the values that it hides have not"
    assert all(what.startswith("steps of") for what in found)
    finer = [int(what.split("^")[1].split(",")[0]) for what in found]
    assert finer == list(range(power - 1, power - 1 - len(finer), -1))


def test_few_releases_establish_nothing() -> None:
    noiseless, draws = values(40)
    step = 2.0**-13
    released = noiseless + np.rint(STD * draws / step) * step
    assert kept(released[:5], noiseless[:5], STD, DOUBLE) == []
    assert kept(released[:14], noiseless[:14], STD, DOUBLE)


def test_a_model_is_established_where_the_shares_multiply_to_less_than_its_chance() -> None:
    noiseless, draws = values(12)
    step = 2.0**-13
    released = noiseless + np.rint(STD * draws / step) * step
    models = list(_models(STD, DOUBLE))
    (model,) = [m for m in models if m.what.startswith("steps of 2^-13,")]
    unit = np.maximum(_last_place(released, DOUBLE), _common_step(released))
    shares = _shares(model, released, noiseless, unit)
    needed = next(n for n in range(1, 13) if np.prod(shares[:n]) < 1e-9 / len(models))
    for count in (needed - 1, needed):
        unit = np.maximum(_last_place(released[:count], DOUBLE), _common_step(released[:count]))
        assert np.allclose(_shares(model, released[:count], noiseless[:count], unit), shares[:count])
        assert (model.what in kept(released[:count], noiseless[:count], STD, DOUBLE)) == (count == needed)


def test_the_models_are_named_after_the_type_and_the_std() -> None:
    half = [model.what for model in _models(3.0, HALF)]
    assert half[:3] == [
        "11 binary digits",
        "11 binary digits before it is scaled to its std",
        "11 binary digits before it is scaled and added in one",
    ]
    assert half[3] == "steps of 2^-3, which the values that it hides have not"
    assert half[-1] == "steps of 2^-32, which the values that it hides have not"
    assert len(half) == 3 + 30
    assert [m.what for m in _models(3.0, DOUBLE)] == [
        "53 binary digits", "53 binary digits before it is scaled to its std", *half[3:]
    ]  # fmt: skip
    widths = [model.width for model in _models(3.0, HALF)]
    assert widths == [0.0] * 3 + [2.0 ** (power - 1) for power in range(-3, -33, -1)]


def test_the_first_model_adds_draws_as_they_are_and_the_second_scales_them() -> None:
    plain, scaled = list(_models(3.0, HALF))[:2]
    draws = np.random.default_rng(1).standard_normal(300).astype(np.float16)
    base = np.float16(0.01)
    added = (base + draws).astype(np.float64)
    stretched = (base + np.float16(3.0) * draws).astype(np.float64)
    noiseless = np.full(300, float(base))
    assert plain.agrees(added, noiseless).all()
    assert scaled.agrees(stretched, noiseless).all()
    assert not scaled.agrees(added, noiseless).all()


# Parts


@pytest.mark.parametrize("factor", [7.7, 0.011])
def test_sums_that_are_rounded_once_are_found_by_trying_every_draw(factor: float) -> None:
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    finite = halves[np.isfinite(halves)].astype(np.float64)
    noiseless = 0.137
    with np.errstate(over="ignore"):
        sums = (noiseless + float(np.float16(factor)) * finite).astype(np.float16)
    released = np.unique(sums[np.isfinite(sums) & (np.abs(sums) < 900)].astype(np.float64))
    neighbours = np.nextafter(released.astype(np.float16), np.float16(np.inf)).astype(np.float64)
    possible = _fused(released, np.full(len(released), noiseless), scale=factor, kind=HALF)
    assert possible.all()
    with np.errstate(over="ignore"):
        reached = np.isin(neighbours, released)
        found = _fused(neighbours, np.full(len(neighbours), noiseless), scale=factor, kind=HALF)
    np.testing.assert_array_equal(found[np.abs(neighbours) < 800], reached[np.abs(neighbours) < 800])


def test_without_a_factor_a_value_reaches_itself_alone() -> None:
    noiseless = np.array([0.1, 0.1])
    released = np.array([float(np.float16(0.1)), 0.5])
    assert _fused(released, noiseless, scale=0.0, kind=HALF).tolist() == [True, False]


def test_noise_is_in_steps_up_to_the_last_places_of_the_three_numbers() -> None:
    released, noiseless, step = np.array([5.75]), np.array([1.25]), 0.5
    places = sum(float(np.spacing(np.float32(v))) for v in (5.75, 1.25, 4.5))
    for off, agrees in ((0.0, True), (3.9 * places, True), (4.1 * places, False), (0.25, False)):
        for sign in (1, -1):
            found = _in_steps(released + sign * off, noiseless, step=step, kind=SINGLE)
            assert found.tolist() == [agrees], (off, sign)


@pytest.mark.parametrize("kind", [SINGLE, DOUBLE, HALF])
def test_the_unit_in_the_last_place_is_the_gap_to_the_next_number(kind: np.dtype) -> None:
    numbers = np.array([1.0, -1.5, 3.999, 1e-3, 700.0, 2.0])
    expected = np.spacing(np.abs(numbers.astype(kind))).astype(np.float64)
    np.testing.assert_array_equal(_last_place(numbers.astype(kind).astype(np.float64), kind), expected)
    tiny = float(np.finfo(kind).tiny)
    assert _last_place(np.array([0.0, tiny / 4]), kind).tolist() == [tiny * float(np.finfo(kind).eps)] * 2


@pytest.mark.parametrize(
    ("numbers", "step"), [([3.0, 5.0], 1.0), ([0.75, 6.0], 0.25), ([96.0, -160.0], 32.0), ([0.1], 0)]
)
def test_the_common_step_is_the_largest_power_of_two_that_divides_all(numbers: list[float], step: float) -> None:
    expected = step or 1 / Fraction(0.1).denominator
    assert _common_step(np.array(numbers)) == expected


def test_shares_are_of_the_release_and_sixteen_neighbours() -> None:
    asked: list[np.ndarray] = []

    def agrees(released: np.ndarray, noiseless: np.ndarray) -> np.ndarray:
        asked.append(released - noiseless)
        return released - noiseless > 0

    noiseless = np.array([10.0, 20.0])
    unit = np.array([0.5, 0.001])
    shares = _shares(Model("x", agrees, width=1.0), noiseless, noiseless, unit)
    # In units of 0.5 the neighbours are one apart; in units of 0.001 they are 125 apart, within a distance of 1.
    expected = [k * np.array([0.5, 0.125]) for k in range(-8, 9) if k]
    np.testing.assert_allclose(asked, expected)
    assert shares.tolist() == [9 / 17, 9 / 17]
    assert _shares(Model("x", lambda r, n: r < n + 0.9), noiseless, noiseless, unit).tolist() == [10 / 17, 1.0]


def test_what_returns_was_clamped_or_rounded() -> None:
    fine = np.arange(1.0, 295.0)
    released = np.concatenate([fine, [1.0], [500.0] * 3, [-500.0] * 4, [0.0], [math.inf], [math.nan]])
    found = settled(released)
    assert found[:294].all(), "one that is met twice may be an accident"
    assert found[294]
    # Of 305 numbers three are not more than a hundredth, four are.
    assert found[295:298].all()
    assert not found[298:].any()
    few = np.array([5.0, 5.0, 6.0, 7.0, 7.0, 7.0])
    assert settled(few).tolist() == [True, True, True, False, False, False]


def test_steps_are_tried_with_their_own_size() -> None:
    model = next(m for m in _models(3.0, DOUBLE) if m.what.startswith("steps of 2^-5"))
    noiseless = np.array([0.3, 0.3])
    assert model.agrees(noiseless + np.array([7 / 32, 7 / 64]), noiseless).tolist() == [True, False]
