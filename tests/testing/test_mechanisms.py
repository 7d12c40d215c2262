"""Helpers for users' own mechanisms: they pass what is sound, and name the witness of what is not."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from vflpriv.core.units import Unit
from vflpriv.testing import assert_epsilon, assert_sensitivity, neighbouring_data, neighbouring_rows
from vflpriv.training.mechanisms.base import Mechanism, ScalarMean
from vflpriv.training.mechanisms.uplink import ClientClip, EmbeddingClip, Emptied

# Sensitivity


@pytest.mark.parametrize("unit", [Unit.RECORD, Unit.ADD_REMOVE, Unit.CLIENT_ZERO, Unit.CLIENT])
def test_the_bounds_of_our_own_clip_hold_and_halves_do_not(unit: Unit) -> None:
    mechanism: Mechanism = ClientClip(noise_std=1.0, clip=3.0, emptied=Emptied.ZEROS)

    def noiseless(rows: np.ndarray) -> np.ndarray:
        # An absent row is a row of zeros to the norm.
        filled = np.zeros((6, 3))
        filled[: len(rows)] = rows
        return mechanism.noiseless(torch.from_numpy(filled).unsqueeze(0)).numpy()

    bound = mechanism.sensitivity[unit]
    if unit is not Unit.ADD_REMOVE:  # taking a row out moves the others up
        assert_sensitivity(noiseless, bound, neighbouring_rows(unit))
    with pytest.raises(AssertionError, match=re.escape(f"at most {bound / 2.5:g} (L2): found ")):
        assert_sensitivity(noiseless, bound / 2.5, neighbouring_rows(unit))


def test_the_published_clip_is_caught_with_its_witness() -> None:
    def released(rows: np.ndarray, *, two_sided: bool) -> np.ndarray:
        mechanism = ScalarMean(noise_std=1.0, clip=1.0, batch_size=4, two_sided=two_sided)
        return mechanism.noiseless(torch.from_numpy(rows[:, 0]).unsqueeze(0)).numpy()

    pairs = neighbouring_rows("record", rows=4, width=1)
    assert_sensitivity(lambda rows: released(rows, two_sided=True), 0.5, pairs)
    with pytest.raises(AssertionError, match=r"at most 0.5 \(L2\): found .* between array\(\[\[.* and array\(\[\["):
        assert_sensitivity(lambda rows: released(rows, two_sided=False), 0.5, pairs, simplest=True)


def test_norms_and_values_that_are_no_numbers() -> None:
    pairs = neighbouring_rows("record", rows=1, width=4, limit=1.0)
    assert_sensitivity(lambda rows: rows, 8.0, pairs, norm=1)
    assert_sensitivity(lambda rows: rows, 2.0, pairs, norm=math.inf)
    with pytest.raises(AssertionError, match=r"at most 2 \(L1\)"):
        assert_sensitivity(lambda rows: rows, 2.0, pairs, norm=1)
    with pytest.raises(AssertionError, match="found nan"):
        assert_sensitivity(lambda rows: rows * math.nan, 2.0, pairs)


def test_rows_of_their_own_are_bounded_by_the_ball() -> None:
    mechanism = EmbeddingClip(noise_std=1.0, clip=2.0, batch_size=6)
    pairs = neighbouring_rows("features", rows=6)
    assert_sensitivity(lambda rows: mechanism.noiseless(torch.from_numpy(rows)).numpy(), 4.0, pairs)


# Neighbours


@given(st.data(), st.sampled_from(Unit))
def test_neighbours_differ_by_one_unit_and_in_nothing_else(data: st.DataObject, unit: Unit) -> None:
    one, other = data.draw(neighbouring_data(unit))
    if unit is Unit.ADD_REMOVE:
        assert len(other.labels) == len(one.labels) - 1
        assert all(len(b) == len(other.labels) for b in other.blocks)
        return
    labels = int((one.labels != other.labels).sum())
    rows = [int((a != b).any(axis=1).sum()) for a, b in zip(one.blocks, other.blocks, strict=True)]
    touched = sum(count > 0 for count in rows)
    assert labels <= (1 if unit in (Unit.LABEL, Unit.RECORD) else 0)
    assert touched <= {Unit.LABEL: 0, Unit.RECORD: 2}.get(unit, 1)
    if unit.per_record:
        changed = np.zeros(len(one.labels), dtype=bool)
        for a, b in zip((*one.blocks, one.labels[:, None]), (*other.blocks, other.labels[:, None]), strict=True):
            changed |= (a != b).any(axis=1)
        assert changed.sum() <= 1
    if unit is Unit.CLIENT_ZERO:
        assert any(not b.any() for b in other.blocks)


# Epsilon


def gaussian(std: float):
    return lambda x, rng: np.asarray(x) + rng.normal(0, std, np.shape(x))


def coin(epsilon: float):
    """A label of three kept or replaced."""

    def mechanism(x: int, rng: np.random.Generator) -> int:
        kept = rng.random() < math.exp(epsilon) / (math.exp(epsilon) + 2)
        return x if kept else (x + int(rng.integers(1, 3))) % 3

    return mechanism


def test_sound_mechanisms_pass_and_the_measured_figure_is_near() -> None:
    assert 0.6 < assert_epsilon(coin(1.0), 0, 2, 1.0, 0.0) <= 1.0
    assert 0.8 < assert_epsilon(gaussian(1.0), np.array([1.0, 0.0]), np.zeros(2), 4.3772, 1e-5) <= 4.3772


def test_a_sound_mechanism_at_its_limit_rarely_fails() -> None:
    failed = 0
    for seed in range(100):
        try:
            assert_epsilon(coin(1.0), 0, 1, 1.0, 0.0, trials=300, seed=seed, confidence=0.9)
        except AssertionError:
            failed += 1
    assert failed <= 20


@pytest.mark.parametrize(
    ("mechanism", "x", "neighbour", "epsilon", "delta"),
    [
        (coin(3.0), 0, 1, 2.0, 0.0),
        (gaussian(0.5), np.array([1.0]), np.array([0.0]), 1.5, 1e-5),
        (lambda x, rng: x, 1.0, 0.0, 5.0, 1e-5),
    ],
    ids=["response", "gaussian", "no noise"],
)
def test_a_budget_too_small_is_caught_with_its_figure(mechanism, x, neighbour, epsilon: float, delta: float) -> None:
    with pytest.raises(AssertionError, match=r"-DP: measured epsilon >= [\d.]+ at 99.9 % confidence .* against "):
        assert_epsilon(mechanism, x, neighbour, epsilon, delta, seed=1)


def test_a_score_of_ones_own_uses_all_trials() -> None:
    seen = []

    def score(outputs: np.ndarray) -> np.ndarray:
        seen.append(outputs.shape)
        return outputs[:, 0]

    first = assert_epsilon(gaussian(2.0), [1.0, 5.0], [0.0, 5.0], 3.0, 1e-5, trials=500, score=score)
    assert seen == [(500, 2), (500, 2)]
    assert first == assert_epsilon(gaussian(2.0), [1.0, 5.0], [0.0, 5.0], 3.0, 1e-5, trials=500, score=score)


def test_wrong_numbers_are_refused() -> None:
    with pytest.raises(ValueError, match="trials=10 >= 30"):
        assert_epsilon(gaussian(1.0), 1.0, 0.0, 1.0, 0.0, trials=10)
    with pytest.raises(ValueError, match="delta=1"):
        assert_epsilon(gaussian(1.0), 1.0, 0.0, 1.0, 1.0, trials=100)
