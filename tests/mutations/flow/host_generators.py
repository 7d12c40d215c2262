"""Generators of NumPy and Python: seeds that are sent, short or used again, states put back, draws around a value."""

from __future__ import annotations

import random
import secrets
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from tests.mutations.flow.program import SIDE, Theme, pure
from tests.mutations.flow.worlds import (
    ANSWERED,
    ANSWERS,
    COLUMNS,
    EVERYONE,
    LABELS,
    NOISE,
    OTHER_LABELS,
    ROUNDS,
    answers,
    clipped_sum,
    noise_of,
)

__all__ = ["PROGRAMS"]

PROGRAMS = Theme("generators of NumPy and Python")


def _each(draw: Callable[[], float]) -> Callable[[], Tensor]:
    return lambda: torch.tensor([draw() for _ in range(ROUNDS)], dtype=torch.float32)


def _spread(sent, labels) -> float:
    return float(noise_of(sent, labels).std())


def _all_alike(sent) -> bool:
    """The adversary to whom the right labels show the same noise in each round."""
    return _spread(sent, OTHER_LABELS) < _spread(sent, LABELS)


def _drawn_again(noise: Callable[[int], list[float]], seeds: Callable[[list], range | list[int]]):
    """The adversary who draws the noise under each of these seeds."""

    def tells(sent) -> bool:
        wanted = {world: noise_of(sent, labels) for world, labels in enumerate((LABELS, OTHER_LABELS))}
        fits = [
            min(float((torch.tensor(noise(seed)) - wanted[world]).abs().max()) for seed in seeds(sent))
            for world in (0, 1)
        ]
        return fits[1] < fits[0]

    return tells


def _of_numpy(seed: int) -> list[float]:
    return np.random.default_rng(seed).normal(size=ROUNDS).tolist()


def _of_python(seed: int) -> list[float]:
    generator = random.Random(seed)
    return [generator.gauss(0, 1) for _ in range(ROUNDS)]


def _sent_seed(sent) -> list[int]:
    return [int(m.tensors[""]) for m in sent if m.kind == "seed"]


@PROGRAMS.broken(
    why="NumPy's generator is made anew in each round, with a seed that is secret and the same",
    claim=ANSWERS,
    tells=_all_alike,
)
def numpy_generator_with_one_secret_seed(wire):
    seed = secrets.randbits(128)
    answers(wire, _each(lambda: np.random.default_rng(seed).normal()))


@PROGRAMS.broken(
    why="Python's generator is made anew in each round, with a seed that is secret and the same",
    claim=ANSWERS,
    tells=_all_alike,
)
def python_generator_with_one_secret_seed(wire):
    seed = secrets.randbits(128)
    answers(wire, _each(lambda: random.Random(seed).gauss(0, 1)))


@PROGRAMS.broken(why="the state of Python's generator is put back before each draw", claim=ANSWERS, tells=_all_alike)
def python_state_put_back(wire):
    state = random.getstate()

    def draw() -> float:
        random.setstate(state)
        return random.gauss(0, 1)

    answers(wire, _each(draw))


@PROGRAMS.broken(why="the state of NumPy's generator is put back before each draw", claim=ANSWERS, tells=_all_alike)
def numpy_state_put_back(wire):
    state = np.random.get_state()  # noqa: NPY002

    def draw() -> float:
        np.random.set_state(state)  # noqa: NPY002
        return np.random.normal()  # noqa: NPY002

    answers(wire, _each(draw))


@PROGRAMS.broken(
    why="the seed of NumPy's generator is one of a thousand, which can all be tried",
    claim=ANSWERS,
    tells=_drawn_again(_of_numpy, lambda sent: range(1000)),
)
def numpy_seed_of_a_thousand(wire):
    generator = np.random.default_rng(secrets.randbelow(1000))
    answers(wire, lambda: torch.from_numpy(generator.normal(size=ROUNDS)).float())


@PROGRAMS.broken(
    why="the seed of Python's generator is one of a thousand, which can all be tried",
    claim=ANSWERS,
    tells=_drawn_again(_of_python, lambda sent: range(1000)),
)
def python_seed_of_a_thousand(wire):
    generator = random.Random(secrets.randbelow(1000))
    answers(wire, _each(lambda: generator.gauss(0, 1)))


@PROGRAMS.broken(
    why="the long seed of NumPy's generator is sent, for another use",
    origin=SIDE,
    claim=ANSWERS,
    tells=_drawn_again(_of_numpy, _sent_seed),
)
def numpy_seed_is_sent(wire):
    seed = secrets.randbits(62)
    wire.send("seed", torch.tensor([seed]), sender="server", receiver=0, round_=0)
    generator = np.random.default_rng(seed)
    answers(wire, lambda: torch.from_numpy(generator.normal(size=ROUNDS)).float())


@PROGRAMS.broken(
    why="the long seed of Python's generator is sent after the training, so that it can be repeated",
    origin=SIDE,
    claim=ANSWERS,
    tells=_drawn_again(_of_python, _sent_seed),
)
def python_seed_is_sent_afterwards(wire):
    seed = secrets.randbits(62)
    generator = random.Random(seed)
    answers(wire, _each(lambda: generator.gauss(0, 1)))
    wire.send("seed", torch.tensor([seed]), sender="server", receiver=0, round_=ROUNDS)


@PROGRAMS.sound(
    why="one seed of 128 bits from the operating system, of which nobody learns",
    claim=ANSWERS,
    std=NOISE,
)
def numpy_generator_with_a_long_seed(wire):
    generator = np.random.default_rng(secrets.randbits(128))
    answers(wire, lambda: torch.from_numpy(generator.standard_normal(ROUNDS)).float())


def _around(wire, draw: Callable[[Tensor], float]) -> None:
    """Answers that a library draws around the exact sum."""
    labels = wire.private(LABELS, OTHER_LABELS, what="labels", owner="server")
    weights = torch.zeros(COLUMNS)
    for round_ in range(ROUNDS):
        answer = torch.tensor([draw(clipped_sum(weights, labels, round_))], dtype=torch.float32)
        answer = wire.send("answer", answer, sender="server", receiver=0, round_=round_, records=EVERYONE)
        weights = weights - 0.05 * answer


@PROGRAMS.sound(why="NumPy's normal draw around the exact sum", claim=ANSWERS, std=NOISE, exact=lambda: ANSWERED)
def numpy_normal_around_the_sum(wire):
    generator = np.random.default_rng()
    _around(wire, lambda exact: generator.normal(exact.item(), NOISE))


@PROGRAMS.sound(why="Python's normal draw around the exact sum", claim=ANSWERS, std=NOISE, exact=lambda: ANSWERED)
def python_gauss_around_the_sum(wire):
    _around(wire, lambda exact: random.gauss(exact.item(), NOISE))


@PROGRAMS.broken(
    why="NumPy's normal draw around the exact sum, with the variance for the std",
    claim=ANSWERS,
    std=np.sqrt(NOISE),
)
def numpy_normal_with_the_variance(wire):
    generator = np.random.default_rng()
    _around(wire, lambda exact: generator.normal(exact.item(), np.sqrt(NOISE)))


@PROGRAMS.sound(why="NumPy's Laplace draw around the exact count", claim=pure(0.5), exact=lambda: 0.5)
def numpy_laplace_around_a_count(wire):
    labels = wire.private(LABELS, OTHER_LABELS, what="labels", owner="server")
    count = np.random.laplace(loc=labels.sum().item(), scale=2.0)  # noqa: NPY002
    wire.send("count", torch.tensor([count]), sender="server", receiver=0, round_=0)


@PROGRAMS.broken(
    why="the exact count is the spread of the noise, which it was to be the middle of",
    claim=pure(0.03),
    exact=lambda: float(abs((LABELS.sum() / OTHER_LABELS.sum()).log())),
)
def numpy_laplace_with_the_count_as_its_scale(wire):
    labels = wire.private(LABELS, OTHER_LABELS, what="labels", owner="server")
    count = np.random.laplace(scale=labels.sum().item())  # noqa: NPY002
    wire.send("count", torch.tensor([count]), sender="server", receiver=0, round_=0)
