"""Scores of guessed texts: against definitions, and intervals that hold where nearly all texts agree."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from vflpriv.audits.scoring.score import mean_score
from vflpriv.audits.scoring.texts import rouge_l, token_score
from vflpriv.core.attack import Guess


def scored(guessed: torch.Tensor, truth: torch.Tensor, known: tuple[int, ...] = ()):
    guess = Guess(torch.arange(len(truth)), guessed.unsqueeze(0))
    return token_score(guess, truth, known=torch.tensor(known, dtype=torch.int64), confidence=0.95)


def common(first: list[int], second: list[int]) -> int:
    """The length of the longest common subsequence, by its definition."""
    if not first or not second:
        return 0
    if first[-1] == second[-1]:
        return 1 + common(first[:-1], second[:-1])
    return max(common(first[:-1], second), common(first, second[:-1]))


def test_rouge_is_that_of_the_longest_common_subsequence():
    random = np.random.default_rng(0)
    guessed, real = (random.integers(0, 4, (40, 6)) for _ in range(2))
    for value, own, true in zip(rouge_l(guessed, real), guessed.tolist(), real.tolist(), strict=True):
        a, b = ([token for token in text if token] for text in (own, true))
        assert value == pytest.approx(2 * common(a, b) / max(1, len(a) + len(b)))


def test_padding_is_not_scored_and_chance_is_the_commonest_token():
    truth = torch.tensor([[5, 5, 7, 0], [5, 9, 0, 0], [0, 0, 0, 0], [3, 3, 3, 3]])
    guessed = torch.tensor([[5, 5, 8, 0], [5, 9, 4, 4], [1, 1, 1, 1], [3, 3, 3, 3]])
    score = scored(guessed, truth, known=(3,))
    assert score.value == pytest.approx(4 / 5)
    assert score.chance == pytest.approx(3 / 5)
    assert score.leakage.value == pytest.approx(1 / 5)
    assert score.guesses == 2
    assert score.figures["exact"].value == pytest.approx(1 / 2)


@pytest.mark.parametrize("rate", [0.02, 0.5, 0.98])
def test_intervals_over_texts_hold(rate):
    """Of 400 samples of 30 texts whose tokens are right together, 95 % intervals miss the truth in few."""
    random, missed = np.random.default_rng(0), 0
    for _ in range(400):
        share = random.beta(8 * rate, 8 * (1 - rate), 30)[:, None]
        right = torch.from_numpy(random.random((30, 10)) < share)
        truth = torch.ones(30, 10, dtype=torch.int64)
        score = scored(torch.where(right, 1, 2), truth)
        missed += not score.low <= rate <= score.high
    # Margin: 20 of 400 are expected; 45 would be six standard errors more.
    assert missed <= 45


def test_where_all_texts_agree_an_interval_is_left():
    truth = torch.randint(1, 50, (40, 6), generator=torch.Generator().manual_seed(0))
    right, wrong = scored(truth, truth), scored(truth + 1, truth)
    assert (right.value, right.high) == (1.0, 1.0)
    assert 0.85 < right.low < 0.95
    assert (wrong.value, wrong.low) == (0.0, 0.0)
    assert 0.05 < wrong.high < 0.15


def test_trainings_that_agree_leave_the_interval_over_texts():
    truth = torch.randint(1, 50, (40, 6), generator=torch.Generator().manual_seed(0))
    mean = mean_score([scored(truth, truth), scored(truth, truth)], confidence=0.95)
    assert (mean.value, mean.high) == (1.0, 1.0)
    assert 0.85 < mean.low < 0.95
    assert mean.leakage.low == pytest.approx(mean.low - mean.chance)
    assert 0.85 < mean.figures["exact"].low < 0.95
