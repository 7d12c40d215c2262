"""What a recorded training proves: bounds from coins and tests of noise err on the safe side only, and have power."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from vflpriv.audits.learned.recorded import Split
from vflpriv.audits.one_run import guess_coins
from vflpriv.audits.statistics.one_run import epsilon_one_run, p_value_one_run
from vflpriv.core.attack import Guess
from vflpriv.core.canaries import draw_canaries, plant
from vflpriv.core.views import Adversary

DEVICE, OTHER = Adversary.parse("device(0)"), Adversary.parse("device(1)")
LABELS = torch.arange(400) % 5


def randomised(labels, epsilon, generator):
    """Each label kept, or another one, by randomised response among five: exactly ε-DP."""
    keep = math.exp(epsilon) / (math.exp(epsilon) + 4)
    shift = torch.from_numpy(generator.integers(1, 5, len(labels)))
    kept = torch.from_numpy(generator.random(len(labels)) < keep)
    return torch.where(kept, labels, (labels + shift) % 5)


def once(seed, epsilon, canaries=300):
    """One recorded training whose messages show labels under randomised response, to two devices."""
    labels, drawn = plant(LABELS, classes=5, canaries=canaries, seed=seed)
    generator = np.random.default_rng(seed)
    everyone = torch.arange(len(labels))
    seen = randomised(labels, epsilon, generator)
    noise = torch.from_numpy(generator.integers(0, 5, len(labels)))
    return guess_coins(
        drawn,
        Split.of(drawn, labels, seed=0),
        {DEVICE: {"blind": Guess(everyone, noise.unsqueeze(0))}, OTHER: {"rr": Guess(everyone, seen[None])}},
    )


@pytest.mark.parametrize("epsilon", [0.0, 1.0, 2.5])
def test_the_bound_from_coins_covers_and_a_true_claim_is_rarely_refuted(epsilon):
    """Margin: the guesses are whole numbers that are drawn the same everywhere: 16 and fewer are refuted."""
    runs = [once(seed, epsilon).guesses for seed in range(400)]
    above = sum(epsilon_one_run(g, 0.0, 0.95) > epsilon for g in runs)
    refuted = sum(p_value_one_run(g, epsilon, 0.0) <= 0.05 for g in runs)
    # 400 runs at 5 %: 20 expected at most, 34 are 3.2 standard deviations more.
    assert above <= 34
    assert refuted <= 34


def test_the_bound_from_coins_has_power_and_names_what_it_is_from():
    found = once(3, 5.0)
    assert epsilon_one_run(found.guesses, 1e-5, 0.95) > 2
    assert found.adversary == OTHER
    assert found.how.startswith("rr ")
    assert (found.set_aside, found.guesses.made) == (100, 200)


def test_few_canaries_give_no_test_and_unseen_records_count_as_guesses():
    assert Split.of(draw_canaries(LABELS, 5, canaries=19, seed=0), LABELS, seed=0) is None
    drawn = draw_canaries(LABELS, 5, canaries=100, seed=0)
    split = Split.of(drawn, LABELS, seed=0)
    silent = Guess(torch.empty(0, dtype=torch.int64), torch.empty(1, 0, dtype=torch.int64))
    found = guess_coins(drawn, split, {DEVICE: {"silent": silent}})
    assert found.guesses.made == 67
    assert found.guesses.right == int((drawn.worlds[0][split.counted] == 0).sum())
    assert guess_coins(drawn, split, {}) is None


def test_planted_labels_are_one_of_two_by_fair_coins():
    heads = 0
    for seed in range(50):
        labels, drawn = plant(LABELS, classes=5, canaries=200, seed=seed)
        records = list(drawn.records)
        assert torch.equal(labels[records], drawn.labels[torch.arange(200), drawn.worlds[0]])
        assert torch.equal(drawn.labels[:, 0], LABELS[records])
        assert (drawn.labels[:, 0] != drawn.labels[:, 1]).all()
        untouched = torch.ones(400, dtype=torch.bool)
        untouched[records] = False
        assert torch.equal(labels[untouched], LABELS[untouched])
        heads += int(drawn.worlds.sum())
    assert abs(heads - 5000) < 4 * 50
