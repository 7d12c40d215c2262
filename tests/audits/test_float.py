"""The float audit: systems whose last bits tell two worlds apart, and sound ones, which are never accused."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from vflpriv.audits.float import Numbers, Reached, reached
from vflpriv.audits.twins.pairs import TwinCanary
from vflpriv.core.claims import Verdict
from vflpriv.core.units import Unit

CANARIES = [TwinCanary(unit=Unit.LABEL, what="a label")]
Array = NDArray[np.floating]
Release = Callable[[Array, np.random.Generator, float], Array]
SINGLE = np.float32


def normals(values: Array, generator: np.random.Generator) -> Array:
    return generator.standard_normal(len(values))


def double(values: Array, generator: np.random.Generator, std: float) -> Array:
    """Noise in double precision, rounded once."""
    return (values.astype(np.float64) + std * normals(values, generator)).astype(SINGLE)


def single(values: Array, generator: np.random.Generator, std: float) -> Array:
    """Noise in single precision, as programs usually add it."""
    return values + SINGLE(std) * normals(values, generator).astype(SINGLE)


def rounded(values: Array, step: float) -> Array:
    return np.rint(values / step) * step


def on_grid(values: Array, generator: np.random.Generator, std: float) -> Array:
    step = 2.0**-16
    return (rounded(values, step) + rounded(std * normals(values, generator), step)).astype(SINGLE)


def half(values: Array, generator: np.random.Generator, std: float) -> Array:
    """A float16 message that is noised after the cast."""
    return values.astype(np.float16) + np.float16(std) * normals(values, generator).astype(np.float16)


def fused(values: Array, generator: np.random.Generator, std: float) -> Array:
    draws = normals(values, generator).astype(SINGLE).astype(np.float64)
    return (values.astype(np.float64) + float(SINGLE(std)) * draws).astype(SINGLE)


BROKEN: dict[str, Release] = {
    "single": single,
    "single-of-any": lambda v, g, s: v + (s * normals(v, g)).astype(SINGLE),
    "single-fused": fused,
    "laplace": lambda v, g, s: v + SINGLE(s / np.sqrt(2)) * g.laplace(size=len(v)).astype(SINGLE),
    "half": half,
    "steps-of-noise-alone": lambda v, g, s: v + rounded(s * normals(v, g), 2.0**-12).astype(SINGLE),
}
SOUND: dict[str, Release] = {
    "double": double,
    "grid": on_grid,
    "double-then-half": lambda v, g, s: double(v, g, s).astype(np.float16),
    "single-then-half": lambda v, g, s: single(v, g, s).astype(np.float16),
    "rounded": lambda v, g, s: rounded(double(v, g, s), 2.0**-10),
    "single-then-rounded": lambda v, g, s: rounded(single(v, g, s), 2.0**-10),
    "rounded-to-hundredths": lambda v, g, s: rounded(double(v, g, s), 0.01).astype(SINGLE),
    "single-scaled-by-three": lambda v, g, s: SINGLE(3) * single(v, g, s),
    "double-scaled-by-two": lambda v, g, s: SINGLE(2) * double(v, g, s),
    "clamped": lambda v, g, s: np.clip(double(v, g, s), -0.3, 0.3).astype(SINGLE),
    "sign": lambda v, g, s: np.sign(single(v, g, s)),
    "more-noise-in-single": lambda v, g, s: single(double(v, g, s), g, 0.1),
    "noise-before-the-value-is-rounded": lambda v, g, s: (v + rounded(s * normals(v, g), 2.0**-40)).astype(SINGLE),
}
VALUES: dict[str, Callable[[np.random.Generator, int], Array]] = {
    "anywhere": lambda g, n: g.uniform(-1, 1, n),
    "near-zero": lambda g, n: g.uniform(-1e-3, 1e-3, n),
    "zeros": lambda g, n: np.zeros(n),
    "edges": lambda g, n: g.choice([-1.0, 1.0], n),
    "tenths": lambda g, n: g.integers(-10, 10, n) / 10,
    "eighths": lambda g, n: g.integers(-8, 8, n) / 8,
}


def outcome(release: Release, values: str, *, seed: int, std: float, apart: float, number: int = 1000) -> Reached:
    """What the audit says of one kind of release whose worlds are up to `apart` apart."""
    generator = np.random.default_rng(seed)
    own = VALUES[values](generator, number).astype(SINGLE)
    other = (own + apart * generator.uniform(0.2, 1, number)).astype(SINGLE)
    released = release(own, generator, std)
    places = np.stack((np.zeros(number), np.zeros(number), np.arange(number)), axis=1).astype(np.int64)
    numbers = Numbers(
        released=released.astype(np.float64),
        own=own.astype(np.float64),
        other=other.astype(np.float64),
        places=places,
        std=std,
        kind=released.dtype,
    )
    return reached("numbers", numbers, CANARIES)


@pytest.mark.parametrize("name", BROKEN)
@pytest.mark.parametrize(("std", "apart"), [(0.37, 1.0), (0.5, 0.2)])
def test_noise_with_steps_of_its_own_is_found(name: str, std: float, apart: float) -> None:
    result = outcome(BROKEN[name], "anywhere", seed=0, std=std, apart=apart)
    assert result.verdict is Verdict.VIOLATED, result.sentence
    assert result.telling > 50
    assert result.units == {Unit.LABEL}


@pytest.mark.parametrize("name", SOUND)
def test_sound_noise_is_not_accused(name: str) -> None:
    for place, values in enumerate(VALUES):
        for std, apart in ((0.37, 1.0), (0.5, 2.5), (8.0, 0.1)):
            result = outcome(SOUND[name], values, seed=place, std=std, apart=apart, number=400)
            assert result.verdict is not Verdict.VIOLATED, (values, std, apart, result.sentence)


@pytest.mark.slow
@pytest.mark.parametrize("name", SOUND)
def test_sound_noise_is_not_accused_in_many_trainings(name: str) -> None:
    """The coverage of the audit's chances: 1 in 10⁹ that steps are seen where there are none."""
    for seed in range(200):
        values = list(VALUES)[seed % len(VALUES)]
        result = outcome(SOUND[name], values, seed=seed, std=0.5 if seed % 2 else 0.37, apart=2.5 if seed % 3 else 0.5)
        assert result.verdict is not Verdict.VIOLATED, (seed, result.sentence)


def test_few_numbers_say_nothing() -> None:
    result = outcome(single, "anywhere", seed=0, std=0.37, apart=1.0, number=20)
    assert result.verdict is Verdict.NOT_APPLICABLE
    assert "too few" in result.sentence
