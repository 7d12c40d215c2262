"""Measures of a reconstruction: closed forms, a slow reference, and intervals that hold as often as they say."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.stats import norm

from vflpriv.audits.scoring.features import attribute_score, feature_score
from vflpriv.audits.scoring.pictures import picture_shape, psnr, ssim
from vflpriv.audits.scoring.score import mean_score
from vflpriv.audits.statistics.resampling import auc_interval, ratio_over_records, ratios_over_records
from vflpriv.core.attack import Guess

NOBODY = torch.empty(0, dtype=torch.int64)


def rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def guessed(rows: torch.Tensor, records: torch.Tensor | None = None) -> Guess:
    records = torch.arange(len(rows)) if records is None else records
    return Guess(records, rows.unsqueeze(0))


def slow_ssim(x: np.ndarray, y: np.ndarray) -> float:
    """Every window by itself, from the definition."""
    sides = [min(11, side) - 1 + min(11, side) % 2 for side in x.shape]
    lines = [np.exp(-((np.arange(n) - n // 2) ** 2) / 4.5) for n in sides]
    w = np.outer(*(line / line.sum() for line in lines))
    found = []
    for i in range(x.shape[0] - sides[0] + 1):
        for j in range(x.shape[1] - sides[1] + 1):
            a, b = (p[i : i + sides[0], j : j + sides[1]] for p in (x, y))
            ma, mb = (w * a).sum(), (w * b).sum()
            va, vb, c = (w * (a - ma) ** 2).sum(), (w * (b - mb) ** 2).sum(), (w * (a - ma) * (b - mb)).sum()
            found.append((2 * ma * mb + 1e-4) * (2 * c + 9e-4) / ((ma**2 + mb**2 + 1e-4) * (va + vb + 9e-4)))
    return float(np.mean(found))


@pytest.mark.parametrize("shape", [(28, 28), (14, 28), (8, 8), (2, 8)])
def test_ssim_is_its_definition(shape):
    x, y = torch.rand(2, 3, 1, *shape, generator=rng())
    assert [slow_ssim(a[0].numpy().astype(float), b[0].numpy().astype(float)) for a, b in zip(x, y, strict=True)] == (
        pytest.approx(ssim(x, y).tolist(), abs=1e-9)
    )


def test_ssim_of_flat_and_of_equal_pictures():
    x = torch.rand(2, 3, 14, 14, generator=rng())
    assert ssim(x, x).tolist() == pytest.approx([1, 1])
    a, b = torch.full((1, 1, 12, 12), 0.3), torch.full((1, 1, 12, 12), 0.6)
    expected = (2 * 0.3 * 0.6 + 1e-4) / (0.3**2 + 0.6**2 + 1e-4)
    assert float(ssim(a, b)) == pytest.approx(expected, rel=1e-6)
    # A negative of a picture around the same mean is anti-correlated with it.
    assert float(ssim(x, 1 - x).max()) < 0


def test_psnr():
    assert psnr(1.0) == 0
    assert psnr(1e-4) == pytest.approx(40)
    assert psnr(0) == math.inf


def test_what_counts_as_a_picture():
    assert picture_shape(torch.rand(5, 14, 28)) == (1, 14, 28)
    assert picture_shape(torch.rand(5, 3, 16, 8)) == (3, 16, 8)
    assert picture_shape(torch.rand(5, 20)) is None
    assert picture_shape(torch.rand(5, 14, 28) - 0.5) is None


def test_the_mean_explains_nothing_and_the_truth_everything():
    truth = torch.randn(40, 3, generator=rng()).double()
    by_mean = feature_score(guessed(truth.mean(0).repeat(40, 1)), truth, known=NOBODY, confidence=0.95)
    assert by_mean.value == pytest.approx(0)
    assert by_mean.numbers["error"] == pytest.approx(by_mean.numbers["mean_error"])
    exact = feature_score(guessed(truth), truth, known=NOBODY, confidence=0.95)
    assert (exact.value, exact.low, exact.high, exact.numbers["error"]) == (1, 1, 1, 0)
    assert [(c.error, c.r2.value, c.r2.low, c.r2.high) for c in exact.columns] == [(0, 1, 1, 1)] * 3
    assert [c.r2.value for c in by_mean.columns] == pytest.approx([0, 0, 0])
    assert "psnr" not in exact.numbers


def test_every_feature_has_figures_of_its_own():
    truth = torch.randn(300, 3, generator=rng()).double()
    truth[:, 2] = 7.0
    guess = truth.clone()
    guess[:, 1] = truth[:, 1] + 0.5 * torch.randn(300, generator=rng(1)).double()
    scores = [feature_score(guessed(guess), truth, known=NOBODY, confidence=0.95, seed=k) for k in range(3)]
    exact, noisy, constant = scores[0].columns
    assert (exact.error, exact.r2.value) == (0, 1)
    assert noisy.error == pytest.approx(float((guess - truth)[:, 1].square().mean()))
    assert noisy.mean_error == pytest.approx(float(truth[:, 1].var(correction=0)))
    assert noisy.r2.value == pytest.approx(1 - noisy.error / noisy.mean_error)
    assert noisy.r2.low < noisy.r2.value < noisy.r2.high < 1
    assert (constant.r2, constant.mean_error) == (None, 0)
    alone = mean_score(scores[:1], confidence=0.95).columns[1].r2
    assert (alone.value, alone.low, alone.high) == (noisy.r2.value, noisy.r2.low, noisy.r2.high)
    together = mean_score(scores, confidence=0.95).columns
    assert (together[1].r2.low, together[1].r2.value) == pytest.approx((noisy.r2.value, noisy.r2.value))
    assert together[2].r2 is None


def test_known_records_do_not_count():
    truth = torch.randn(40, 2, generator=rng())
    guess = truth.clone()
    guess[20:] = 100.0
    found = feature_score(guessed(guess), truth, known=torch.arange(20, 40), confidence=0.95)
    assert found.guesses == 20
    assert found.value == 1


def test_leakage_is_what_the_adversary_could_not_say_by_itself():
    truth = torch.randn(50, 2, generator=rng()).double()
    half = feature_score(guessed(truth), truth, known=NOBODY, confidence=0.95, blind=guessed(truth / 2))
    apart = (truth - truth.mean(0)).square().sum()
    assert half.blind == pytest.approx(1 - float((truth / 2).square().sum() / apart), abs=1e-9)
    assert half.leakage.value == pytest.approx(1 - half.blind)
    leak = mean_score([half, half], confidence=0.95)
    ends = leak.leakage.low, leak.leakage.value, leak.leakage.high
    assert ends == pytest.approx([half.leakage.value] * 3)


def test_pictures_get_their_own_measures():
    truth = torch.rand(12, 14, 14, generator=rng())
    found = feature_score(guessed(truth.flatten(1) * 0.9), truth, known=NOBODY, confidence=0.95)
    assert found.numbers["psnr"] == pytest.approx(psnr(float((0.1 * truth).square().mean())), abs=1e-4)
    ssim_ = found.figures["ssim"]
    assert ssim_.low <= ssim_.value <= ssim_.high <= 1


def test_auc_counts_pairs():
    scores = torch.tensor([[0.1, 0.4, 0.4, 0.9, 0.2]])
    truth = torch.tensor([0, 0, 1, 1, 1])
    guess = Guess(torch.arange(5), scores)
    found = attribute_score(guess, truth, known=NOBODY, confidence=0.95)
    # Pairs (zero, one): .1 loses to .4, .9 and .2; .4 ties .4, loses to .9, beats .2.
    assert found.value == pytest.approx((3 + 0.5 + 1) / 6)
    assert found.chance == 0.5
    left = attribute_score(guess, truth, known=torch.tensor([4]), confidence=0.95)
    assert left.value == pytest.approx(3.5 / 4)


def test_auc_of_two_normals_is_covered_as_often_as_it_says():
    """Scores N(0, 1) and N(1, 1): AUC = Φ(1/√2). 400 repetitions; 6 standard deviations of play."""
    truth, inside = norm.cdf(1 / math.sqrt(2)), 0
    generator = rng(3)
    for _ in range(400):
        zeros, ones = torch.randn(40, generator=generator), torch.randn(25, generator=generator) + 1
        _, low, high = auc_interval(zeros, ones, 0.9)
        inside += low <= truth <= high
    assert 0.9 - 6 * 0.015 < inside / 400 < 0.9 + 6 * 0.015


def test_separated_scores_still_leave_doubt():
    value, low, high = auc_interval(torch.zeros(10), torch.ones(20), 0.95)
    assert (value, high) == (1, 1)
    assert low == pytest.approx(0.025**0.1)
    assert auc_interval(torch.ones(10), torch.zeros(20), 0.95)[:2] == (0, 0)


def test_ratios_are_covered_as_often_as_they_say():
    """Skewed errors: squares of normals with variance 0.3 against squares of standard normals."""
    generator, inside = np.random.default_rng(5), 0
    for k in range(300):
        above, below = 0.3 * generator.chisquare(2, 60), generator.chisquare(2, 60)
        _, low, high = ratio_over_records(above, below, confidence=0.9, seed=k)
        inside += low <= 0.3 <= high
    assert 0.84 < inside / 300 < 0.96


def test_every_columns_ratio_is_covered_as_often_as_it_says():
    """The same with three columns of different ratios, in one pass over the draws."""
    generator, inside, truth = np.random.default_rng(6), np.zeros(3), np.array([0.1, 0.5, 1.0])
    for k in range(200):
        above, below = truth * generator.chisquare(2, (60, 3)), generator.chisquare(2, (60, 3))
        _, low, high = ratios_over_records(above, below, confidence=0.9, seed=k, draws=400)
        inside += (low <= truth) & (truth <= high)
    assert (inside / 200 > 0.83).all()
    assert (inside / 200 < 0.97).all()


def test_columns_together_are_columns_alone():
    generator = np.random.default_rng(7)
    above, below = generator.chisquare(2, (30, 2)), generator.chisquare(2, (30, 2))
    both = np.array(ratios_over_records(above, below, confidence=0.9, seed=3))
    alone = [ratio_over_records(above[:, k], below[:, k], confidence=0.9, seed=3) for k in range(2)]
    assert both.T.tolist() == [pytest.approx(one) for one in alone]
