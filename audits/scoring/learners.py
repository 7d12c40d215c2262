"""Learners of a score of the two worlds: chosen, taught and given their threshold on trials that are not tested."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import RandomForestClassifier

from vflpriv.audits.scoring.worlds import discriminant
from vflpriv.common.numerics import Floats

__all__ = ["LearnedScore", "learn"]

_FEW = 10
_TREES = 60
_FOLDS = 4
Score = Callable[[Floats], Floats]
"""From features (n, F) to scores (n,), positive for world 0."""
Teach = Callable[[Floats, Floats], Score]
"""From the features of trials of world 0 and of world 1 to a score."""
Columns = NDArray[np.int64]


@dataclass(frozen=True, eq=False, kw_only=True)
class LearnedScore:
    """A score learned from trials: its name among the learners, and the scores that cross-validation gave them."""

    learner: str
    score: Score
    errors: int
    """Errors of the learning trials, each scored by what the others taught."""
    apart: float = 0.0
    """The distance between the worlds' means of those scores, in units of their spread."""

    @property
    def order(self) -> tuple[int, float]:
        """Smaller for what tells the worlds apart better."""
        return self.errors, -self.apart


def _discriminant(inside: Floats, outside: Floats, columns: Columns | None = None) -> Score:
    chosen = np.arange(inside.shape[1]) if columns is None else columns
    weights, offset = discriminant(inside[:, chosen], outside[:, chosen])
    return lambda rows: np.asarray(rows[:, chosen] @ weights + offset, dtype=np.float64)


def _best_columns(inside: Floats, outside: Floats, count: int) -> Columns:
    """The columns whose ranks differ most between the worlds."""
    both = np.concatenate((inside, outside))
    ranks = np.argsort(np.argsort(both, axis=0, kind="stable"), axis=0, kind="stable").astype(np.float64)
    for column in np.flatnonzero((np.diff(np.sort(both, axis=0), axis=0) == 0).any(0)):
        _, place, size = np.unique(both[:, column], return_inverse=True, return_counts=True)
        ranks[:, column] = (np.cumsum(size) - (size + 1) / 2)[place]
    gap = np.abs(ranks[: len(inside)].mean(0) - ranks[len(inside) :].mean(0))
    return np.argsort(-gap, kind="stable")[:count]


def _few(inside: Floats, outside: Floats) -> Score:
    """The discriminant of the ten columns that differ most."""
    return _discriminant(inside, outside, _best_columns(inside, outside, _FEW))


def _one(inside: Floats, outside: Floats) -> Score:
    """The one column that differs most, cut where fewest trials are on the wrong side."""
    (column,) = _best_columns(inside, outside, 1)
    values = np.concatenate((inside[:, column], outside[:, column]))
    cut = _cut(inside[:, column], outside[:, column])
    spread = float(values.std()) or 1.0
    sign, place = cut
    return lambda rows: np.asarray(sign * (rows[:, column] - place) / spread, dtype=np.float64)


def _cut(inside: Floats, outside: Floats) -> tuple[float, float]:
    """The sign and the place of the cut of one column with the fewest errors; in the middle of a gap."""
    values = np.unique(np.concatenate((inside, outside)))
    places = np.concatenate(([values[0] - 1.0], (values[1:] + values[:-1]) / 2))
    above = np.searchsorted(np.sort(inside), places) + len(outside) - np.searchsorted(np.sort(outside), places)
    total = len(inside) + len(outside)
    best, worst = int(np.argmin(above)), int(np.argmax(above))
    return (1.0, float(places[best])) if above[best] <= total - above[worst] else (-1.0, float(places[worst]))


def _forest(inside: Floats, outside: Floats) -> Score:
    """Trees over all columns."""
    trees = RandomForestClassifier(n_estimators=_TREES, max_features=0.2, min_samples_leaf=2, random_state=0, n_jobs=1)
    worlds = np.repeat([1, 0], [len(inside), len(outside)])
    trees.fit(np.concatenate((inside, outside)), worlds)
    return lambda rows: np.asarray(trees.predict_proba(rows)[:, 1] - 0.5, dtype=np.float64)


_LEARNERS: Mapping[str, Teach] = {
    "one feature": _one,
    "ten features": _few,
    "discriminant": _discriminant,
    "forest": _forest,
}


def learn(inside: Floats, outside: Floats) -> LearnedScore:
    """The learner with the fewest errors in cross-validation, taught by all of these trials (n, F) of either world.

    The cut is moved to where cross-validation makes the fewest errors. Nothing here may be tested afterwards.
    """
    columns = _varying(inside, outside)
    a, b = inside[:, columns], outside[:, columns]
    if not a.shape[1] or min(len(a), len(b)) < _FOLDS:
        return LearnedScore(learner="none", score=lambda rows: np.zeros(len(rows)), errors=len(a))
    validated = {name: _validated(teach, a, b) for name, teach in _LEARNERS.items()}
    name = min(validated, key=lambda name: validated[name][:2])
    errors, minus, cut = validated[name]
    score = _LEARNERS[name](a, b)
    return LearnedScore(learner=name, score=lambda rows: score(rows[:, columns]) - cut, errors=errors, apart=-minus)


def _validated(teach: Teach, inside: Floats, outside: Floats) -> tuple[int, float, float]:
    """The errors in cross-validation, minus the distance between the worlds' scores, and where to cut the scores.

    A cut other than zero has to save a few errors, since it is chosen on the same trials.
    """
    first, second = _cross_validated(teach, inside, outside)
    spread = float(np.concatenate((first, second)).std()) or 1.0
    apart = float(first.mean() - second.mean()) / spread
    sign, place = _cut(first, second)
    plain, moved = ((first <= at).sum() + (second > at).sum() for at in (0.0, place))
    better = sign > 0 and plain - moved > math.sqrt(len(inside))
    return (int(moved), -apart, place) if better else (int(plain), -apart, 0.0)


def _varying(inside: Floats, outside: Floats) -> Columns:
    """The numbers of the columns that vary, each of several equal ones once."""
    both = np.concatenate((inside, outside))
    varying = np.flatnonzero((both != both[:1]).any(0))
    _, first = np.unique(both[:, varying], axis=1, return_index=True)
    return np.asarray(varying[np.sort(first)])


def _cross_validated(
    teach: Callable[[Floats, Floats], Score], inside: Floats, outside: Floats
) -> tuple[Floats, Floats]:
    """The scores of all trials, each by what the other folds taught."""
    scores = np.zeros(len(inside)), np.zeros(len(outside))
    for fold in range(_FOLDS):
        masks = [np.arange(len(world)) % _FOLDS == fold for world in (inside, outside)]
        score = teach(inside[~masks[0]], outside[~masks[1]])
        for kept, world, mask in zip(scores, (inside, outside), masks, strict=True):
            kept[mask] = score(world[mask])
    return scores
