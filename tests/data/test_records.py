"""Which records are trained on, and which are kept back."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from vflpriv.data.loading import load
from vflpriv.data.records import keep_back, long_tail
from vflpriv.errors import InputError


@given(count=st.integers(2, 200), share=st.floats(0.01, 0.99))
def test_every_record_is_in_one_part_in_the_order_given(count: int, share: float) -> None:
    if not 1 <= round(share * count) < count:
        return
    trained, kept_back = keep_back(np.arange(count), share)
    assert sorted([*trained, *kept_back]) == list(range(count))
    assert list(trained) == sorted(trained)
    assert len(kept_back) == round(share * count)


def test_a_number_takes_what_a_smaller_number_takes() -> None:
    few, many = (set(keep_back(np.arange(50), count)[1]) for count in (5, 12))
    assert few < many
    assert (len(few), len(many)) == (5, 12)


@pytest.mark.parametrize("validation", [50, 51, 2.5, 0.001, 0.999])
def test_a_part_that_is_empty_or_all_is_refused(validation: float) -> None:
    with pytest.raises(InputError, match=r"^data.validation = "):
        keep_back(np.arange(50), validation)


def test_the_validation_part_comes_off_the_training_records() -> None:
    whole, data = load("digits", devices=1, train=100), load("digits", devices=1, train=100, validation=20)
    assert (data.records, data.validation_records) == (80, 20)
    rows = [*data.blocks[0].tolist(), *data.validation_blocks[0].tolist()]
    assert sorted(rows) == sorted(whole.blocks[0].tolist())
    assert sorted([*data.labels.tolist(), *data.validation_labels.tolist()]) == sorted(whole.labels.tolist())
    assert torch.equal(data.test_blocks[0], whole.test_blocks[0])
    assert whole.validation_labels is None


def test_columns_are_standardised_by_the_records_that_are_trained_on() -> None:
    data = load("breast-cancer", devices=3, train=100, validation=0.3)
    joined, kept_back = torch.cat(data.blocks, dim=1), torch.cat(data.validation_blocks, dim=1)
    assert joined.mean(dim=0).abs().max() < 1e-5
    assert kept_back.mean(dim=0).abs().max() > 1e-3  # own statistics would make this 0


@pytest.mark.parametrize("imbalance", [1, 4, 50, 100])
def test_a_long_tail_falls_exponentially_to_the_ratio(imbalance: float) -> None:
    labels = np.random.default_rng(0).integers(0, 5, 20_000)
    kept = long_tail(labels, classes=5, imbalance=imbalance)
    numbers = np.bincount(labels[kept])
    np.testing.assert_allclose(numbers[:-1] / numbers[1:], imbalance**0.25, rtol=0.03)
    assert numbers[0] / numbers[-1] == pytest.approx(imbalance, rel=0.03)
    assert (numbers == np.bincount(labels)).any() or (numbers + 1 == np.bincount(labels)).any()  # no more can be kept


def test_the_test_records_of_a_long_tail_stay_as_they_are() -> None:
    whole, data = load("digits", devices=2), load("digits", devices=2, imbalance=10, validation=0.2)
    assert torch.equal(data.test_labels, whole.test_labels)
    both = torch.cat([data.labels, data.validation_labels]).bincount()
    assert (int(both[0]), int(both[9])) == (int(whole.labels.bincount()[0]), int(whole.labels.bincount()[0]) // 10)
    assert data.records + data.validation_records == int(both.sum())


def test_a_tail_without_records_is_refused() -> None:
    with pytest.raises(
        InputError, match=r"^data.imbalance = 1000: expected a ratio that leaves class 7 a training rec"
    ):
        load("digits", devices=2, imbalance=1000)
