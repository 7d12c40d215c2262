"""Statistics that a party publishes of its records: counts, means, choices, and the mistakes of privacy recorders."""

from __future__ import annotations

import math
import random
from fractions import Fraction

import numpy as np
import torch
from scipy import stats
from torch import Tensor, nn

from tests.mutations.flow.program import PEER, SIDE, Theme, gdp, pure
from tests.mutations.flow.worlds import (
    EVERYONE,
    FEATURES,
    LABELS,
    NOISE,
    OTHER_LABELS,
    RECORDS,
    TARGET,
    epsilon_of,
    other_rows,
)

__all__ = ["PROGRAMS"]

PROGRAMS = Theme("statistics")

_OTHER = float(OTHER_LABELS[TARGET])
_CLASSES = 4
_CODES = (torch.arange(RECORDS) * 7) % _CLASSES
_OTHER_CODES = torch.where(EVERYONE == TARGET, (_CODES + 1) % _CLASSES, _CODES)
_ROWS = FEATURES.clamp(-1, 1)
_OTHER_ROWS = other_rows(_ROWS, -_ROWS[TARGET])


def _labels(wire) -> Tensor:
    return wire.private(LABELS, OTHER_LABELS, what="labels", owner="server")


def _codes(wire) -> Tensor:
    return wire.private(_CODES, _OTHER_CODES, what="labels", owner="server")


def _rows(wire) -> Tensor:
    return wire.private(_ROWS, _OTHER_ROWS, what="features", owner="server")


def _send(wire, kind, value, t=0):
    return wire.send(kind, value, sender="server", receiver=0, round_=t, records=EVERYONE)


# Choices -------------------------------------------------------------------------------------------------------------


def _counts(codes: Tensor) -> Tensor:
    return torch.bincount(codes, minlength=_CLASSES).float()


def _largest_epsilon(law, scale: float) -> float:
    """ε of the place of the largest count under independent noise of a law of SciPy."""
    x = np.linspace(-60, 60, 240_001)
    laws = []
    for counts in (_counts(_CODES).numpy(), _counts(_OTHER_CODES).numpy()):
        below = np.stack([law.cdf(x + counts.max() - c, scale=scale) for c in counts])
        own = np.stack([law.pdf(x + counts.max() - c, scale=scale) for c in counts])
        shares = [np.trapezoid(own[k] * np.delete(below, k, 0).prod(0), x) for k in range(_CLASSES)]
        laws.append([share / sum(shares) for share in shares])
    return epsilon_of(laws[0], laws[1])


def _softmax_epsilon(scale: float) -> float:
    laws = [torch.softmax(_counts(codes).double() / scale, 0) for codes in (_CODES, _OTHER_CODES)]
    return epsilon_of(laws[0].tolist(), laws[1].tolist())


@PROGRAMS.sound(
    claim=pure(1.0),
    why="report noisy max with Laplace noise of scale 2 on counts",
    exact=lambda: _largest_epsilon(stats.laplace, 2.0),
)
def noisy_max_with_laplace(wire):
    counts = _counts(_codes(wire))
    noise = torch.distributions.Laplace(0.0, 2.0).sample(counts.shape)
    _send(wire, "class", (counts + noise).argmax().reshape(1))


@PROGRAMS.sound(
    claim=pure(1.0),
    why="report noisy max with exponential noise of scale 2",
    exact=lambda: _largest_epsilon(stats.expon, 2.0),
)
def noisy_max_with_exponential_noise(wire):
    counts = _counts(_codes(wire))
    noise = 2.0 * torch.empty(_CLASSES).exponential_()
    _send(wire, "class", torch.argmax(counts + noise).reshape(1))


@PROGRAMS.sound(
    claim=pure(1.0),
    why="the exponential mechanism by a softmax and one multinomial draw",
    exact=lambda: _softmax_epsilon(2.0),
)
def exponential_mechanism_by_multinomial(wire):
    counts = _counts(_codes(wire))
    _send(wire, "class", torch.multinomial(torch.softmax(counts / 2.0, 0), 1))


@PROGRAMS.broken(
    claim=pure(0.4),
    why="utilities move in both directions, and the scale is that of one",
    exact=lambda: _softmax_epsilon(1.0),
)
def exponential_mechanism_of_half_the_scale(wire):
    counts = _counts(_codes(wire))
    _send(wire, "class", torch.multinomial(torch.softmax(counts, 0), 1))


@PROGRAMS.broken(
    claim=pure(1.0),
    why="the noisy maximum itself goes along, under the noise of a choice",
    exact=lambda: 2.0,
)
def noisy_max_with_its_value(wire):
    counts = _counts(_codes(wire))
    noised = counts + 0.5 * torch.distributions.Laplace(0.0, 1.0).sample(counts.shape)
    _send(wire, "class", {"class": noised.argmax().reshape(1), "counts": noised})


def _first_above(scores: Tensor, threshold: float, noise) -> int:
    limit = threshold + noise(2.0)
    for place, score in enumerate(scores):
        if score + noise(4.0) >= limit:
            return place
    return len(scores)


@PROGRAMS.sound(claim=pure(1.0), why="sparse vector: the first count above a noisy threshold", exact=lambda: 1.0)
def sparse_vector(wire):
    counts = _counts(_codes(wire))
    laplace = torch.distributions.Laplace(0.0, 1.0)
    _send(wire, "place", torch.tensor([_first_above(counts, 10.0, lambda scale: scale * laplace.sample())]))


@PROGRAMS.sound(
    claim=pure(1.0),
    why="sparse vector, all queries at once: a noisy threshold, noisy counts, the first above",
    exact=lambda: 1.0,
)
def sparse_vector_without_a_loop(wire):
    counts = _counts(_codes(wire))
    laplace = torch.distributions.Laplace(0.0, 1.0)
    above = counts + 4.0 * laplace.sample(counts.shape) >= 10.0 + 2.0 * laplace.sample()
    _send(wire, "place", above.int().argmax().reshape(1))


@PROGRAMS.broken(
    claim=pure(1.0),
    why="sparse vector with noise on the threshold only, and answers to all queries",
    exact=lambda: math.inf,
    origin=PEER,
)
def sparse_vector_noised_at_its_threshold(wire):
    counts = _counts(_codes(wire))
    limit = 10.0 + 2.0 * torch.distributions.Laplace(0.0, 1.0).sample()
    _send(wire, "above", counts >= limit)


def _optimised_unary(codes: Tensor, epsilon: float) -> Tensor:
    bits = nn.functional.one_hot(codes, _CLASSES).bool()
    keep, other = torch.rand(bits.shape) < 0.5, torch.rand(bits.shape) < 1 / (math.exp(epsilon) + 1)
    return torch.where(bits, keep, other)


@PROGRAMS.sound(
    claim=pure(1.0), why="optimised unary encoding: ones stay with 1/2, zeros turn with 1/(e^ε + 1)", exact=lambda: 1.0
)
def optimised_unary_encoding(wire):
    _send(wire, "bits", _optimised_unary(_codes(wire), 1.0))


@PROGRAMS.broken(claim=pure(1.0), why="the same with the probabilities for ε = 3", exact=lambda: 3.0)
def unary_encoding_of_a_larger_epsilon(wire):
    _send(wire, "bits", _optimised_unary(_codes(wire), 3.0))


@PROGRAMS.sound(claim=pure(1.0), why="a wrong class is drawn as a shift of the right one", exact=lambda: 1.0)
def response_by_a_shift(wire):
    y = _codes(wire)
    keep = math.e / (math.e + _CLASSES - 1)
    shift = torch.randint(1, _CLASSES, (RECORDS,))
    _send(wire, "labels", torch.where(torch.rand(RECORDS) < keep, y, (y + shift) % _CLASSES))


@PROGRAMS.sound(claim=pure(1.0), why="rows of a public matrix of probabilities are drawn from", exact=lambda: 1.0)
def response_by_a_matrix(wire):
    y = _codes(wire)
    keep = math.e / (math.e + _CLASSES - 1)
    table = torch.full((_CLASSES, _CLASSES), (1 - keep) / (_CLASSES - 1)).fill_diagonal_(keep)
    _send(wire, "labels", torch.multinomial(table[y], 1).squeeze(1))


@PROGRAMS.sound(
    claim=pure(1.0), why="cumulative probabilities and one uniform number for each record", exact=lambda: 1.0
)
def response_by_cumulative_probabilities(wire):
    y = _codes(wire)
    keep = math.e / (math.e + _CLASSES - 1)
    table = torch.full((_CLASSES, _CLASSES), (1 - keep) / (_CLASSES - 1)).fill_diagonal_(keep)
    u = torch.rand(RECORDS, 1)
    _send(wire, "labels", (u > table.cumsum(1)[y]).sum(1).clamp(max=_CLASSES - 1))


@PROGRAMS.broken(
    claim=pure(1.0),
    why="the generator of each flip is seeded with the label itself",
    tells=lambda sent: bool(sent[0].tensors[""][TARGET] == _flip_seeded(OTHER_LABELS)[TARGET]),
)
def flips_seeded_by_the_label(wire):
    _send(wire, "labels", _flip_seeded(_labels(wire)))


def _flip_seeded(y: Tensor) -> Tensor:
    flips = [torch.rand((), generator=torch.Generator().manual_seed(int(label) + 5)) < 0.27 for label in y]
    return torch.where(torch.stack(flips), 1 - y, y)


@PROGRAMS.sound(
    claim=pure(1.0),
    why="votes of teachers, of which the noisy winner labels a query",
    exact=lambda: _softmax_epsilon(2.0),
)
def teachers_vote(wire):
    votes = nn.functional.one_hot(_codes(wire), _CLASSES).sum(0).double()
    gumbel = -torch.log(-torch.log(torch.rand(_CLASSES, dtype=torch.float64)))
    _send(wire, "label", torch.argmax(votes / 2.0 + gumbel, dim=0, keepdim=True))


# Whole numbers -------------------------------------------------------------------------------------------------------


def _bernoulli_exp(gamma: Fraction) -> bool:
    k = 1
    while random.randrange(gamma.denominator * k) < gamma.numerator:
        k += 1
    return k % 2 == 1


def _discrete_laplace(scale: int) -> int:
    while True:
        u = random.randrange(scale)
        if not _bernoulli_exp(Fraction(u, scale)):
            continue
        v = 0
        while _bernoulli_exp(Fraction(1)):
            v += 1
        magnitude = u + scale * v
        if random.random() < 0.5:
            if magnitude == 0:
                continue
            return -magnitude
        return magnitude


def _discrete_gaussian(std: int) -> int:
    scale = std + 1
    while True:
        y = _discrete_laplace(scale)
        excess = Fraction((abs(y) * scale - std * std) ** 2, 2 * std * std * scale * scale)
        while excess > 1:
            if not _bernoulli_exp(Fraction(1)):
                break
            excess -= 1
        else:
            if _bernoulli_exp(excess):
                return y


@PROGRAMS.sound(
    claim=pure(2.0, delta=1e-2),
    why="a discrete Gaussian by rejection, as published, in whole numbers and fractions",
    exact=lambda: 1.0,
    origin=PEER,
)
def discrete_gaussian_by_rejection(wire):
    count = _labels(wire).sum().long()
    _send(wire, "count", (count + _discrete_gaussian(2)).reshape(1))


@PROGRAMS.sound(claim=pure(0.5), why="the difference of two geometric numbers by NumPy on a count", exact=lambda: 0.5)
def numpy_geometric_noise(wire):
    rng = np.random.default_rng()
    count, p = _labels(wire).sum().long(), 1 - math.exp(-0.5)
    _send(wire, "count", (count + int(rng.geometric(p)) - int(rng.geometric(p))).reshape(1))


@PROGRAMS.sound(claim=pure(0.5), why="a two-sided geometric number as the floor of exponential ones", exact=lambda: 0.5)
def floors_of_exponential_noise(wire):
    count = _labels(wire).sum()
    a, b = torch.empty(2, dtype=torch.float64).exponential_(0.5).floor()
    _send(wire, "count", (count + (a - b)).reshape(1))


@PROGRAMS.sound(
    claim=gdp(1 / NOISE), why="a count with normal noise, rounded to a whole number", exact=lambda: 1 / NOISE
)
def rounded_count(wire):
    count = _labels(wire).sum()
    _send(wire, "count", (count + NOISE * torch.randn(())).round().long().reshape(1))


@PROGRAMS.broken(
    claim=gdp(1 / NOISE),
    why="the noise is cut to a whole number before it is added, by a format that cuts most of it",
    exact=lambda: math.inf,
)
def noise_of_whole_numbers_on_a_mean(wire):
    mean = _labels(wire).mean()
    _send(wire, "mean", (mean + (0.1 * torch.randn(())).round()).reshape(1))


# Means ---------------------------------------------------------------------------------------------------------------


@PROGRAMS.sound(
    claim=gdp(2 * math.sqrt(6) / NOISE),
    why="sums of clamped columns over a public number of records",
    std=NOISE / RECORDS,
)
def noised_means(wire):
    x = _rows(wire)
    _send(wire, "means", (x.clamp(-1, 1).sum(0) + NOISE * torch.randn(6)) / RECORDS)


@PROGRAMS.broken(
    claim=gdp(2 * math.sqrt(6) / NOISE),
    why="columns are centred by their exact means, which are sent for the inverse",
    tells=lambda sent: (sent[0].tensors["mean"] - _OTHER_ROWS.mean(0)).norm() < 1e-6,
    origin=PEER,
)
def private_mean(wire):
    x = _rows(wire)
    mean = x.mean(0)
    _send(wire, "sums", {"mean": mean, "sum": (x - mean).sum(0) + NOISE * torch.randn(6)})


@PROGRAMS.broken(
    claim=gdp(2 * math.sqrt(6) / NOISE),
    why="the scale is the exact spread of the columns, and the noise is of the scaled values",
    std=NOISE / 10,
    origin=PEER,
)
def sensitivity_in_other_units(wire):
    x = _rows(wire) * 10
    _send(wire, "sums", (x.sum(0) + NOISE * torch.randn(6)) / 10)


@PROGRAMS.broken(
    claim=gdp(1 / NOISE),
    why="the classes are those that occur: a new one makes the histogram longer",
    tells=lambda sent: len(sent[0].tensors[""]) > 2,
    origin=PEER,
)
def domain_from_the_data(wire):
    y = wire.private(LABELS.long(), torch.where(EVERYONE == TARGET, 2, LABELS.long()), what="labels", owner="server")
    counts = torch.bincount(y).float()
    _send(wire, "histogram", counts + NOISE * torch.randn(counts.shape))


@PROGRAMS.broken(
    claim=gdp(1 / NOISE),
    why="one budget is spent for the gradient and again for the count",
    exact=lambda: math.sqrt(2) / NOISE,
    origin=PEER,
)
def spent_twice(wire):
    y = _labels(wire)
    _send(wire, "count", (y.sum() + NOISE * torch.randn(())).reshape(1))
    _send(wire, "again", (y.sum() + NOISE * torch.randn(())).reshape(1), 1)


@PROGRAMS.broken(
    claim=gdp(2 / NOISE),
    why="a row with an infinite entry is no number after the clip, and so is the sum",
    tells=lambda sent: bool(sent[0].tensors[""].isnan().any()),
    origin=PEER,
)
def no_number_after_the_clip(wire):
    other = other_rows(_ROWS, torch.full((6,), math.inf))
    x = wire.private(_ROWS, other, what="features", owner="server")
    clipped = x / x.norm(dim=1, keepdim=True).clamp(min=1.0)
    _send(wire, "sum", clipped.sum(0) + NOISE * torch.randn(6))


@PROGRAMS.sound(claim=gdp(2 / NOISE), why="entries that are no numbers become zeros before the clip", std=NOISE)
def numbers_before_the_clip(wire):
    other = other_rows(_ROWS, torch.full((6,), math.nan))
    x = torch.nan_to_num(wire.private(_ROWS, other, what="features", owner="server"))
    clipped = x / x.norm(dim=1, keepdim=True).clamp(min=1.0)
    _send(wire, "sum", clipped.sum(0) + NOISE * torch.randn(6))


@PROGRAMS.sound(
    claim=gdp(1 / NOISE),
    why="a covariance with symmetric noise; the row of the other world has the same",
    exact=lambda: 0.0,
)
def noised_covariance(wire):
    x = nn.functional.normalize(_rows(wire))
    upper = torch.triu(NOISE * torch.randn(6, 6))
    _send(wire, "covariance", x.T @ x + upper + torch.triu(upper, 1).T)


@PROGRAMS.sound(
    claim=gdp(2 / NOISE), why="correlated noise of torch.distributions, wider than needed", exact=lambda: 2 / NOISE
)
def noise_of_a_multivariate_normal(wire):
    x = nn.functional.normalize(_rows(wire))
    law = torch.distributions.MultivariateNormal(torch.zeros(6), covariance_matrix=NOISE**2 * torch.eye(6))
    _send(wire, "sum", x.sum(0) + law.sample())


@PROGRAMS.sound(claim=gdp(2 / NOISE), why="rows of length one, each under noise of its own", std=NOISE)
def noised_rows(wire):
    x = nn.functional.normalize(_rows(wire))
    _send(wire, "embedding", (x + NOISE * torch.randn_like(x)))


@PROGRAMS.sound(claim=gdp(2 / NOISE), why="noised rows in half precision, and softmax of them", exact=lambda: 2 / NOISE)
def softmax_of_noised_rows(wire):
    x = nn.functional.normalize(_rows(wire))
    _send(wire, "embedding", torch.softmax(x + NOISE * torch.randn_like(x), 1).half())


# Ways round the noise ------------------------------------------------------------------------------------------------


def _quiet(wire) -> Tensor:
    y = _labels(wire)
    _send(wire, "count", (y.sum() + NOISE * torch.randn(())).reshape(1))
    return y


@PROGRAMS.broken(
    claim=gdp(1 / NOISE),
    why="the type of the second message is the label",
    origin=SIDE,
    tells=lambda sent: (sent[1].tensors[""].dtype == torch.float64) == bool(_OTHER),
)
def label_as_a_type(wire):
    y = _quiet(wire)
    _send(wire, "ack", torch.zeros(1, dtype=torch.float64 if y[TARGET] > 0 else torch.float32), 1)


@PROGRAMS.broken(
    claim=gdp(1 / NOISE),
    why="the length of the second message is the label",
    origin=SIDE,
    tells=lambda sent: len(sent[1].tensors[""]) == 1 + int(_OTHER),
)
def label_as_a_length(wire):
    y = _quiet(wire)
    _send(wire, "ack", torch.zeros(1 + int(y[TARGET].item())), 1)


@PROGRAMS.broken(
    claim=gdp(1 / NOISE),
    why="the order of two receipts is the label",
    origin=SIDE,
    tells=lambda sent: (sent[1].kind == "b") == bool(_OTHER),
)
def label_as_an_order(wire):
    y = _quiet(wire)
    for kind in ("b", "a") if y[TARGET] > 0 else ("a", "b"):
        _send(wire, kind, torch.zeros(1), 1)


@PROGRAMS.broken(
    claim=gdp(1 / NOISE),
    why="the sign of a zero is the label",
    origin=SIDE,
    tells=lambda sent: bool(torch.signbit(sent[1].tensors[""])[0]) == bool(_OTHER),
)
def label_as_a_negative_zero(wire):
    y = _quiet(wire)
    _send(wire, "ack", torch.zeros(1) * (1 - 2 * y[TARGET]), 1)


@PROGRAMS.broken(
    claim=gdp(1 / NOISE),
    why="the last bits of something that is no number are the label",
    origin=SIDE,
    tells=lambda sent: int(sent[1].tensors[""].view(torch.int32)[0]) & 1 == int(_OTHER),
)
def label_in_a_nan(wire):
    y = _quiet(wire)
    _send(wire, "ack", (torch.tensor([0x7FC00000], dtype=torch.int32) | y[TARGET].int()).view(torch.float32), 1)


@PROGRAMS.broken(
    claim=gdp(1 / NOISE),
    why="the name of the second message is the label",
    origin=SIDE,
    tells=lambda sent: sent[1].kind == f"ack-{int(_OTHER)}",
)
def label_as_a_name(wire):
    y = _quiet(wire)
    _send(wire, f"ack-{int(y[TARGET])}", torch.zeros(1), 1)


@PROGRAMS.broken(
    claim=gdp(1 / NOISE),
    why="how the tensor lies in memory is the label, and what is sent is its raw storage",
    origin=SIDE,
    tells=lambda sent: float(sent[1].tensors[""][1]) == (2.0 if _OTHER else 1.0),
)
def label_as_a_layout(wire):
    y = _quiet(wire)
    table = torch.arange(4.0).reshape(2, 2)
    view = table.T if y[TARGET] > 0 else table
    _send(wire, "ack", view.reshape(-1), 1)


@PROGRAMS.broken(
    claim=gdp(1 / NOISE),
    why="the labels take the way of Python's hash of a number",
    origin=SIDE,
    tells=lambda sent: float(sent[1].tensors[""]) == float(hash(_OTHER) % 97),
)
def label_through_a_hash(wire):
    y = _quiet(wire)
    _send(wire, "ack", torch.tensor([float(hash(y[TARGET].item()) % 97)]), 1)


@PROGRAMS.broken(
    claim=gdp(1 / NOISE),
    why="the keys of a dictionary are private numbers",
    origin=SIDE,
    tells=lambda sent: float(sent[1].tensors[""]) == 7.0 + 2 * _OTHER,
)
def label_as_a_key(wire):
    y = _quiet(wire)
    _send(wire, "ack", torch.tensor([{0.0: 7.0, 1.0: 9.0}[y[TARGET].item()]]), 1)


@PROGRAMS.broken(
    claim=gdp(1 / NOISE),
    why="an error is raised for one label, and what is sent then is another message",
    origin=SIDE,
    tells=lambda sent: (sent[1].kind == "error") == bool(_OTHER),
)
def label_as_an_exception(wire):
    y = _quiet(wire)
    try:
        nn.functional.embedding((y[TARGET] * 5).long(), torch.zeros(3, 1))
        _send(wire, "ack", torch.zeros(1), 1)
    except IndexError:
        _send(wire, "error", torch.zeros(1), 1)


@PROGRAMS.broken(
    claim=gdp(1 / NOISE),
    why="a counter of Python is raised by each label that is 1",
    origin=SIDE,
    tells=lambda sent: int(sent[1].tensors[""]) == int(OTHER_LABELS.sum()),
)
def label_in_a_counter(wire):
    y, ones = _quiet(wire), 0
    for label in y:
        if label == 1:
            ones += 1
    _send(wire, "count", torch.tensor([ones]), 1)


@PROGRAMS.sound(
    claim=gdp(1 / NOISE), why="a receipt, the round and a checksum of what was sent go along", exact=lambda: 1 / NOISE
)
def checksum_of_what_was_sent(wire):
    y = _labels(wire)
    noised = (y.sum() + NOISE * torch.randn(())).reshape(1)
    _send(wire, "count", noised)
    _send(
        wire,
        "receipt",
        {"round": torch.tensor([1]), "checksum": noised.double().sum().mul(97).remainder(13).reshape(1)},
        1,
    )


@PROGRAMS.sound(
    claim=gdp(1 / NOISE), why="metrics are kept in a list, an array and a file that stay here", exact=lambda: 1 / NOISE
)
def metrics_that_stay(wire):
    y = _labels(wire)
    history = [float(((FEATURES[:, 0] > 0).float() == y).float().mean()) for _ in range(3)]
    best = max(history)
    _send(wire, "count", (y.sum() + NOISE * torch.randn(())).reshape(1))
    assert 0 <= best <= 1


@PROGRAMS.sound(
    claim=gdp(1 / NOISE), why="an assertion about private values that holds in both worlds", exact=lambda: 1 / NOISE
)
def assertions_that_hold(wire):
    y = _labels(wire)
    assert not torch.isnan(y).any()
    assert y.min() >= 0
    if not torch.isfinite(y.sum()):
        raise ValueError("labels are no numbers")
    _send(wire, "count", (y.sum() + NOISE * torch.randn(())).reshape(1))
