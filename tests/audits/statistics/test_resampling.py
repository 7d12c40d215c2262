"""Intervals over records: the bootstrap written draw by draw, and DeLong's variance summed over all pairs."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.special import expit, logit
from scipy.stats import norm

from vflpriv.audits.statistics import resampling
from vflpriv.audits.statistics.resampling import (
    auc_interval,
    mean_over_records,
    ratio_over_records,
    ratios_over_records,
)

COUNT = 23


def columns() -> tuple[np.ndarray, np.ndarray]:
    """Above and below of ratios with scales of their own. The last three: hardly anything, nothing, no deviation."""
    rng = np.random.default_rng(0)
    scales = np.array([1.0, 40.0, 0.001, 1.0, 0.0, 1.0])
    below = rng.integers(1, 9, (COUNT, 6)) * scales
    below[2:, 3] = 0.0
    above = below * rng.uniform(0.1, 0.8, (COUNT, 6)) + rng.uniform(0, 2, (COUNT, 6)) * scales
    above[:, 5] = 2 * below[:, 5]
    return above, below


def drawn(seed: int, count: int, draws: int) -> np.ndarray:
    """How often each record is in each draw."""
    pieces = list(resampling._drawn(seed, count, draws // 100))
    assert all(piece.shape == (100, count) for piece in pieces)
    return np.concatenate(pieces)


def one_by_one(
    above: np.ndarray, below: np.ndarray, counts: np.ndarray, confidence: float
) -> tuple[float, float, float]:
    """The bootstrap-t interval of one ratio, with the records of each draw written out."""
    total = below.sum() or 1.0
    ratio = above.sum() / total
    error = math.sqrt(len(above) / (len(above) - 1) * ((above - ratio * below) ** 2).sum()) / total
    deviations = []
    for times in counts:
        a, b = np.repeat(above, times), np.repeat(below, times)
        size = max(b.sum(), 1e-9 * total)
        spread = math.sqrt(len(a) / (len(a) - 1) * ((a - a.sum() / size * b) ** 2).sum()) / size
        deviations.append((a.sum() / size - ratio) / max(spread, 1e-3 * error))
    low, high = np.quantile(deviations, [0.5 + confidence / 2, 0.5 - confidence / 2])
    return ratio, ratio - low * error, ratio - high * error


@pytest.mark.parametrize(("confidence", "seed", "draws"), [(0.95, 0, 1000), (0.6, 5, 200), (0.8, 1, 1200)])
def test_the_interval_of_a_ratio_is_that_of_its_draws(confidence: float, seed: int, draws: int) -> None:
    above, below = columns()
    found = ratios_over_records(above, below, confidence=confidence, seed=seed, draws=draws)
    counts = drawn(seed, COUNT, draws)
    for column in range(4):
        expected = one_by_one(above[:, column], below[:, column], counts, confidence)
        assert [part[column] for part in found] == pytest.approx(expected, rel=1e-9)
    assert found[0][4] == pytest.approx(above[:, 4].sum()), "divided by 1 in the place of 0"
    assert [part[5] for part in found] == pytest.approx([2.0] * 3)


def test_of_three_records_many_draws_are_one_record_three_times() -> None:
    """Such a draw has no deviation of its own: a thousandth of the sample's stands for it."""
    above, below = np.array([1.0, 5.0, 2.0]), np.array([2.0, 3.0, 7.0])
    expected = one_by_one(above, below, drawn(2, 3, 1000), 0.95)
    assert ratio_over_records(above, below, confidence=0.95, seed=2) == pytest.approx(expected, rel=1e-6)


def test_draws_are_with_replacement_from_all_records_alike() -> None:
    counts = drawn(3, 40, 2000)
    assert (counts.sum(axis=1) == 40).all()
    assert counts.mean(axis=0) == pytest.approx(np.ones(40), abs=0.12)
    assert counts.var() == pytest.approx(1 - 1 / 40, abs=0.03)
    assert len(np.unique(counts, axis=0)) == 2000


@pytest.mark.parametrize("count", [30, 5001])
def test_kept_draws_and_fresh_ones_are_the_same(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(count).exponential(size=count)
    ones = np.ones(count)
    found = mean_over_records(values, confidence=0.9, seed=4)
    assert (found[0], found == mean_over_records(values, confidence=0.9, seed=4)) == (
        pytest.approx(values.mean()),
        True,
    )
    if count < 100:
        monkeypatch.setattr(resampling, "_FEW", 0)
        assert ratio_over_records(values, ones, confidence=0.9, seed=4) == found
        assert mean_over_records(values, confidence=0.9)[1:] != found[1:], "another seed"
        assert mean_over_records(values, confidence=0.9) == mean_over_records(values, confidence=0.9, seed=0)
        first = ratio_over_records(values, ones, confidence=0.9, seed=0)
        assert ratio_over_records(values, ones, confidence=0.9) == first
        assert ratios_over_records(values[:, None], ones[:, None], confidence=0.9) == first
    else:
        reach = norm.ppf(0.95) * values.std(ddof=1) / math.sqrt(count)
        assert found[1:] == pytest.approx((values.mean() - reach, values.mean() + reach), abs=0.15 * reach)
        assert resampling._kept.cache_info().currsize <= 8


def test_records_that_do_not_vary_and_single_ones_have_no_interval() -> None:
    assert ratio_over_records(np.full(9, 3.0), np.full(9, 2.0), confidence=0.95) == (1.5, 1.5, 1.5)
    assert ratio_over_records(np.array([3.0]), np.array([4.0]), confidence=0.95) == (0.75, 0.75, 0.75)
    assert ratio_over_records(np.array([3.0]), np.array([0.0]), confidence=0.95) == (3.0, 3.0, 3.0)
    two = ratio_over_records(np.array([1.0, 4.0]), np.array([1.0, 2.0]), confidence=0.5)
    assert two[1] < two[2], "two records that differ have one"


def test_the_interval_covers_with_few_skewed_records() -> None:
    rng = np.random.default_rng(7)
    samples = rng.exponential(size=(25, 300))
    _, low, high = ratios_over_records(samples, np.ones_like(samples), confidence=0.9)
    assert 0.84 < np.mean((low <= 1) & (high >= 1)) < 0.95
    plain = norm.ppf(0.95) * samples.std(axis=0, ddof=1) / 5
    assert np.mean(np.abs(samples.mean(axis=0) - 1) <= plain) < np.mean((low <= 1) & (high >= 1))


# The area under the ROC curve


def by_pairs(zeros: list[float], ones: list[float], confidence: float) -> tuple[float, float, float]:
    """DeLong's interval on the logit scale, from all pairs."""
    pairs = np.array([[1.0 if one > zero else 0.5 if one == zero else 0.0 for zero in zeros] for one in ones])
    area = pairs.mean()
    variance = pairs.mean(axis=1).var(ddof=1) / len(ones) + pairs.mean(axis=0).var(ddof=1) / len(zeros)
    reach = norm.ppf(0.5 + confidence / 2) * math.sqrt(variance) / (area * (1 - area))
    return area, expit(logit(area) - reach), expit(logit(area) + reach)


@pytest.mark.parametrize("confidence", [0.95, 0.7])
@pytest.mark.parametrize(
    ("zeros", "ones"),
    [
        ([0.1, 0.4, 0.4, 0.9, -2.0], [0.4, 0.8, 3.0]),
        ([5.0, 1.0], [0.0, 2.0, 2.0, 1.0, 7.0, 0.5]),
        (list(np.random.default_rng(1).normal(0, 1, 30)), list(np.random.default_rng(2).normal(1, 2, 19))),
    ],
)
def test_the_area_and_its_interval_are_delongs(zeros: list[float], ones: list[float], confidence: float) -> None:
    found = auc_interval(torch.tensor(zeros), torch.tensor(ones), confidence)
    assert found == pytest.approx(by_pairs(zeros, ones, confidence), rel=1e-5)


def test_scores_that_do_not_overlap_have_the_bound_of_disjoint_pairs() -> None:
    low, high = torch.tensor([0.1, 0.2, 0.3, 0.4]), torch.tensor([0.9, 0.8, 0.7])
    reach = 0.025 ** (1 / 3)
    assert auc_interval(low, high, 0.95) == pytest.approx((1.0, reach, 1.0))
    assert auc_interval(high, low, 0.95) == pytest.approx((0.0, 0.0, 1 - reach))
    assert auc_interval(low, high[:1], 0.95) == pytest.approx((1.0, 0.025, 1.0))
    # A single one, above one zero and below the other: one pair says next to nothing.
    assert auc_interval(torch.tensor([0.1, 0.9]), torch.tensor([0.5]), 0.95) == (0.5, 0.0, 1.0)
    assert auc_interval(torch.tensor([0.1, 0.9]), torch.tensor([0.5, 0.6]), 0.95)[1] > 0.0, "two pairs may overlap"
