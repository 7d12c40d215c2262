"""Programs written after the others, by someone who had not read the tracer, to see how it does on new ones."""

from __future__ import annotations

import functools
import math
import warnings

import torch
from torch import Tensor, nn

from tests.mutations.flow.program import HABIT, PEER, SIDE, Theme, gdp, pure
from tests.mutations.flow.worlds import (
    EVERYONE,
    FEATURES,
    LABELS,
    NOISE,
    OTHER_LABELS,
    RECORDS,
    ROUNDS,
    TARGET,
    epsilon_of,
)

__all__ = ["PROGRAMS"]

PROGRAMS = Theme("written afterwards")

_BINS = 4
_PLACES = (FEATURES[:, 1].argsort().argsort() * _BINS) // RECORDS
"""The bin of each record by the second column, which is public to the server."""


def _labels(wire) -> Tensor:
    return wire.private(LABELS, OTHER_LABELS, what="labels", owner="server")


def _residuals(labels: Tensor) -> Tensor:
    """(records, 2) gradients of cross-entropy at logits of zero: a label moves one row by √2."""
    return 0.5 - nn.functional.one_hot(labels.long(), 2).float()


# Boosted trees -------------------------------------------------------------------------------------------------------


def _histogram(labels: Tensor) -> Tensor:
    return torch.zeros(_BINS).scatter_add_(0, _PLACES, 0.5 - labels)


@PROGRAMS.sound(
    claim=gdp(1 / NOISE),
    why="gradient histograms of boosted trees under noise, and the split that they suggest",
    exact=lambda: 1 / NOISE,
)
def boosting_on_noised_histograms(wire):
    y = _labels(wire)
    sums = wire.send(
        "histogram", _histogram(y) + NOISE * torch.randn(_BINS), sender="server", receiver=0, round_=0, records=EVERYONE
    )
    counts = torch.bincount(_PLACES, minlength=_BINS)
    left, weights = sums.cumsum(0)[:-1], counts.cumsum(0)[:-1]
    gain = left**2 / weights + (sums.sum() - left) ** 2 / (RECORDS - weights)
    wire.send("split", gain.argmax().reshape(1), sender=0, receiver="server", round_=0, records=None)


@PROGRAMS.broken(
    claim=gdp(1 / NOISE),
    why="histograms are noised, and the leaves' weights are means of exact residuals",
    tells=lambda sent: _leaves_are_of(sent, OTHER_LABELS),
)
def boosting_with_exact_leaves(wire):
    y = _labels(wire)
    sums = _histogram(y) + NOISE * torch.randn(_BINS)
    wire.send("histogram", sums, sender="server", receiver=0, round_=0, records=EVERYONE)
    split = int(sums.cumsum(0)[:-1].abs().argmax()) + 1
    leaves = torch.stack([_residuals(y)[side, 0].mean() for side in (split > _PLACES, split <= _PLACES)])
    wire.send(
        "tree", {"split": torch.tensor([split]), "leaves": leaves}, sender="server", receiver=0, round_=0, records=None
    )


def _leaves_are_of(sent, labels) -> bool:
    split = int(sent[1].tensors["split"])
    leaves = [_residuals(labels)[side, 0].mean() for side in (split > _PLACES, split <= _PLACES)]
    return torch.allclose(torch.stack(leaves), sent[1].tensors["leaves"])


# Compression ---------------------------------------------------------------------------------------------------------


@PROGRAMS.sound(
    claim=gdp(math.sqrt(2) / NOISE),
    why="noised gradients are compressed to rank one by a singular value decomposition",
    exact=lambda: math.sqrt(2) / NOISE,
)
def rank_one_of_noised_gradients(wire):
    g = _residuals(_labels(wire)) @ torch.eye(2, 4)
    noised = g + NOISE * torch.randn_like(g)
    u, s, v = torch.linalg.svd(noised, full_matrices=False)
    wire.send(
        "gradient", {"left": u[:, :1] * s[:1], "right": v[:1]}, sender="server", receiver=0, round_=0, records=EVERYONE
    )


@PROGRAMS.broken(
    claim=gdp(math.sqrt(2) / NOISE),
    why="PowerSGD: the left factor is noised, and the right one is a product with exact gradients",
    tells=lambda sent: (
        (sent[0].tensors["right"] - _right(OTHER_LABELS)).norm() < (sent[0].tensors["right"] - _right(LABELS)).norm()
    ),
)
def power_iteration_with_one_noised_factor(wire):
    g = (_labels(wire) - 0.5).unsqueeze(1) * FEATURES.clamp(-1, 1)
    left = g @ torch.ones(6, 1) / math.sqrt(6)
    right = g.T @ torch.ones(RECORDS, 1) / RECORDS
    wire.send(
        "gradient",
        {"left": left + NOISE * torch.randn_like(left), "right": right},
        sender="server",
        receiver=0,
        round_=0,
        records=EVERYONE,
    )


def _right(labels: Tensor) -> Tensor:
    return ((labels - 0.5).unsqueeze(1) * FEATURES.clamp(-1, 1)).T @ torch.ones(RECORDS, 1) / RECORDS


@PROGRAMS.sound(
    claim=gdp(math.sqrt(2) / NOISE),
    why="noise in the domain of an orthonormal transform, of which half of the coefficients are dropped",
    exact=lambda: math.sqrt(2) / NOISE,
)
def noised_in_a_transformed_domain(wire):
    g = _residuals(_labels(wire))
    k = torch.arange(RECORDS, dtype=torch.float32)
    basis = torch.cos(math.pi / RECORDS * (k.unsqueeze(0) + 0.5) * k.unsqueeze(1)) * math.sqrt(2 / RECORDS)
    basis[0] /= math.sqrt(2)
    coefficients = basis @ g
    coefficients += NOISE * torch.randn_like(coefficients)
    coefficients[RECORDS // 2 :] = 0
    wire.send("gradient", basis.T @ coefficients, sender="server", receiver=0, round_=0, records=EVERYONE)


@PROGRAMS.broken(
    claim=gdp(math.sqrt(2) / NOISE),
    why="unbiased stochastic rounding to -1 and 1 has draws, and none where the value is at an end",
    # A residual of ±1 is sent as it is, with probability 1.
    exact=lambda: math.inf,
)
def stochastic_rounding_taken_for_noise(wire):
    g = 2 * _residuals(_labels(wire))
    rounded = 2 * torch.bernoulli((1 + g) / 2) - 1
    wire.send("gradient", rounded, sender="server", receiver=0, round_=0, records=EVERYONE)


@PROGRAMS.broken(
    claim=gdp(math.sqrt(3 * 2) / NOISE),
    why="what compression dropped is kept in a memory of exact gradients, and added to what is sent next",
    # Nothing of the first round is sent but its sign: the memory carries all of it into the noised second and third.
    exact=lambda: 3 * math.sqrt(2) / NOISE,
)
def error_feedback_of_exact_gradients(wire):
    g, memory = _residuals(_labels(wire)), torch.zeros(RECORDS, 2)
    for t in range(3):
        memory = memory + g
        if t == 2:
            wire.send(
                "gradient",
                memory + NOISE * torch.randn_like(g),
                sender="server",
                receiver=0,
                round_=t,
                records=EVERYONE,
            )
        else:
            wire.send("gradient", torch.zeros_like(g), sender="server", receiver=0, round_=t, records=EVERYONE)


# Sequences, tables and ensembles -------------------------------------------------------------------------------------


@PROGRAMS.sound(
    claim=gdp(2 * 0.5 / (0.5 * 4.0)),
    why="a recurrent bottom learns by the clipped and noised gradient of its last state",
    std=0.5 * 4.0,
)
def recurrent_bottom(wire):
    y = _labels(wire).long()
    bottom, top = nn.GRU(2, 5, batch_first=True), nn.Linear(5, 2)
    optimiser = torch.optim.RMSprop(bottom.parameters(), lr=0.01)
    _, state = bottom(FEATURES.reshape(RECORDS, 3, 2))
    cut = wire.send("embedding", state[0], sender=0, receiver="server", round_=0, records=EVERYONE).requires_grad_()
    loss = nn.functional.cross_entropy(top(cut), y, reduction="none")
    (g,) = torch.autograd.grad(loss.sum(), cut)
    g = g / torch.clamp(g.norm(dim=-1, keepdim=True) / 0.5, min=1.0)
    reply = wire.send(
        "gradient", g + 0.5 * 4.0 * torch.randn(g.shape), sender="server", receiver=0, round_=0, records=EVERYONE
    )
    state[0].backward(reply)
    optimiser.step()


@PROGRAMS.sound(
    claim=gdp(math.sqrt(2) / NOISE),
    why="a table of embeddings with sparse gradients learns by noised replies, and is sent as a model",
    exact=lambda: math.sqrt(2) / NOISE,
)
def sparse_embedding_table(wire):
    y = _labels(wire)
    table = nn.Embedding(_BINS, 2, sparse=True)
    optimiser = torch.optim.SparseAdam(list(table.parameters()), lr=0.1)
    logits = table(_PLACES)
    reply = wire.send(
        "gradient",
        _residuals(y) + NOISE * torch.randn(RECORDS, 2),
        sender="server",
        receiver=0,
        round_=0,
        records=EVERYONE,
    )
    logits.backward(reply)
    optimiser.step()
    wire.send("model", table.weight, sender=0, receiver="server", round_=1, records=None)


def _noised(rows: Tensor, std: float) -> Tensor:
    return rows + std * torch.randn_like(rows)


@PROGRAMS.sound(claim=gdp(math.sqrt(2) / NOISE), why="noise is added by a scripted function", std=NOISE)
def noise_by_a_scripted_function(wire):
    with warnings.catch_warnings():
        # torch advises against it now; older scripts use it.
        warnings.simplefilter("ignore", DeprecationWarning)
        scripted = torch.jit.script(_noised)
    g = scripted(_residuals(_labels(wire)), NOISE)
    wire.send("gradient", g, sender="server", receiver=0, round_=0, records=EVERYONE)


_TEACHERS = 8


def _votes(labels: Tensor) -> Tensor:
    """(6, 2) how many of eight teachers, five records each, vote for either class of six public questions."""
    questions = FEATURES[:ROUNDS]
    votes = []
    for x, y in zip(FEATURES.reshape(_TEACHERS, -1, 6), labels.reshape(_TEACHERS, -1), strict=True):
        nearest = torch.cdist(questions, x).argmin(1)
        votes.append(nn.functional.one_hot(y[nearest].long(), 2))
    return torch.stack(votes).sum(0).float()


@PROGRAMS.sound(
    claim=gdp(math.sqrt(2 * ROUNDS) / NOISE),
    why="teachers' votes under normal noise, of which the larger is sent: a label moves one teacher",
    exact=lambda: float((_votes(OTHER_LABELS) - _votes(LABELS)).norm()) / NOISE,
)
def noised_votes_of_teachers(wire):
    votes = _votes(_labels(wire))
    winners = (votes + NOISE * torch.randn(ROUNDS, 2)).argmax(1)
    wire.send("labels", winners, sender="server", receiver=0, round_=0, records=None)


@PROGRAMS.broken(
    claim=gdp(math.sqrt(2 * ROUNDS) / NOISE),
    why="only questions with a clear majority are answered, and whether it is clear is decided without noise",
    tells=lambda sent: torch.equal(sent[0].tensors["answered"], _clear(OTHER_LABELS)),
    origin=PEER,
)
def votes_answered_by_an_exact_majority(wire):
    votes = _votes(_labels(wire))
    winners = (votes + NOISE * torch.randn(ROUNDS, 2)).argmax(1)
    wire.send(
        "labels",
        {"winners": winners, "answered": _clear_of(votes)},
        sender="server",
        receiver=0,
        round_=0,
        records=None,
    )


def _clear_of(votes: Tensor) -> Tensor:
    return (votes[:, 0] - votes[:, 1]).abs() > 5


def _clear(labels: Tensor) -> Tensor:
    return _clear_of(_votes(labels))


# Randomised labels ---------------------------------------------------------------------------------------------------


@PROGRAMS.sound(
    claim=pure(1.0),
    why="responses of half of the records make a prior for the others: each label is used once",
    exact=lambda: epsilon_of((_keep(), 1 - _keep()), (1 - _keep(), _keep())),
)
def responses_in_two_stages(wire):
    y = _labels(wire).long()
    flips = torch.rand(RECORDS) > _keep()
    first = torch.where(flips[::2], 1 - y[::2], y[::2])
    weights = torch.linalg.lstsq(FEATURES[::2], (2.0 * first - 1).unsqueeze(1)).solution
    sure = (FEATURES[1::2] @ weights).squeeze(1).abs() > 3
    guess = ((FEATURES[1::2] @ weights).squeeze(1) > 0).long()
    second = torch.where(sure, guess, torch.where(flips[1::2], 1 - y[1::2], y[1::2]))
    wire.send(
        "labels", torch.stack((first, second), dim=1).flatten(), sender="server", receiver=0, round_=0, records=EVERYONE
    )


def _keep() -> float:
    return 1 / (1 + math.exp(-1.0))


@PROGRAMS.broken(
    claim=pure(1.0),
    why="labels are noised, and the prior that goes with them is the exact share of each class",
    tells=lambda sent: bool((sent[1].tensors[""][1] - OTHER_LABELS.mean()).abs() < 1e-4),
)
def prior_of_exact_labels(wire):
    y = _labels(wire).long()
    noised = torch.where(torch.rand(RECORDS) < _keep(), y, 1 - y)
    wire.send("labels", noised, sender="server", receiver=0, round_=0, records=EVERYONE)
    prior = torch.bincount(y, minlength=2) / RECORDS
    wire.send("prior", prior, sender="server", receiver=0, round_=0, records=None)


@PROGRAMS.sound(
    claim=pure(1.0),
    why="responses are mixed with each other and smoothed before gradients are taken of them",
    exact=lambda: epsilon_of((_keep(), 1 - _keep()), (1 - _keep(), _keep())),
)
def mixed_responses(wire):
    y = _labels(wire).long()
    noised = torch.where(torch.rand(RECORDS) < _keep(), y, 1 - y)
    soft = nn.functional.one_hot(noised, 2) * 0.9 + 0.05
    share = torch.distributions.Beta(0.4, 0.4).sample((RECORDS, 1))
    partner = torch.randperm(RECORDS)
    mixed = share * soft + (1 - share) * soft[partner]
    z = (FEATURES @ torch.ones(6, 2) / 10).requires_grad_()
    nn.functional.cross_entropy(z, mixed).backward()
    wire.send("gradient", z.grad, sender="server", receiver=0, round_=0, records=EVERYONE)


# Habits --------------------------------------------------------------------------------------------------------------


@PROGRAMS.broken(
    claim=gdp(2 * math.sqrt(2) / NOISE),
    why="noise is cached by its shape, so that rows of two rounds of different scale have the same",
    tells=lambda sent: bool((sent[1].tensors[""] - sent[0].tensors[""])[TARGET].argmin() == OTHER_LABELS[TARGET]),
)
def noise_that_is_cached(wire):
    @functools.lru_cache
    def noise(shape):
        return NOISE * torch.randn(shape)

    g = _residuals(_labels(wire))
    for t, scale in enumerate((0.2, 1.0)):
        wire.send("gradient", scale * g + noise(g.shape), sender="server", receiver=0, round_=t, records=EVERYONE)


@PROGRAMS.broken(
    claim=gdp(math.sqrt(2) / NOISE),
    why="statistics of the exact gradient go along with the noised one",
    tells=lambda sent: abs(sent[0].tensors["mean"][0] - _residuals(OTHER_LABELS)[:, 0].mean()) < 1e-4,
    origin=SIDE,
)
def statistics_beside_the_gradient(wire):
    g = _residuals(_labels(wire))
    payload = {"rows": g + NOISE * torch.randn_like(g), "mean": g.mean(0), "std": g.std(0)}
    wire.send("gradient", payload, sender="server", receiver=0, round_=0, records=EVERYONE)


@PROGRAMS.broken(
    claim=gdp(math.sqrt(2) / NOISE),
    why="a message that is repeated after a time-out is taken from the cache of values before the noise",
    tells=lambda sent: bool(sent[-1].tensors[""][TARGET].argmin() == OTHER_LABELS[TARGET]),
)
def repeated_from_the_wrong_cache(wire):
    class Channel:
        def __init__(self):
            self.last = None

        def reply(self, rows, attempt):
            if attempt == 0:
                self.last = rows
                rows = rows + NOISE * torch.randn_like(rows)
            else:
                rows = self.last
            return wire.send("gradient", rows, sender="server", receiver=0, round_=0, records=EVERYONE)

    channel, g = Channel(), _residuals(_labels(wire))
    for attempt in range(2):
        channel.reply(g, attempt)


@PROGRAMS.broken(
    claim=gdp(math.sqrt(2) / NOISE),
    why="pairwise masks of secure aggregation are drawn from seeds that are the devices' numbers",
    tells=lambda sent: bool((sent[0].tensors[""] - _pair_mask())[TARGET].argmin() == OTHER_LABELS[TARGET]),
)
def pairwise_masks_from_public_seeds(wire):
    g = _residuals(_labels(wire))
    masked = g + _pair_mask()
    wire.send("share", masked, sender="server", receiver=0, round_=0, records=EVERYONE)


def _pair_mask() -> Tensor:
    return 1000 * torch.randn(RECORDS, 2, generator=torch.Generator().manual_seed(hash((0, 1)) % 2**31))


@PROGRAMS.sound(
    claim=gdp(math.sqrt(3) / 5 * 1.0),
    why="two-point estimates: the difference of two losses is clipped and noised, the direction's seed is public",
    exact=lambda: math.sqrt(3) / 5,
    origin=HABIT,
)
def two_point_estimates(wire):
    y, w = _labels(wire), torch.zeros(6)
    for t in range(3):
        direction = torch.randn(6, generator=torch.Generator().manual_seed(t))
        losses = [
            nn.functional.binary_cross_entropy_with_logits(FEATURES @ (w + h * direction), y, reduction="none")
            for h in (1e-2, -1e-2)
        ]
        slope = ((losses[0] - losses[1]) / 2e-2).clamp(-0.5, 0.5).sum()
        scalar = wire.send(
            "scalar", slope.reshape(1) + 5 * torch.randn(1), sender="server", receiver=0, round_=t, records=EVERYONE
        )
        w = w - 0.01 * scalar * direction
