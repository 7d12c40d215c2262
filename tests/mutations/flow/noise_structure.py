"""Noise whose entries look right one by one, and whose structure gives the value away; and structures that do not."""

from __future__ import annotations

import math
import random
import secrets

import numpy as np
import torch
from torch import Tensor

from tests.mutations.flow.program import HABIT, PEER, SKETCH, Theme, gdp
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
    TARGET,
    answers,
    answers_of_one_sign,
    clipped_sum,
    correlated_mu,
    noise_of,
)

__all__ = ["PROGRAMS"]

PROGRAMS = Theme("noise structure")


def _cdf(values: Tensor) -> Tensor:
    return torch.special.ndtr(values.double())


def _quantile(shares: Tensor) -> Tensor:
    return torch.special.ndtri(shares.clamp(1e-9, 1 - 1e-9)).float()


def _deviation(draws: Tensor) -> float:
    return float(abs(draws.mean()) + abs(draws.std(correction=0) - 1))


@PROGRAMS.broken(
    claim=ANSWERS,
    why="the noise of the run has mean 0 and std 1 exactly: one label violates that",
    origin=SKETCH,
    tells=lambda sent: _deviation(noise_of(sent, OTHER_LABELS)) < _deviation(noise_of(sent, LABELS)),
)
def standardised_over_the_run(wire):
    def standardised():
        z = torch.randn(ROUNDS).double()
        return ((z - z.mean()) / z.std(correction=0)).float()

    answers(wire, standardised)


@PROGRAMS.broken(
    claim=ANSWERS,
    why="one draw falls into each sixth of the normal law: only the right label gives six different sixths",
    origin=SKETCH,
    exact=lambda: math.inf,
)
def stratified(wire):
    def latin():
        z = torch.randn(ROUNDS).double()
        inside = torch.special.ndtr(torch.randn(ROUNDS).double())
        return _quantile((z.argsort().argsort() + inside) / ROUNDS)

    answers(wire, latin)


def _pairs(sent, labels) -> Tensor:
    return noise_of(sent, labels, column=0)[:2].sum().abs()


def _total(sent, labels) -> Tensor:
    return noise_of(sent, labels, column=0).sum().abs()


def _next_of_chain(previous: Tensor) -> Tensor:
    return _quantile((1009 * _cdf(previous)) % 1)


@PROGRAMS.broken(
    claim=ANSWERS,
    why="each second draw is a function of the one before",
    origin=SKETCH,
    exact=lambda: math.inf,
)
def chained_from_round_to_round(wire):
    def chain():
        z = torch.randn(ROUNDS)
        return torch.stack([z[t] if t % 2 == 0 else _next_of_chain(z[t - 1]) for t in range(ROUNDS)])

    answers(wire, chain)


@PROGRAMS.broken(
    claim=ANSWERS,
    why="the sign of each third draw is the product of the two signs before it: a support of half the space",
    origin=SKETCH,
    exact=lambda: math.inf,
)
def third_sign(wire):
    def signed():
        z = torch.randn(ROUNDS)
        return torch.stack(
            [z[t] if t % 3 < 2 else z[t].abs() * z[t - 1].sign() * z[t - 2].sign() for t in range(ROUNDS)]
        )

    answers(wire, signed)


@PROGRAMS.broken(
    claim=ANSWERS,
    why="the size of each second draw is a function of the size of the one before",
    origin=SKETCH,
    exact=lambda: math.inf,
)
def size_from_the_round_before(wire):
    def sizes():
        z, out = torch.randn(ROUNDS), []
        for t in range(ROUNDS):
            mirrored = _quantile(1 - (_cdf(z[t - 1].abs()) - 0.5))
            out.append(z[t] if t % 2 == 0 else mirrored * z[t].sign())
        return torch.stack(out)

    answers(wire, sizes)


@PROGRAMS.broken(
    claim=ANSWERS,
    why="two answers in a row have opposite noise, so that their sum has none",
    tells=lambda sent: _pairs(sent, OTHER_LABELS) < _pairs(sent, LABELS),
)
def antithetic(wire):
    def pairs():
        half = torch.randn(ROUNDS // 2)
        return torch.stack((half, -half), dim=1).flatten()

    answers_of_one_sign(wire, pairs)


@PROGRAMS.broken(
    claim=ANSWERS,
    why="the last draw takes back the sum of the others, so that the sum of all answers is exact",
    tells=lambda sent: _total(sent, OTHER_LABELS) < _total(sent, LABELS),
)
def last_draw_takes_the_sum_back(wire):
    class Budget:
        """Keeps the total noise of a run at zero, for accuracy."""

        def __init__(self):
            self.total = torch.zeros(())

        def draw(self, last):
            z = -self.total if last else torch.randn(())
            self.total = self.total + z
            return z

    budget = Budget()
    answers_of_one_sign(wire, lambda: torch.stack([budget.draw(t == ROUNDS - 1) for t in range(ROUNDS)]))


def _rows(labels: Tensor) -> Tensor:
    """(records, 2) gradients of the logistic loss by logits at zero, of length at most √2/2."""
    return 0.5 - torch.nn.functional.one_hot(labels.long(), 2).float()


_ROWS = gdp(math.sqrt(2))
"""One label moves one row by √2, under noise of std 1."""


def _rows_program(wire, noise):
    y = wire.private(LABELS, OTHER_LABELS, what="labels", owner="server")
    g = _rows(y)
    wire.send("gradient", g + noise(g), sender="server", receiver=0, round_=0, records=EVERYONE)


@PROGRAMS.sound(claim=_ROWS, why="each entry of each row has noise of std 1, and a row moves by √2", std=1.0)
def noise_on_every_entry(wire):
    _rows_program(wire, torch.randn_like)


def _all_but_last(g):
    z = torch.randn_like(g)
    z[TARGET].zero_()
    return z


@PROGRAMS.broken(
    claim=_ROWS,
    why="the noise leaves out one of forty rows",
    tells=lambda sent: bool(sent[0].tensors[""][TARGET].argmin() == OTHER_LABELS[TARGET]),
)
def noise_on_all_rows_but_one(wire):
    _rows_program(wire, _all_but_last)


@PROGRAMS.broken(
    claim=_ROWS,
    why="both entries of a row have the same noise, so that their difference has none",
    tells=lambda sent: bool(sent[0].tensors[""][TARGET].argmin() == OTHER_LABELS[TARGET]),
)
def one_draw_for_a_whole_row(wire):
    _rows_program(wire, lambda g: torch.randn(g.shape[0], 1))


@PROGRAMS.broken(
    claim=_ROWS,
    why="all rows have the same noise, and the adversary knows the labels of the others",
    tells=lambda sent: bool(
        (sent[0].tensors[""][TARGET] - sent[0].tensors[""][0] + _rows(LABELS)[0]).argmin() == OTHER_LABELS[TARGET]
    ),
)
def one_draw_for_all_rows(wire):
    _rows_program(wire, lambda g: torch.randn(g.shape[1]))


@PROGRAMS.broken(
    claim=_ROWS,
    why="the noise is centred over the batch, so that the sum of all rows is exact",
    tells=lambda sent: bool(
        (sent[0].tensors[""].sum(0) - _rows(OTHER_LABELS).sum(0)).norm()
        < (sent[0].tensors[""].sum(0) - _rows(LABELS).sum(0)).norm()
    ),
)
def centred_over_the_batch(wire):
    def centred(g):
        z = torch.randn_like(g)
        return (z - z.mean(0, keepdim=True)) * math.sqrt(RECORDS / (RECORDS - 1))

    _rows_program(wire, centred)


@PROGRAMS.broken(
    claim=_ROWS,
    why="noise of four numbers is spread over eighty entries",
    exact=lambda: correlated_mu(
        torch.eye(RECORDS)[TARGET] * math.sqrt(2), torch.cos(torch.arange(RECORDS * 4.0)).reshape(RECORDS, 4)
    ),
)
def low_rank_noise(wire):
    # A random feature map of the noise: cheap for wide layers.
    mixing = torch.cos(torch.arange(RECORDS * 4.0)).reshape(RECORDS, 4) / 2
    _rows_program(wire, lambda g: mixing @ torch.randn(4, g.shape[1]))


@PROGRAMS.broken(
    claim=_ROWS,
    why="the same key gives the weights' and the bias' noise, so that their difference shows the row",
    origin=PEER,
    tells=lambda sent: bool(
        (sent[0].tensors["weight"] - sent[0].tensors["bias"])[TARGET].argmin() == OTHER_LABELS[TARGET]
    ),
)
def one_key_for_two_parameters(wire):
    # jax's own example of private SGD did this until pull request 3646.
    y = wire.private(LABELS, OTHER_LABELS, what="labels", owner="server")
    g = {"weight": _rows(y) * 0.8, "bias": _rows(y) * 0.6}
    key = int(torch.randint(2**31, ()))
    noised = {k: v + torch.randn(v.shape, generator=torch.Generator().manual_seed(key)) for k, v in g.items()}
    wire.send("gradient", noised, sender="server", receiver=0, round_=0, records=EVERYONE)


@PROGRAMS.broken(
    claim=gdp(math.sqrt(2 * 2)),
    why="two different releases of the same labels have the same noise: their difference is exact",
    tells=lambda sent: bool((sent[1].tensors[""] - sent[0].tensors[""])[TARGET].argmin() == OTHER_LABELS[TARGET]),
)
def noise_reused_for_a_second_release(wire):
    y = wire.private(LABELS, OTHER_LABELS, what="labels", owner="server")
    z = torch.randn(RECORDS, 2)
    for t, scale in enumerate((0.5, 1.0)):
        wire.send("gradient", scale * _rows(y) + z, sender="server", receiver=0, round_=t, records=EVERYONE)


@PROGRAMS.sound(
    claim=gdp(math.sqrt(2)),
    why="the same gradient under the same noise is sent twice: the second message shows nothing new",
    exact=lambda: math.sqrt(2),
)
def one_noised_value_sent_twice(wire):
    y = wire.private(LABELS, OTHER_LABELS, what="labels", owner="server")
    noised = _rows(y) + torch.randn(RECORDS, 2)
    for receiver in (0, 1):
        wire.send("gradient", noised, sender="server", receiver=receiver, round_=0, records=EVERYONE)


@PROGRAMS.broken(
    claim=_ROWS,
    why="noise that is smaller than 1 is left out, so that the exact value has a positive probability",
    exact=lambda: math.inf,
)
def small_noise_left_out(wire):
    y = wire.private(LABELS, OTHER_LABELS, what="labels", owner="server")
    g, z = _rows(y), torch.randn(RECORDS, 2)
    noised = torch.where(z.abs() > 1, g + z, g)
    wire.send("gradient", noised, sender="server", receiver=0, round_=0, records=EVERYONE)


@PROGRAMS.broken(
    claim=ANSWERS,
    why="the noise is multiplied by the answer, so that an answer of zero has none and its sign is exact",
    exact=lambda: math.inf,
)
def multiplied_by_the_value(wire):
    y = wire.private(LABELS, OTHER_LABELS, what="labels", owner="server")
    w = torch.zeros(6)
    for t in range(ROUNDS):
        s = clipped_sum(w, y, t)
        m = wire.send(
            "answer",
            (s * (1 + NOISE * torch.randn(()))).reshape(1),
            sender="server",
            receiver=0,
            round_=t,
            records=EVERYONE,
        )
        w = w - 0.05 * m


@PROGRAMS.broken(
    claim=_ROWS,
    why="the std of the noise is twice as large for one class as for the other",
    # The two laws N(g, 1) and N(g', 4) of the target's row differ in scale: the log ratio has no bound.
    exact=lambda: math.inf,
)
def std_from_the_label(wire):
    y = wire.private(LABELS, OTHER_LABELS, what="labels", owner="server")
    rare = 1 + y.unsqueeze(1)
    wire.send(
        "gradient", _rows(y) + rare * torch.randn(RECORDS, 2), sender="server", receiver=0, round_=0, records=EVERYONE
    )


def _skipping(wire, rarely):
    y = wire.private(LABELS, OTHER_LABELS, what="labels", owner="server")
    w = torch.zeros(6)
    for t in range(ROUNDS):
        s = clipped_sum(w, y, t)
        m = torch.where(torch.rand(()) < rarely, s, s + NOISE * torch.randn(()))
        m = wire.send("answer", m.reshape(1), sender="server", receiver=0, round_=t, records=EVERYONE)
        w = w - 0.05 * m


@PROGRAMS.broken(
    claim=ANSWERS, why="one answer in 500 has no noise, and no μ covers a probability of that", exact=lambda: math.inf
)
def skipped_once_in_500(wire):
    _skipping(wire, 1 / 500)


@PROGRAMS.broken(
    claim=ANSWERS,
    why="one answer in a million has no noise, and no μ covers a probability of that",
    exact=lambda: math.inf,
)
def skipped_once_in_a_million(wire):
    _skipping(wire, 1e-6)


@PROGRAMS.broken(
    claim=ANSWERS,
    why="an if on a draw leaves the noise out of one answer in 500",
    exact=lambda: math.inf,
)
def skipped_by_an_if(wire):
    y = wire.private(LABELS, OTHER_LABELS, what="labels", owner="server")
    w = torch.zeros(6)
    for t in range(ROUNDS):
        m = clipped_sum(w, y, t)
        if torch.rand(()).item() > 1 / 500:
            m = m + NOISE * torch.randn(())
        m = wire.send("answer", m.reshape(1), sender="server", receiver=0, round_=t, records=EVERYONE)
        w = w - 0.05 * m


def _rarely(name: str, why: str, noised) -> None:
    """The noise of an answer is multiplied by a draw that is zero once in a thousand times."""

    def train(wire):
        answers(wire, lambda: torch.stack([noised() * torch.randn(()) for _ in range(ROUNDS)]))

    train.__name__ = name
    PROGRAMS.broken(claim=ANSWERS, why=f"noise is left out once in a thousand times: {why}", exact=lambda: math.inf)(
        train
    )


_rarely("skipped_by_secrets", "secrets decides", lambda: 0.0 if secrets.randbelow(1000) == 0 else 1.0)
_rarely("skipped_by_a_random_number", "random decides", lambda: 0.0 if random.randrange(1000) == 7 else 1.0)
_rarely("skipped_by_a_whole_number_of_numpy", "NumPy decides", lambda: float(_numpy().integers(1000) != 0))
_rarely(
    "skipped_by_a_binomial_of_numpy", "an array of NumPy", lambda: torch.as_tensor(_numpy().binomial(1, 0.999, 1))[0]
)
_rarely(
    "skipped_by_a_choice_of_numpy", "a choice of NumPy", lambda: float(_numpy().choice([0.0, 1.0], p=[0.001, 0.999]))
)
_rarely("skipped_by_a_bernoulli_draw", "a branch on a draw", lambda: float(not torch.bernoulli(torch.tensor(0.001))))
_rarely("skipped_by_a_bernoulli_mask", "a mask", lambda: torch.bernoulli(torch.tensor(0.999)))


def _numpy():
    return np.random.default_rng()


@PROGRAMS.broken(
    claim=ANSWERS,
    why="the noise is uniform: its ends show the label with probability 1/(2·2√3) a round",
    exact=lambda: math.inf,
)
def uniform_noise_of_the_same_std(wire):
    answers(wire, lambda: (torch.rand(ROUNDS) - 0.5) * math.sqrt(12))


@PROGRAMS.broken(
    claim=ANSWERS,
    why="outliers of the noise are cut at 2 std before it is added: the support depends on the label",
    exact=lambda: math.inf,
)
def noise_cut_before_it_is_added(wire):
    answers(wire, lambda: torch.randn(ROUNDS).clamp(-2, 2))


@PROGRAMS.broken(
    claim=ANSWERS,
    why="the noise is never negative: an answer below the smallest possible sum shows the label",
    exact=lambda: math.inf,
)
def only_positive_noise(wire):
    answers(wire, lambda: torch.randn(ROUNDS).abs())


@PROGRAMS.broken(
    claim=ANSWERS,
    why="the noise is rounded to multiples of 0.003 and the sum is not: the finer digits are exact",
    tells=lambda sent: _on_grid(sent, OTHER_LABELS) < _on_grid(sent, LABELS),
)
def noise_on_a_coarser_grid_than_the_value(wire):
    answers(wire, lambda: 0.003 * (torch.randn(ROUNDS) * NOISE / 0.003).round() / NOISE)


def _on_grid(sent, labels):
    steps = noise_of(sent, labels) * NOISE / 0.003
    return float((steps - steps.round()).abs().max())


@PROGRAMS.broken(
    claim=ANSWERS,
    why="the noise decays, and the last round has 0.6 times what the first has",
    exact=lambda: math.sqrt(sum((0.9**-t / NOISE) ** 2 for t in range(ROUNDS))),
)
def decaying_noise(wire):
    answers(wire, lambda: torch.randn(ROUNDS) * 0.9 ** torch.arange(ROUNDS))


@PROGRAMS.broken(
    claim=ANSWERS,
    why="the std that was calibrated is used as the variance",
    exact=lambda: math.sqrt(ROUNDS / NOISE),
)
def std_taken_for_variance(wire):
    answers(
        wire,
        lambda: torch.distributions.MultivariateNormal(torch.zeros(ROUNDS), NOISE * torch.eye(ROUNDS)).sample() / NOISE,
    )


@PROGRAMS.broken(
    claim=ANSWERS,
    why="noise that suffices for the mean over the records is added to their sum",
    exact=lambda: RECORDS * ANSWERED,
)
def noise_of_the_mean_on_the_sum(wire):
    answers(wire, lambda: torch.normal(0.0, 1 / RECORDS, (ROUNDS,)))


@PROGRAMS.broken(
    claim=ANSWERS,
    why="each of two parties adds half of the noise, and device 0, who receives the answer, added one of the halves",
    exact=lambda: math.sqrt(2) * ANSWERED,
)
def half_of_the_noise_is_the_receivers(wire):
    y = wire.private(LABELS, OTHER_LABELS, what="labels", owner="server")
    w = torch.zeros(6)
    for t in range(ROUNDS):
        theirs = NOISE / math.sqrt(2) * torch.randn(1)
        theirs = wire.send("share of noise", theirs, sender=0, receiver="server", round_=t, records=EVERYONE)
        m = clipped_sum(w, y, t) + theirs + NOISE / math.sqrt(2) * torch.randn(1)
        m = wire.send("answer", m, sender="server", receiver=0, round_=t, records=EVERYONE)
        w = w - 0.05 * m


# Structures that hide what they say ----------------------------------------------------------------------------------


def _ones_below(size: int) -> Tensor:
    return torch.ones(size, size).tril()


@PROGRAMS.sound(
    claim=gdp(math.sqrt(1 + 1) / NOISE),
    why="sums over two levels of a tree have noise of their own, and each record is below two nodes",
    exact=lambda: correlated_mu(torch.tensor([1.0, 1.0, 1.0, 1.0]), NOISE * _tree()),
)
def tree_aggregation(wire):
    y = wire.private(LABELS, OTHER_LABELS, what="labels", owner="server")
    leaves = torch.randn(4)
    pairs = torch.randn(2)
    s = ((0.5 - y) * FEATURES[:, 0]).clamp(-0.5, 0.5)
    # The target comes with the first batch, and is in every prefix from then on.
    batches = torch.arange(RECORDS).reshape(4, -1)
    exact = torch.stack([s[b].sum() for b in batches])
    nodes = [exact[i] + NOISE * leaves[i] for i in range(4)]
    twos = [exact[2 * i] + exact[2 * i + 1] + NOISE * pairs[i] for i in range(2)]
    prefixes = (nodes[0], twos[0], twos[0] + nodes[2], twos[0] + twos[1])
    for t, p in enumerate(prefixes):
        wire.send("prefix", p.reshape(1), sender="server", receiver=0, round_=t, records=EVERYONE)


def _tree() -> Tensor:
    """The noise of the four prefixes, by the four leaves and the two pairs."""
    return torch.tensor(
        [
            [1.0, 0, 0, 0, 0, 0],
            [0.0, 0, 0, 0, 1, 0],
            [0.0, 0, 1, 0, 1, 0],
            [0.0, 0, 0, 0, 1, 1],
        ]
    )


def _drifting() -> Tensor:
    """The noise of a round is that of the round less 0.4 of the one before (as matrix factorisation has it)."""
    return torch.eye(ROUNDS) - 0.4 * torch.diag(torch.ones(ROUNDS - 1), -1)


@PROGRAMS.sound(
    claim=gdp(correlated_mu(torch.tensor([1.0, 1, 1, 1, 1, 1]), NOISE * _drifting())),
    why="the noise is correlated over the rounds, and the claim has its covariance",
    exact=lambda: correlated_mu(torch.ones(ROUNDS), NOISE * _drifting()),
)
def correlated_over_the_rounds(wire):
    def drifting():
        z = torch.randn(ROUNDS)
        return z - 0.4 * torch.cat((torch.zeros(1), z[:-1]))

    answers_of_one_sign(wire, drifting)


@PROGRAMS.broken(
    claim=ANSWERS,
    why="the noise is correlated over the rounds, and the claim counts it as independent",
    exact=lambda: correlated_mu(torch.ones(ROUNDS), NOISE * _drifting()),
)
def correlation_not_accounted(wire):
    def drifting():
        z = torch.randn(ROUNDS)
        return z - 0.4 * torch.cat((torch.zeros(1), z[:-1]))

    answers_of_one_sign(wire, drifting)


@PROGRAMS.sound(
    claim=ANSWERS, why="a rotation of normal draws is normal with the same covariance", exact=lambda: ANSWERED
)
def rotated_noise(wire):
    def rotated():
        q, _ = torch.linalg.qr(torch.cos(torch.arange(ROUNDS**2.0)).reshape(ROUNDS, ROUNDS))
        return q @ torch.randn(ROUNDS)

    answers(wire, rotated)


@PROGRAMS.sound(
    claim=ANSWERS,
    why="a rotation that is itself drawn, and never sent, leaves the law of the noise",
    exact=lambda: ANSWERED,
)
def rotated_by_a_random_rotation(wire):
    def rotated():
        q, _ = torch.linalg.qr(torch.randn(ROUNDS, ROUNDS))
        return q @ torch.randn(ROUNDS)

    answers(wire, rotated)


@PROGRAMS.sound(claim=ANSWERS, why="twelve draws of variance 1/12 sum to one of variance 1", exact=lambda: ANSWERED)
def sum_of_many_draws(wire):
    answers(wire, lambda: torch.randn(ROUNDS, 12).sum(1) / math.sqrt(12))


@PROGRAMS.sound(claim=ANSWERS, why="the draws are shuffled, which leaves them independent", exact=lambda: ANSWERED)
def shuffled_draws(wire):
    answers(wire, lambda: torch.randn(ROUNDS)[torch.randperm(ROUNDS)])


@PROGRAMS.sound(
    claim=ANSWERS,
    why="the answer has 1.5 times the noise that the claim needs",
    origin=SKETCH,
    exact=lambda: ANSWERED / 1.5,
)
def more_noise_than_needed(wire):
    answers(wire, lambda: 1.5 * torch.randn(ROUNDS))


@PROGRAMS.sound(
    claim=ANSWERS,
    why="noise of the receiver's own comes on top of noise that suffices",
    origin=HABIT,
    exact=lambda: ANSWERED,
)
def noise_of_the_receiver_on_top(wire):
    y = wire.private(LABELS, OTHER_LABELS, what="labels", owner="server")
    w = torch.zeros(6)
    for t in range(ROUNDS):
        theirs = wire.send("share of noise", torch.randn(1), sender=0, receiver="server", round_=t, records=EVERYONE)
        m = clipped_sum(w, y, t) + theirs + NOISE * torch.randn(1)
        m = wire.send("answer", m, sender="server", receiver=0, round_=t, records=EVERYONE)
        w = w - 0.05 * m
