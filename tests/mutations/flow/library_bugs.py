"""Faults that published privacy libraries and examples had, and what their authors meant."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from tests.mutations.flow.program import PEER, Theme, gdp, pure
from tests.mutations.flow.worlds import (
    ANSWERED,
    ANSWERS,
    EVERYONE,
    FEATURES,
    LABELS,
    NOISE,
    OTHER_LABELS,
    RECORDS,
    ROUNDS,
    answers,
    other_rows,
)

__all__ = ["PROGRAMS"]

PROGRAMS = Theme("library bugs")


def _sum(labels: Tensor, round_: int = 0) -> Tensor:
    return ((0.5 - labels) * FEATURES[:, round_]).clamp(-0.5, 0.5).sum()


def _labels(wire) -> Tensor:
    return wire.private(LABELS, OTHER_LABELS, what="labels", owner="server")


def _send(wire, tensor: Tensor, round_: int = 0, kind: str = "answer"):
    return wire.send(kind, tensor.reshape(-1), sender="server", receiver=0, round_=round_, records=EVERYONE)


@PROGRAMS.broken(
    claim=ANSWERS,
    why="the noise is a multiplier of one and not of the clip: its std is 1 where 2 is needed",
    exact=lambda: NOISE * ANSWERED,
    origin=PEER,
)
def multiplier_without_the_clip(wire):
    answers(wire, lambda: torch.randn(ROUNDS) / NOISE)


@PROGRAMS.broken(
    claim=ANSWERS,
    why="each of four workers divides the noise by four, and one of them adds it",
    exact=lambda: 4 * ANSWERED,
    origin=PEER,
)
def noise_divided_by_the_workers(wire):
    # Opacus' distributed engine was discussed for this in its pull request 196.
    workers = 4

    def shared():
        noises = [torch.randn(ROUNDS) / workers if rank == 0 else torch.zeros(ROUNDS) for rank in range(workers)]
        return torch.stack(noises).sum(0)

    answers(wire, shared)


@PROGRAMS.sound(
    claim=ANSWERS, why="each of four workers adds a quarter of the variance", exact=lambda: ANSWERED, origin=PEER
)
def noise_of_four_workers(wire):
    answers(wire, lambda: sum((torch.randn(ROUNDS) / 2 for _ in range(4)), torch.zeros(ROUNDS)))


@PROGRAMS.broken(
    claim=gdp(2 / NOISE),
    why="groups of four records are clipped and weigh four times as much as a record",
    exact=lambda: _grouped() / NOISE,
    std=NOISE,
    origin=PEER,
)
def clipped_by_microbatch(wire):
    wire_labels = _labels(wire)
    _send(wire, _microbatches(wire_labels) + NOISE * torch.randn(6), kind="gradient")


def _microbatches(labels: Tensor) -> Tensor:
    g = ((0.5 - labels).unsqueeze(1) * FEATURES).reshape(-1, 4, 6).mean(1)
    return 4 * (g * (1 / g.norm(dim=1, keepdim=True)).clamp(max=1)).sum(0)


def _grouped() -> float:
    return float((_microbatches(OTHER_LABELS) - _microbatches(LABELS)).norm())


@PROGRAMS.broken(
    claim=gdp(2 / NOISE),
    why="norms are taken of gradients of the mean loss, which are forty times shorter than those of the sum",
    std=NOISE,
    origin=PEER,
)
def norms_of_the_mean_loss(wire):
    y = _labels(wire)
    z = torch.zeros(RECORDS, requires_grad=True)
    nn.functional.binary_cross_entropy_with_logits(z, y).backward()
    rows = z.grad.unsqueeze(1) * FEATURES
    factors = (1 / rows.norm(dim=1, keepdim=True)).clamp(max=1)
    _send(wire, (RECORDS * rows * factors).sum(0) + NOISE * torch.randn(6), kind="gradient")


@PROGRAMS.broken(
    claim=gdp(1 / NOISE),
    why="features are scaled to [0, 1] by the minimum and maximum of the private column",
    exact=lambda: _scaled_gap() / NOISE,
    std=NOISE,
    origin=PEER,
)
def scaled_by_private_extremes(wire):
    x = wire.private(_COLUMN, _OTHER_COLUMN, what="features", owner=0)
    total = ((x - x.min()) / (x.max() - x.min())).sum(0)
    wire.send("sum", total + NOISE * torch.randn(1), sender=0, receiver="server", round_=0, records=EVERYONE)


_COLUMN = torch.linspace(0, 1, RECORDS).unsqueeze(1)
_OTHER_COLUMN = other_rows(_COLUMN, torch.tensor([100.0]))


def _scaled_gap() -> float:
    sums = [((x - x.min()) / (x.max() - x.min())).sum() for x in (_COLUMN, _OTHER_COLUMN)]
    return float((sums[1] - sums[0]).abs())


@PROGRAMS.sound(
    claim=gdp(1 / NOISE),
    why="features are clamped to bounds that are public",
    exact=lambda: (1 - 3 / 39) / NOISE,
    std=NOISE,
    origin=PEER,
)
def clamped_to_public_bounds(wire):
    x = wire.private(_COLUMN, _OTHER_COLUMN, what="features", owner=0)
    wire.send(
        "sum", x.clamp(0, 1).sum(0) + NOISE * torch.randn(1), sender=0, receiver="server", round_=0, records=EVERYONE
    )


@PROGRAMS.broken(
    claim=gdp(4 / NOISE),
    why="the sensitivity is of the lower bound twice: features reach 10 on the other side",
    exact=lambda: (10 + 2 - 0.5) / NOISE,
    origin=PEER,
)
def lower_bound_taken_twice(wire):
    # IBM's diffprivlib, issue 104: the column lies in [-2, 10], and |−2| is taken for both ends.
    x = wire.private(
        torch.full((RECORDS, 1), -1.5),
        other_rows(torch.full((RECORDS, 1), -1.5), torch.tensor([10.0])),
        what="features",
        owner=0,
    )
    bounds = (-2.0, 10.0)
    sensitivity = abs(bounds[0] - 0.0) + abs(bounds[0] - 0.0)
    std = sensitivity / (4 / NOISE)
    wire.send(
        "sum", x.clamp(*bounds).sum(0) + std * torch.randn(1), sender=0, receiver="server", round_=0, records=EVERYONE
    )


@PROGRAMS.broken(
    claim=ANSWERS,
    why="the noise is from a generator with a seed of eight bits",
    tells=lambda sent: _nearest_seed(sent, OTHER_LABELS) < _nearest_seed(sent, LABELS),
    origin=PEER,
)
def seed_of_eight_bits(wire):
    y = _labels(wire)
    generator = torch.Generator().manual_seed(int(torch.randint(256, ())))
    for t in range(ROUNDS):
        _send(wire, _sum(y, t) + NOISE * torch.randn((), generator=generator), t)


def _nearest_seed(sent, labels) -> float:
    observed = torch.stack([m.tensors[""][0] - _sum(labels, m.round) for m in sent])
    return min(float((observed - _six_of(seed)).norm()) for seed in range(256))


def _six_of(seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return NOISE * torch.stack([torch.randn((), generator=generator) for _ in range(ROUNDS)])


@PROGRAMS.broken(
    claim=ANSWERS,
    why="of eight noised answers the one nearest to the exact one is sent",
    exact=lambda: 4 * ANSWERED,
    origin=PEER,
)
def best_of_eight_draws(wire):
    y = _labels(wire)
    for t in range(ROUNDS):
        s = _sum(y, t)
        candidates = s + NOISE * torch.randn(8)
        # The smallest of eight |z| has a std of about a fifth: a quarter is on the safe side.
        _send(wire, candidates[(candidates - s).abs().argmin()], t)


@PROGRAMS.broken(
    claim=ANSWERS,
    why="sixteen noised answers are averaged before they are sent",
    exact=lambda: 4 * ANSWERED,
    origin=PEER,
)
def mean_of_sixteen_draws(wire):
    y = _labels(wire)
    for t in range(ROUNDS):
        _send(wire, (_sum(y, t) + NOISE * torch.randn(16)).mean(), t)


@PROGRAMS.broken(
    claim=ANSWERS,
    why="noise is drawn again until it is small: some answers are possible for one sum only",
    exact=lambda: math.inf,
    origin=PEER,
)
def drawn_again_until_the_error_is_small(wire):
    y = _labels(wire)
    for t in range(ROUNDS):
        s = _sum(y, t)
        m = s + NOISE * torch.randn(())
        while (m - s).abs() > 1.5 * NOISE:
            m = s + NOISE * torch.randn(())
        _send(wire, m, t)


_SCORES_EPSILON = 1.0


@PROGRAMS.sound(
    claim=pure(_SCORES_EPSILON),
    why="the largest of noised counts: Laplace noise of scale 2/ε on each, and only the place is sent",
    exact=lambda: _SCORES_EPSILON,
    origin=PEER,
)
def report_noisy_max(wire):
    y = _labels(wire).long()
    counts = torch.bincount(y, minlength=2) + torch.distributions.Laplace(0.0, 2 / _SCORES_EPSILON).sample((2,))
    _send(wire, counts.argmax())


@PROGRAMS.broken(
    claim=pure(_SCORES_EPSILON),
    why="the place of the largest noised count is sent together with the exact largest count",
    tells=lambda sent: int(sent[0].tensors[""][1]) == int(OTHER_LABELS.sum()),
    origin=PEER,
)
def report_noisy_max_with_the_exact_count(wire):
    y = _labels(wire).long()
    counts = torch.bincount(y, minlength=2)
    noised = counts + torch.distributions.Laplace(0.0, 2 / _SCORES_EPSILON).sample((2,))
    _send(wire, torch.stack((noised.argmax(), counts.max())))


@PROGRAMS.broken(
    claim=pure(_SCORES_EPSILON),
    why="above-threshold with noise on the threshold and none on the queries",
    # Whatever the threshold's noise is: of two answers, one above and one below, the order of the exact sums is seen.
    exact=lambda: math.inf,
    origin=PEER,
)
def sparse_vector_without_noise_on_queries(wire):
    y = _labels(wire)
    threshold = torch.distributions.Laplace(0.0, 2 / _SCORES_EPSILON).sample() - 5
    for t in range(ROUNDS):
        _send(wire, _sum(y, t) > threshold, t)


@PROGRAMS.broken(
    claim=ANSWERS,
    why="the odometer counts one query for each two that are answered",
    exact=lambda: math.sqrt(2) * ANSWERED,
    origin=PEER,
)
def odometer_counts_every_second_query(wire):
    class Odometer:
        def __init__(self, queries):
            self.left = queries

        def charge(self, query):
            self.left -= query % 2

    y, odometer, query = _labels(wire), Odometer(ROUNDS), 0
    while odometer.left > 0:
        _send(wire, _sum(y, query % 6) + NOISE * torch.randn(()), query)
        odometer.charge(query)
        query += 1


@PROGRAMS.broken(
    claim=ANSWERS,
    why="noise is added where a flag of the wrapper says so, and the wrapper of the second device forgot the flag",
    tells=lambda sent: abs(float(sent[1].tensors[""]) - float(_sum(OTHER_LABELS))) < 1e-3,
    origin=PEER,
)
def one_of_two_wrappers_without_noise(wire):
    def mechanism(value, private=False):
        return value + NOISE * torch.randn(()) if private else value

    y = _labels(wire)
    wire.send(
        "answer", mechanism(_sum(y), private=True).reshape(1), sender="server", receiver=0, round_=0, records=None
    )
    wire.send("answer", mechanism(_sum(y)).reshape(1), sender="server", receiver=1, round_=0, records=None)


@PROGRAMS.broken(
    claim=ANSWERS,
    why="quantised to a grid whose step is the largest exact gradient, so that the grid shows it",
    # All answers are multiples of a step that is a function of exact labels.
    exact=lambda: math.inf,
    origin=PEER,
)
def quantised_by_a_private_scale(wire):
    y = _labels(wire)
    noised = torch.stack([_sum(y, t) for t in range(ROUNDS)]) + NOISE * torch.randn(ROUNDS)
    step = (0.1 + y.mean()) / 8
    _send(wire, (noised / step).round() * step)


@PROGRAMS.sound(
    claim=ANSWERS,
    why="quantised to a grid whose step is the largest noised answer",
    exact=lambda: ANSWERED,
    origin=PEER,
)
def quantised_by_a_noised_scale(wire):
    y = _labels(wire)
    noised = torch.stack([_sum(y, t) for t in range(ROUNDS)]) + NOISE * torch.randn(ROUNDS)
    step = noised.abs().max() / 127
    wire.send(
        "answer",
        {"steps": (noised / step).round().to(torch.int8), "step": step.reshape(1)},
        sender="server",
        receiver=0,
        round_=0,
        records=EVERYONE,
    )


@PROGRAMS.sound(
    claim=gdp(1 / NOISE),
    why="the histogram of labels under noise: one label moves two counts, by √2, under a clip to 1/√2 each",
    exact=lambda: 1 / NOISE,
    std=NOISE,
    origin=PEER,
)
def histogram_of_labels(wire):
    y = _labels(wire).long()
    counts = nn.functional.one_hot(y, 2).float().sum(0) / math.sqrt(2)
    _send(wire, counts + NOISE * torch.randn(2))


@PROGRAMS.broken(
    claim=gdp(1 / NOISE),
    why="the histogram of labels, noised as if one count moved, and with a label each that is added or removed",
    exact=lambda: math.sqrt(2) / NOISE,
    std=NOISE,
    origin=PEER,
)
def histogram_of_labels_counted_once(wire):
    y = _labels(wire).long()
    _send(wire, nn.functional.one_hot(y, 2).float().sum(0) + NOISE * torch.randn(2))


@PROGRAMS.broken(
    claim=gdp(1 / NOISE),
    why="noise goes to the rows that are not padding, and the number of those is private",
    tells=lambda sent: int((sent[0].tensors[""] != 0).sum()) == int(OTHER_LABELS.sum()),
    origin=PEER,
)
def no_noise_on_padding(wire):
    y = _labels(wire)
    rows = y * 0.5
    noise = NOISE * torch.randn(RECORDS)
    _send(wire, torch.where(rows > 0, rows + noise, rows), kind="gradient")
