"""Scores that are learned from few trials."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from vflpriv.audits.learned.learners import learn


@pytest.mark.parametrize("told", ["spread", "gap", "nothing"])
def test_fifty_trials_teach_what_one_feature_shows_without_trees(told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A spread, and two sides with nothing between them, have equal means in both worlds: a plain cut sees neither."""
    monkeypatch.setitem(sys.modules, "sklearn.ensemble", None)
    generator = np.random.default_rng(3)
    inside, outside = generator.normal(size=(2, 50, 40))
    if told == "spread":
        inside[:, 7] *= 6
    if told == "gap":
        inside[:, 7] = 3 * generator.choice([-1, 1], 50)
    score = learn(inside, outside)
    if told == "nothing":
        assert score.validation.bound == 0
    else:
        assert score.learner == "one feature, folded"
        assert score.validation.bound > 0.5
