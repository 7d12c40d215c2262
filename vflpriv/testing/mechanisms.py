"""Assertions about the sensitivity and the ε of a mechanism or a training, from pairs of neighbouring inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from hypothesis import HealthCheck, Phase, given, seed, settings, target
from hypothesis import strategies as st
from numpy.typing import ArrayLike

from vflpriv.audits.learned.layout import ViewLayout
from vflpriv.audits.statistics.guesses import epsilon_guesses
from vflpriv.common import formatting
from vflpriv.common.numerics import Floats
from vflpriv.common.seeds import host_generator
from vflpriv.core.views import Adversary, View
from vflpriv.core.wire import Message
from vflpriv.errors import InputError
from vflpriv.recording.checked_wire import CheckedWire, MemoryWire

__all__ = ["Train", "assert_epsilon", "assert_sensitivity", "assert_training_epsilon", "training_as_mechanism"]

Train = Callable[[CheckedWire, int, int], object]
"""A function of (wire, world, seed) that trains once. Worlds 0 and 1 differ in one unit, such as a record's label."""


def training_as_mechanism(
    train: Train, *, devices: int, classes: int, records: int, view: str
) -> Callable[[int, np.random.Generator], Floats]:
    """A function from a world and a random generator to all that the view sees, as one vector of fixed length.

    One training in each world gives the layout of the vector. What another training sends beyond it is counted and
    added up.
    """
    adversary = Adversary.parse(view)
    if len(adversary.each(devices)) > 1:
        raise InputError("view", view, "one adversary, such as device(0)")

    def seen(world: int, seed: int) -> tuple[Message, ...]:
        wire = MemoryWire(devices=devices, classes=classes, records=records)
        train(wire, world, seed)
        return View.of(wire.transcript, adversary, devices=devices, classes=classes).messages

    layout = ViewLayout([seen(world, 0) for world in (0, 1)])

    def run(world: int, rng: np.random.Generator) -> Floats:
        return layout.vector(seen(world, int(rng.integers(2**63 - 1))))

    return run


T = TypeVar("T")
Score = Callable[[Floats], Floats]

_SLACK = 1e-9
_FEW = 32
"""The most distinct outputs whose frequencies are counted."""


def assert_sensitivity(
    function: Callable[[T], ArrayLike],
    bound: float,
    neighbours: st.SearchStrategy[tuple[T, T]],
    *,
    norm: float = 2,
    examples: int = 200,
    start: int = 0,
    simplest: bool = False,
) -> None:
    """Search pairs of neighbours for one whose noiseless values lie further apart than `bound`, in this norm.

    Hypothesis searches for the largest distance and stops at the first that exceeds the bound; with `simplest` it then
    searches for the simplest such pair, which takes longer. `start` is the seed of the search. A search that finds
    nothing is no proof.

    >>> import numpy as np
    >>> from vflpriv.testing import neighbouring_rows
    >>> def clipped_sum(rows):  # each row within the unit ball
    ...     return (rows / np.maximum(1, np.linalg.norm(rows, axis=1, keepdims=True))).sum(0)
    >>> assert_sensitivity(clipped_sum, 2.0, neighbouring_rows("record"))
    >>> assert_sensitivity(clipped_sum, 1.0, neighbouring_rows("add-remove"))

    A one-sided clip does not bound the sensitivity:

    >>> try:
    ...     assert_sensitivity(lambda rows: np.minimum(rows, 1.0).sum(), 2.0, neighbouring_rows("record", width=1))
    ... except AssertionError as error:
    ...     print(str(error).split(":")[0])
    Expected a sensitivity of at most 2 (L2)
    """

    phases = [Phase.generate, Phase.target, *([Phase.shrink] if simplest else [])]

    @seed(start)
    @settings(
        max_examples=examples, deadline=None, database=None, phases=phases, suppress_health_check=list(HealthCheck)
    )
    @given(neighbours)
    def search(pair: tuple[T, T]) -> None:
        left, right = (np.asarray(function(side), dtype=np.float64).reshape(-1) for side in pair)
        distance = float(np.linalg.norm(left - right, ord=norm))
        if np.isfinite(distance):
            target(distance)
        if not distance <= bound * (1 + _SLACK):
            raise AssertionError(
                f"Expected a sensitivity of at most {bound:g} (L{norm:g}): found {distance:.6g} between "
                f"{_shortened(pair[0])} and {_shortened(pair[1])}"
            )

    search()


def assert_epsilon(
    mechanism: Callable[[Any, np.random.Generator], ArrayLike],
    x: Any,
    x_neighbour: Any,
    epsilon: float,
    delta: float,
    *,
    trials: int = 4000,
    seed: int = 0,
    confidence: float = 0.999,
    score: Score | None = None,
) -> float:
    """Run a mechanism on two neighbouring inputs and fail if its outputs show more than (epsilon, delta).

    A mechanism that is (epsilon, delta)-DP fails with probability at most 1 - confidence, whatever its outputs are.
    `score` maps outputs, (trials, size), to numbers that are larger for `x`; without it a score is learnt from a third
    of the trials, which are not tested. Returns the measured lower bound on epsilon. Passing is no proof: another pair
    of inputs may show more.

    >>> def noisy(x, rng):
    ...     return x + rng.laplace(0, 1.0)
    >>> 0.5 < assert_epsilon(noisy, 1.0, 0.0, epsilon=1.0, delta=0.0) < 1.0
    True
    >>> assert_epsilon(noisy, 3.0, 0.0, epsilon=1.0, delta=0.0)
    Traceback (most recent call last):
        ...
    AssertionError: Expected (1, 0)-DP: measured epsilon >= 2.3... at 99.9 % confidence with 2 x 4000 trials, ...
    """
    if trials < 30 or not epsilon >= 0:
        raise ValueError(f"Expected trials={trials} >= 30 and epsilon={epsilon} >= 0.")
    rng = host_generator(seed, "search", trials)
    worlds = [_outputs(mechanism, side, rng, trials) for side in (x, x_neighbour)]
    if score is None:
        learnt = trials // 3
        score = _learn(*(outputs[:learnt] for outputs in worlds))
        worlds = [outputs[learnt:] for outputs in worlds]
    inside, outside = (np.asarray(score(outputs), dtype=np.float64) for outputs in worlds)
    lower = epsilon_guesses(inside, outside, delta, confidence, seed=seed)
    if lower > epsilon:
        raise AssertionError(
            f"Expected ({epsilon:g}, {delta:g})-DP: measured epsilon >= {lower:.4g} at "
            f"{formatting.confidence(confidence)} confidence with 2 x {trials} trials, x = {_shortened(x)} against "
            f"{_shortened(x_neighbour)}"
        )
    return lower


def assert_training_epsilon(
    train: Train,
    epsilon: float,
    delta: float,
    *,
    devices: int,
    classes: int,
    records: int,
    view: str,
    trials: int = 200,
    seed: int = 0,
    confidence: float = 0.999,
    score: Score | None = None,
) -> float:
    """Train a system of your own in two neighbouring worlds, and fail if what `view` sees shows more than epsilon.

    `train(wire, world, seed)` passes what it sends to `wire.up` and `wire.down`, as with `vflpriv.record`; world 1
    differs from world 0 in one unit. What counts is all that the view sees: values and record ids, which messages are
    sent, and their order, rounds and shapes. The other arguments and the result are those of `assert_epsilon`. The
    outputs that a `score` is given begin with the values of all tensors, in the order in which they are sent.
    """
    mechanism = training_as_mechanism(train, devices=devices, classes=classes, records=records, view=view)
    return assert_epsilon(mechanism, 0, 1, epsilon, delta, trials=trials, seed=seed, confidence=confidence, score=score)


def _outputs(mechanism: Callable[..., ArrayLike], x: Any, rng: np.random.Generator, trials: int) -> Floats:
    """The outputs of independent runs, (trials, size)."""
    return np.stack([np.asarray(mechanism(x, rng), dtype=np.float64).reshape(-1) for _ in range(trials)])


def _learn(inside: Floats, outside: Floats) -> Score:
    """A score that is larger for `inside`: log odds of the counts if few outputs are distinct, else a linear one."""
    values, place = np.unique(np.concatenate([inside, outside]), axis=0, return_inverse=True)
    if len(values) <= _FEW:
        place = place.reshape(-1)
        counts = [np.bincount(p, minlength=len(values)) + 0.5 for p in (place[: len(inside)], place[len(inside) :])]
        odds = {tuple(v): float(o) for v, o in zip(values, np.log(counts[0] / counts[1]), strict=True)}
        return lambda outputs: np.array([odds.get(tuple(row), 0.0) for row in outputs])
    spread, shift = (inside.var(axis=0) + outside.var(axis=0)) / 2, inside.mean(axis=0) - outside.mean(axis=0)
    # An entry that never varied within a world, and differs between them, decides by itself.
    certain = (spread == 0) & (shift != 0)
    if certain.any():
        line = certain / np.where(certain, shift, 1.0)
        return lambda outputs: outputs @ line
    line = shift / np.where(spread > 0, spread, 1.0)
    return lambda outputs: outputs @ line


def _shortened(value: object) -> str:
    """A value on one line of at most 200 characters."""
    return formatting.shorten(" ".join(repr(value).split()), 200)
