"""Trials scored by all that an adversary sees: the score is learned on one half of them and tested on the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from vflpriv.audits.learned.learners import LearnedScore, learn
from vflpriv.audits.two_world.trials import Trials
from vflpriv.common.numerics import Floats
from vflpriv.core.canaries import Canary
from vflpriv.core.views import Adversary

__all__ = ["WHOLE_VIEW", "WholeViewScores", "WholeViewTrials"]

WHOLE_VIEW = "whole view"
"""The method, and the subject of findings, whose score is learned from all that an adversary sees."""


@dataclass(frozen=True, eq=False, kw_only=True)
class WholeViewTrials:
    """Trials scored by the whole view of an adversary, and how many trials of each world taught the score."""

    trials: Trials
    learned_on: int
    features: int


class WholeViewScores:
    """Scores of the features of each view, (2n, F): rows of world 0 and of world 1 in turns, `trials` of each at most.

    A view with no more trials than are learned on has no score.
    """

    def __init__(self, features: Mapping[Adversary, Floats], *, canary: Canary, trials: int) -> None:
        self._features, self._canary, self._trials, self._half = features, canary, trials, trials // 2
        self._learned: dict[Adversary, LearnedScore] = {}

    def tested(self, views: Sequence[Adversary], looks: tuple[int, ...] = ()) -> WholeViewTrials | None:
        """The tested trials of that one of the views which the learning trials say most about; None if none has any."""
        known = [view for view in views if len(self._features[view]) > 2 * self._half]
        if not known:
            return None
        actual = min(known, key=lambda view: self._score(view).validation.order)
        rows, score = self._features[actual][2 * self._half : 2 * self._trials], self._score(actual)
        times = dict.fromkeys(min(t, self._trials) - self._half for t in looks if t > self._half)
        return WholeViewTrials(
            trials=Trials(
                adversary=actual,
                canary=self._canary,
                scores=(score.score(rows[0::2]), score.score(rows[1::2])),
                strengths=np.zeros(0),
                looks=tuple(times),
                method=WHOLE_VIEW,
                threshold=score.threshold,
            ),
            learned_on=self._half,
            features=rows.shape[1],
        )

    def _score(self, view: Adversary) -> LearnedScore:
        if view not in self._learned:
            rows = self._features[view][: 2 * self._half]
            self._learned[view] = learn(rows[0::2], rows[1::2])
        return self._learned[view]
