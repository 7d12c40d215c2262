"""Learners of a score of the two worlds: chosen, taught and given their threshold on trials that are not tested."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vflpriv.audits.learned.discriminants import discriminant
from vflpriv.audits.statistics.bounds import Errors, epsilon_error_rate, epsilon_rectangle
from vflpriv.common.numerics import Floats

__all__ = ["LearnedScore", "Validation", "held_out_errors", "learn"]

_FEW = 10
_TREES = 60
_FOLDS = 4
_OF_TREES = 64
"""Trials of either world from which on trees are taught: of fewer, what one feature shows is learned sooner."""
_CONFIDENCE = 0.999
"""Of the bounds that are expected."""
_TAILS = (0.02, 0.05, 0.1, 0.2, 0.3, 0.7, 0.8, 0.9, 0.95, 0.98)
"""Thresholds far out that are tried, as shares of the trials below them."""
_NEXT_TO_ZERO = 1e-9
"""The cut as a threshold whose two error rates are looked at one by one, in units of the scores' spread."""
Score = Callable[[Floats], Floats]
"""From features (n, F) to scores (n,), positive for world 0."""
Teach = Callable[[Floats, Floats], Score]
"""From the features of trials of world 0 and of world 1 to a score."""
Columns = NDArray[np.int64]


@dataclass(frozen=True, eq=False, kw_only=True)
class LearnedScore:
    """A score learned from trials, by the learner of this name; above the threshold it says world 0."""

    learner: str
    score: Score
    validation: Validation

    @property
    def threshold(self) -> float:
        return self.validation.threshold


@dataclass(frozen=True, kw_only=True)
class Validation:
    """How a learner does on the trials that teach it, each scored by what the others taught.

    `errors` are counted at the `cut`, from which scores are then counted. With a `threshold` other than 0 the two error
    rates are bounded one by one, which suits leaks that show in few trials, but then without a doubt. `bound` is the
    bound on ε that is expected of as many trials, `apart` the distance between the worlds' mean scores in units of
    their spread.
    """

    errors: int
    bound: float = 0.0
    apart: float = 0.0
    cut: float = 0.0
    threshold: float = 0.0

    @property
    def order(self) -> tuple[float, int, float]:
        """Smaller for what tells the worlds apart better."""
        return -self.bound, self.errors, -self.apart


def _discriminant(inside: Floats, outside: Floats, columns: Columns | None = None) -> Score:
    chosen = np.arange(inside.shape[1]) if columns is None else columns
    weights, offset = discriminant(inside[:, chosen], outside[:, chosen])
    return lambda rows: np.asarray(rows[:, chosen] @ weights + offset, dtype=np.float64)


def _best_columns(inside: Floats, outside: Floats, count: int) -> Columns:
    """The columns whose ranks differ most between the worlds."""
    ranks = _ranks(np.concatenate((inside, outside)))
    gap = np.abs(ranks[: len(inside)].mean(0) - ranks[len(inside) :].mean(0))
    return np.argsort(-gap, kind="stable")[:count]


def _ranks(values: Floats) -> Floats:
    """The rank of each value in its column, from 0 on; equal ones share the mean of theirs."""
    order = np.argsort(values, axis=0, kind="stable")
    ordered, places = np.take_along_axis(values, order, axis=0), np.arange(len(values))[:, None]
    edge, changes = np.ones((1, values.shape[1]), dtype=np.bool_), ordered[1:] != ordered[:-1]
    first = np.maximum.accumulate(np.where(np.concatenate((edge, changes)), places, 0), axis=0)
    ends = np.where(np.concatenate((changes, edge)), places, len(values))
    last = np.minimum.accumulate(ends[::-1], axis=0)[::-1]
    ranks = np.empty(values.shape)
    np.put_along_axis(ranks, order, (first + last) / 2, axis=0)
    return ranks


def _few(inside: Floats, outside: Floats) -> Score:
    """The discriminant of the ten columns that differ most."""
    return _discriminant(inside, outside, _best_columns(inside, outside, _FEW))


def _middle(inside: Floats, outside: Floats) -> Score:
    """The one column that differs most, cut in the middle between the worlds' means."""
    return _discriminant(inside, outside, _best_columns(inside, outside, 1))


def _one(inside: Floats, outside: Floats) -> Score:
    """The one column that differs most, cut where fewest trials are on the wrong side."""
    (column,) = _best_columns(inside, outside, 1)
    values = np.concatenate((inside[:, column], outside[:, column]))
    sign, place = _cut(inside[:, column], outside[:, column])
    spread = float(values.std()) or 1.0
    return lambda rows: np.asarray(sign * (rows[:, column] - place) / spread, dtype=np.float64)


def _folded(inside: Floats, outside: Floats) -> Score:
    """The one column whose distance from its middle differs most: a spread, or a gap that one world leaves open."""
    middle = np.median(np.concatenate((inside, outside)), axis=0)
    score = _one(np.abs(inside - middle), np.abs(outside - middle))
    return lambda rows: score(np.abs(rows - middle))


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
    # Loading it takes a second, which workers and commands that learn nothing need not wait.
    from sklearn.ensemble import RandomForestClassifier

    trees = RandomForestClassifier(n_estimators=_TREES, max_features=0.2, min_samples_leaf=2, random_state=0, n_jobs=1)
    worlds = np.repeat([1, 0], [len(inside), len(outside)])
    trees.fit(np.concatenate((inside, outside)), worlds)
    return lambda rows: np.asarray(trees.predict_proba(rows)[:, 1] - 0.5, dtype=np.float64)


_LEARNERS: Mapping[str, Teach] = {
    "one feature": _one,
    "one feature, middle": _middle,
    "one feature, folded": _folded,
    "ten features": _few,
    "discriminant": _discriminant,
    "forest": _forest,
}


def learn(inside: Floats, outside: Floats) -> LearnedScore:
    """The learner that does best in cross-validation, taught by all of these trials (n, F) of either world.

    Threshold and learner are chosen on these trials too: none of them may be tested afterwards.
    """
    columns = _varying(inside, outside)
    a, b = inside[:, columns], outside[:, columns]
    if not a.shape[1] or min(len(a), len(b)) < _FOLDS:
        return LearnedScore(
            learner="none", score=lambda rows: np.zeros(len(rows)), validation=Validation(errors=len(a))
        )
    taught = {name: teach for name, teach in _LEARNERS.items() if teach is not _forest or len(a) >= _OF_TREES}
    validated = {name: _validated(teach, a, b) for name, teach in taught.items()}
    name = min(validated, key=lambda name: validated[name].order)
    score, chosen = _LEARNERS[name](a, b), validated[name]
    return LearnedScore(learner=name, score=lambda rows: score(rows[:, columns]) - chosen.cut, validation=chosen)


def held_out_errors(inside: Floats, outside: Floats) -> int:
    """The errors of a discriminant of these trials (n, F) of either world, each scored by what the others taught."""
    if min(len(inside), len(outside)) < _FOLDS:
        return len(inside)
    return _errors(*_cross_validated(_discriminant, inside, outside), 0.0).total


def _validated(teach: Teach, inside: Floats, outside: Floats) -> Validation:
    """Cross-validation of one learner.

    A cut other than zero has to save a few errors, since it is chosen on the same trials; a threshold far out has to
    give the larger bound although its confidence allows for the number of thresholds that are tried.
    """
    first, second = _cross_validated(teach, inside, outside)
    spread = float(np.concatenate((first, second)).std()) or 1.0
    apart = float(first.mean() - second.mean()) / spread
    sign, place = _cut(first, second)
    plain, moved = (_errors(first, second, at) for at in (0.0, place))
    better = sign > 0 and plain.total - moved.total > math.sqrt(len(inside))
    errors, cut = (moved, place) if better else (plain, 0.0)
    bound = epsilon_error_rate(errors, 0.0, _CONFIDENCE)
    confidence = 1 - (1 - _CONFIDENCE) / (1 + len(_TAILS))
    # The cut itself comes first: it lies in a gap between the scores, which a quantile of few distinct ones does not.
    tails = np.quantile(np.concatenate((first, second)) - cut, _TAILS)
    thresholds = [_NEXT_TO_ZERO * spread, *(float(t) for t in tails if t != 0.0)]
    far = {t: epsilon_rectangle(_errors(first, second, cut + t), 0.0, confidence) for t in thresholds}
    best = max(far, key=lambda t: far[t])
    one_sided = far[best] > bound
    return Validation(
        errors=errors.total,
        bound=far[best] if one_sided else bound,
        apart=apart,
        cut=cut,
        threshold=best if one_sided else 0.0,
    )


def _errors(inside: Floats, outside: Floats, threshold: float) -> Errors:
    """The errors of scores that say world 0 above a threshold."""
    return Errors(
        false_positives=int((outside > threshold).sum()),
        negatives=len(outside),
        false_negatives=int((inside <= threshold).sum()),
        positives=len(inside),
    )


def _varying(inside: Floats, outside: Floats) -> Columns:
    """The numbers of the columns that vary, each of several equal ones once."""
    both = np.concatenate((inside, outside))
    varying = np.flatnonzero((both != both[:1]).any(0))
    _, first = np.unique(both[:, varying], axis=1, return_index=True)
    return np.asarray(varying[np.sort(first)])


def _cross_validated(teach: Teach, inside: Floats, outside: Floats) -> tuple[Floats, Floats]:
    """The scores of all trials, each by what the other folds taught."""
    scores = np.zeros(len(inside)), np.zeros(len(outside))
    for fold in range(_FOLDS):
        masks = [np.arange(len(world)) % _FOLDS == fold for world in (inside, outside)]
        score = teach(inside[~masks[0]], outside[~masks[1]])
        for kept, world, mask in zip(scores, (inside, outside), masks, strict=True):
            kept[mask] = score(world[mask])
    return scores
