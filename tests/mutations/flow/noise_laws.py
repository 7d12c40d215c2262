"""The many ways to draw one law of noise: libraries, transforms of uniforms, grids, and scales that are mistaken."""

from __future__ import annotations

import math
import random
import secrets

import numpy as np
import scipy.stats
import torch

from tests.mutations.flow.program import HABIT, PEER, SKETCH, Theme, gdp, pure
from tests.mutations.flow.worlds import (
    ANSWERED,
    ANSWERS,
    EVERYONE,
    FEATURES,
    LABELS,
    NOISE,
    OTHER_LABELS,
    ROUNDS,
    answers,
)

__all__ = ["PROGRAMS"]

PROGRAMS = Theme("noise laws")

_SCALE = 4.0
"""Scale of Laplace noise on one clipped sum, which moves by at most 1: ε is a quarter a round."""
_LAPLACE_EPSILON = ROUNDS / _SCALE
_LAPLACE = pure(_LAPLACE_EPSILON)


def _exact_laplace() -> float:
    return _LAPLACE_EPSILON


@PROGRAMS.sound(
    claim=_LAPLACE, why="Laplace noise of scale 4 on a sum that moves by 1, six times", exact=_exact_laplace
)
def laplace_of_distributions(wire):
    law = torch.distributions.Laplace(0.0, _SCALE)
    answers(wire, lambda: law.sample((ROUNDS,)) / NOISE)


@PROGRAMS.sound(claim=_LAPLACE, why="the difference of two exponentials is Laplace", exact=_exact_laplace)
def laplace_as_a_difference_of_exponentials(wire):
    def difference():
        a, b = torch.empty(2, ROUNDS).exponential_(1 / _SCALE)
        return (a - b) / NOISE

    answers(wire, difference)


@PROGRAMS.sound(claim=_LAPLACE, why="the inverse of Laplace's distribution function at a uniform", exact=_exact_laplace)
def laplace_by_its_inverse(wire):
    def inverse():
        u = torch.rand(ROUNDS) - 0.5
        return -_SCALE * u.sign() * torch.log1p(-2 * u.abs()) / NOISE

    answers(wire, inverse)


@PROGRAMS.sound(claim=_LAPLACE, why="NumPy's Laplace noise, of the same scale", exact=_exact_laplace)
def laplace_of_numpy(wire):
    answers(wire, lambda: torch.from_numpy(np.random.default_rng().laplace(0.0, _SCALE, ROUNDS)).float() / NOISE)


@PROGRAMS.broken(
    claim=_LAPLACE,
    why="the scale is divided by √2, as if it were the std of the noise",
    exact=lambda: math.sqrt(2) * _LAPLACE_EPSILON,
)
def laplace_scale_taken_for_std(wire):
    answers(wire, lambda: torch.distributions.Laplace(0.0, _SCALE / math.sqrt(2)).sample((ROUNDS,)) / NOISE)


@PROGRAMS.broken(claim=_LAPLACE, why="normal noise satisfies no ε without a δ", exact=lambda: math.inf, origin=PEER)
def gaussian_for_laplace(wire):
    answers(wire, lambda: torch.randn(ROUNDS) * _SCALE * math.sqrt(2) / NOISE)


def _by_counting_sides(wrong: float) -> float:
    """μ that an adversary reaches who counts the answers on the far side of the middle, each there with `wrong`."""
    few = scipy.stats.binom.sf(3, ROUNDS, wrong)
    missed = scipy.stats.binom.cdf(3, ROUNDS, 1 - wrong)
    return float(scipy.stats.norm.isf(few) - scipy.stats.norm.ppf(missed))


@PROGRAMS.broken(
    claim=ANSWERS,
    why="Laplace noise of the same std is denser around its middle: counting the answers above it shows more",
    exact=lambda: _by_counting_sides(0.5 * math.exp(-0.5 * math.sqrt(2) / NOISE)),
)
def laplace_for_gaussian(wire):
    answers(wire, lambda: torch.distributions.Laplace(0.0, 1 / math.sqrt(2)).sample((ROUNDS,)))


@PROGRAMS.sound(claim=ANSWERS, why="normal draws made of uniforms", exact=lambda: ANSWERED)
def box_muller(wire):
    def normals():
        u, v = torch.rand(2, ROUNDS)
        return torch.sqrt(-2 * torch.log(1 - u)) * torch.cos(2 * math.pi * v)

    answers(wire, normals)


@PROGRAMS.sound(claim=ANSWERS, why="a half-normal draw with a sign of its own is normal", exact=lambda: ANSWERED)
def half_normal_times_a_coin(wire):
    answers(
        wire, lambda: torch.distributions.HalfNormal(1.0).sample((ROUNDS,)) * (2.0 * torch.randint(2, (ROUNDS,)) - 1)
    )


@PROGRAMS.sound(claim=ANSWERS, why="the normal quantile of a uniform draw is normal", exact=lambda: ANSWERED)
def normal_by_its_inverse(wire):
    answers(wire, lambda: torch.special.ndtri(torch.rand(ROUNDS).double().clamp(1e-12, 1 - 1e-12)).float())


@PROGRAMS.sound(claim=ANSWERS, why="torch.normal is given the exact sum as its mean", exact=lambda: ANSWERED)
def normal_around_the_value(wire):
    y = wire.private(LABELS, OTHER_LABELS, what="labels", owner="server")
    w = torch.zeros(6)
    for t in range(ROUNDS):
        g = ((torch.sigmoid(FEATURES @ w) - y) * FEATURES[:, t]).clamp(-0.5, 0.5).sum()
        m = wire.send(
            "answer", torch.normal(g, NOISE).reshape(1), sender="server", receiver=0, round_=t, records=EVERYONE
        )
        w = w - 0.05 * m


@PROGRAMS.broken(
    claim=ANSWERS,
    why="the sum is given to torch.normal as its std too, through a relative floor",
    exact=lambda: math.inf,
)
def normal_with_a_std_from_the_value(wire):
    y = wire.private(LABELS, OTHER_LABELS, what="labels", owner="server")
    w = torch.zeros(6)
    for t in range(ROUNDS):
        g = ((torch.sigmoid(FEATURES @ w) - y) * FEATURES[:, t]).clamp(-0.5, 0.5).sum()
        m = torch.normal(g, torch.clamp(0.5 * g.abs(), min=NOISE))
        m = wire.send("answer", m.reshape(1), sender="server", receiver=0, round_=t, records=EVERYONE)
        w = w - 0.05 * m


@PROGRAMS.sound(claim=ANSWERS, why="distributions.Normal around the exact sum", exact=lambda: ANSWERED)
def sample_of_a_distribution(wire):
    y = wire.private(LABELS, OTHER_LABELS, what="labels", owner="server")
    w = torch.zeros(6)
    for t in range(ROUNDS):
        g = ((torch.sigmoid(FEATURES @ w) - y) * FEATURES[:, t]).clamp(-0.5, 0.5).sum()
        m = torch.distributions.Normal(g, NOISE).sample()
        m = wire.send("answer", m.reshape(1), sender="server", receiver=0, round_=t, records=EVERYONE)
        w = w - 0.05 * m


@PROGRAMS.sound(claim=ANSWERS, why="the same noise, added by addcmul with its std as a factor", exact=lambda: ANSWERED)
def added_by_addcmul(wire):
    y = wire.private(LABELS, OTHER_LABELS, what="labels", owner="server")
    w = torch.zeros(6)
    for t in range(ROUNDS):
        g = ((torch.sigmoid(FEATURES @ w) - y) * FEATURES[:, t]).clamp(-0.5, 0.5).sum().reshape(1)
        m = torch.addcmul(g, torch.randn(1), torch.tensor([NOISE]))
        m = wire.send("answer", m, sender="server", receiver=0, round_=t, records=EVERYONE)
        w = w - 0.05 * m


@PROGRAMS.sound(
    claim=ANSWERS,
    why="noise is what is first in the buffer, and the sum is added to it",
    origin=SKETCH,
    exact=lambda: ANSWERED,
)
def value_added_to_the_noise(wire):
    y = wire.private(LABELS, OTHER_LABELS, what="labels", owner="server")
    for t in range(ROUNDS):
        shares = ((0.5 - y) * FEATURES[:, t]).clamp(-0.5, 0.5)
        buffer = torch.empty(1).normal_(0, NOISE)
        buffer += shares.sum()
        wire.send("answer", buffer, sender="server", receiver=0, round_=t, records=EVERYONE)


@PROGRAMS.sound(
    claim=ANSWERS, why="the labels are weighed with public features and noise in one product", exact=lambda: ANSWERED
)
def noise_by_a_matrix_product(wire):
    y = wire.private(LABELS, OTHER_LABELS, what="labels", owner="server")
    shares = ((0.5 - y).unsqueeze(1) * FEATURES).clamp(-0.5, 0.5)
    noised = torch.baddbmm(
        shares.sum(0).reshape(1, 1, 6), torch.randn(1, 1, 6), NOISE * torch.eye(6).unsqueeze(0)
    ).reshape(6)
    for t in range(ROUNDS):
        wire.send("answer", noised[t : t + 1], sender="server", receiver=0, round_=t, records=EVERYONE)


@PROGRAMS.sound(
    claim=gdp(math.sqrt(ROUNDS) * 0.75 / (0.25 * NOISE)),
    why="a weighted mean of sum and noise has three times the ratio, and claims it",
    exact=lambda: math.sqrt(ROUNDS) * 0.75 / (0.25 * NOISE),
)
def interpolated_between_sum_and_noise(wire):
    y = wire.private(LABELS, OTHER_LABELS, what="labels", owner="server")
    for t in range(ROUNDS):
        s = ((0.5 - y) * FEATURES[:, t]).clamp(-0.5, 0.5).sum()
        wire.send(
            "answer",
            torch.lerp(s, NOISE * torch.randn(()), 0.25).reshape(1),
            sender="server",
            receiver=0,
            round_=t,
            records=EVERYONE,
        )


@PROGRAMS.broken(
    claim=ANSWERS,
    why="the weights of sum and noise are exchanged: the noise has a third of its weight",
    exact=lambda: 3 * ANSWERED,
)
def interpolated_the_wrong_way(wire):
    y = wire.private(LABELS, OTHER_LABELS, what="labels", owner="server")
    for t in range(ROUNDS):
        s = ((0.5 - y) * FEATURES[:, t]).clamp(-0.5, 0.5).sum()
        wire.send(
            "answer",
            torch.lerp(s, NOISE * torch.randn(()), 0.25).reshape(1),
            sender="server",
            receiver=0,
            round_=t,
            records=EVERYONE,
        )


_COUNT_EPSILON = 0.5
_RATIO = math.exp(-_COUNT_EPSILON)


def _counts(wire, noise):
    y = wire.private(LABELS.long(), OTHER_LABELS.long(), what="labels", owner="server")
    count = y.sum() + noise()
    wire.send("count", count.reshape(1), sender="server", receiver=0, round_=0, records=EVERYONE)


@PROGRAMS.sound(
    claim=pure(_COUNT_EPSILON),
    why="the difference of two geometric draws is the discrete Laplace law, on a count that moves by 1",
    exact=lambda: _COUNT_EPSILON,
)
def geometric_noise_on_a_count(wire):
    law = torch.distributions.Geometric(1 - _RATIO)
    _counts(wire, (law.sample() - law.sample()).long)


@PROGRAMS.broken(
    claim=pure(_COUNT_EPSILON),
    why="one geometric draw has no negative values: the count shows itself from below",
    exact=lambda: math.inf,
)
def one_sided_geometric_noise_on_a_count(wire):
    law = torch.distributions.Geometric(1 - _RATIO)
    _counts(wire, lambda: law.sample().long())


@PROGRAMS.sound(
    claim=ANSWERS,
    why="noise that the operating system's generator makes, by the standard library",
    exact=lambda: ANSWERED,
)
def noise_of_the_operating_system(wire):
    source = secrets.SystemRandom()
    answers(wire, lambda: torch.tensor([source.gauss(0.0, 1.0) for _ in range(ROUNDS)]))


@PROGRAMS.sound(claim=ANSWERS, why="the same noise by Python's own generator", exact=lambda: ANSWERED)
def noise_of_pythons_random(wire):
    answers(wire, lambda: torch.tensor([random.gauss(0.0, 1.0) for _ in range(ROUNDS)]))


@PROGRAMS.sound(claim=ANSWERS, why="the same noise from a NumPy generator that nobody seeds", exact=lambda: ANSWERED)
def noise_of_a_numpy_generator(wire):
    rng = np.random.default_rng()
    answers(wire, lambda: torch.from_numpy(rng.normal(size=ROUNDS).astype(np.float32)))


@PROGRAMS.broken(
    claim=ANSWERS,
    why="a NumPy generator is made anew in each round with a seed that is in the code",
    tells=lambda sent: _recomputed(sent, OTHER_LABELS) < _recomputed(sent, LABELS),
)
def numpy_generator_with_a_seed_in_the_code(wire):
    y = wire.private(LABELS, OTHER_LABELS, what="labels", owner="server")
    for t in range(ROUNDS):
        s = ((0.5 - y) * FEATURES[:, t]).clamp(-0.5, 0.5).sum()
        z = np.random.default_rng(seed=42 + t).normal(scale=NOISE)
        wire.send("answer", (s + z).reshape(1), sender="server", receiver=0, round_=t, records=EVERYONE)


def _recomputed(sent, labels):
    s = [((0.5 - labels) * FEATURES[:, t]).clamp(-0.5, 0.5).sum() for t in range(ROUNDS)]
    z = [np.random.default_rng(seed=42 + t).normal(scale=NOISE) for t in range(ROUNDS)]
    return sum(abs(float(m.tensors[""]) - float(s[m.round]) - z[m.round]) for m in sent)


@PROGRAMS.sound(
    claim=ANSWERS, why="a uniform draw is added to noise that suffices", origin=SKETCH, exact=lambda: ANSWERED
)
def dithered(wire):
    answers(wire, lambda: torch.randn(ROUNDS) + (torch.rand(ROUNDS) - 0.5) / NOISE)


@PROGRAMS.sound(
    claim=ANSWERS, why="normal draws in double precision, rounded to single", origin=HABIT, exact=lambda: ANSWERED
)
def drawn_in_double_precision(wire):
    answers(wire, lambda: torch.randn(ROUNDS, dtype=torch.float64).float())


@PROGRAMS.sound(
    claim=ANSWERS,
    why="the noise of all rounds is drawn before the labels are read, and nobody else sees it",
    exact=lambda: ANSWERED,
)
def drawn_before_the_labels_are_read(wire):
    noise = torch.randn(ROUNDS)
    answers(wire, lambda: noise)
