"""Batches that depend on labels, state that learned from them, and budgets that are spent twice."""

from __future__ import annotations

import copy
import math

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Subset, TensorDataset, WeightedRandomSampler, random_split

from tests.mutations.flow.program import HABIT, PEER, Theme, gdp, pure
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
    clipped_sum,
)

__all__ = ["PROGRAMS"]

PROGRAMS = Theme("batches and state")

_EPOCHS = 3
_ONE_EPOCH = math.sqrt(2) / NOISE
"""μ of one noised gradient row of a record: it moves by √2 at most."""


def _noised_rows(z: Tensor, labels: Tensor) -> Tensor:
    """Gradients of cross-entropy by the logits, each row under noise."""
    z = z.detach().requires_grad_()
    nn.functional.cross_entropy(z, labels.long(), reduction="sum").backward()
    return z.grad + NOISE * torch.randn_like(z.grad)


def _labels(wire) -> Tensor:
    return wire.private(LABELS.long(), OTHER_LABELS.long(), what="labels", owner="server")


@PROGRAMS.sound(
    claim=gdp(math.sqrt(_EPOCHS) * _ONE_EPOCH),
    why="each record is in one batch of each of three epochs of a shuffling DataLoader",
    std=NOISE,
)
def shuffled_loader(wire):
    y = _labels(wire)
    loader = DataLoader(TensorDataset(torch.arange(RECORDS), FEATURES, y), batch_size=8, shuffle=True)
    bottom = nn.Linear(6, 2)
    for epoch in range(_EPOCHS):
        for ids, x, labels in loader:
            g = wire.send(
                "gradient", _noised_rows(bottom(x), labels), sender="server", receiver=0, round_=epoch, records=ids
            )
            z = bottom(x)
            bottom.zero_grad()
            z.backward(g)
            with torch.no_grad():
                bottom.weight -= 0.1 * bottom.weight.grad


@PROGRAMS.sound(
    claim=gdp(_ONE_EPOCH), why="record numbers are looked up in the server's labels, one batch a record", std=NOISE
)
def labels_looked_up_by_number(wire):
    y = _labels(wire)
    bottom = nn.Linear(6, 2)
    for batch in torch.randperm(RECORDS).split(10):
        ids = wire.send("ids", batch, sender=0, receiver="server", round_=0, records=None)
        g = _noised_rows(bottom(FEATURES[ids]), y[ids])
        wire.send("gradient", g, sender="server", receiver=0, round_=0, records=ids)


@PROGRAMS.sound(
    claim=gdp(_ONE_EPOCH),
    why="the training part of random_split, one epoch, and nothing is sent of the other part",
    std=NOISE,
)
def random_split_of_the_records(wire):
    y = _labels(wire)
    train, held = random_split(TensorDataset(FEATURES, y), [30, 10])
    assert isinstance(held, Subset)
    bottom = nn.Linear(6, 2)
    for x, labels in DataLoader(train, batch_size=10):
        wire.send("gradient", _noised_rows(bottom(x), labels), sender="server", receiver=0, round_=0, records=None)


@PROGRAMS.sound(
    claim=gdp(math.sqrt(3) * _ONE_EPOCH),
    why="public weights draw the batches, and no record is drawn more than thrice",
    std=NOISE,
)
def weighted_sampler_on_public_weights(wire):
    y = _labels(wire)
    weights = FEATURES.abs().sum(1).clamp(max=5)
    bottom = nn.Linear(6, 2)
    for t in range(3):
        batch = list(WeightedRandomSampler(weights, 10, replacement=False))
        wire.send(
            "gradient",
            _noised_rows(bottom(FEATURES[batch]), y[batch]),
            sender="server",
            receiver=0,
            round_=t,
            records=torch.tensor(batch),
        )


@PROGRAMS.broken(
    claim=gdp(_ONE_EPOCH),
    why="batches are balanced by class, and the record numbers of each batch are sent in that order",
    tells=lambda sent: bool((sent[0].tensors["records"] == TARGET).any()) == bool(OTHER_LABELS[TARGET] > 0),
)
def batches_balanced_by_class(wire):
    y = _labels(wire)
    bottom = nn.Linear(6, 2)
    for batch in (torch.nonzero(y == 1)[:, 0], torch.nonzero(y == 0)[:, 0]):
        wire.send(
            "gradient",
            _noised_rows(bottom(FEATURES[batch]), y[batch]),
            sender="server",
            receiver=0,
            round_=0,
            records=batch,
        )


@PROGRAMS.broken(
    claim=gdp(_ONE_EPOCH),
    why="records are sorted by label before they are cut into batches",
    tells=lambda sent: torch.equal(torch.cat([m.tensors["records"] for m in sent]), OTHER_LABELS.argsort(stable=True)),
)
def loader_in_the_order_of_labels(wire):
    y = _labels(wire)
    bottom = nn.Linear(6, 2)
    ids = y.argsort(stable=True)
    for ids_of_batch, x, labels in DataLoader(TensorDataset(ids, FEATURES[ids], y[ids]), batch_size=10):
        wire.send(
            "gradient", _noised_rows(bottom(x), labels), sender="server", receiver=0, round_=0, records=ids_of_batch
        )


@PROGRAMS.broken(
    claim=gdp(math.sqrt(3) * _ONE_EPOCH),
    why="rarer classes are drawn more often, by weights that are counted on the private labels, and the batch is sent",
    # The number of ones decides all weights, and the target's own are those of its class: some batch is likelier by a
    # factor that has no bound in terms of the gradients' noise. For the pair: a shift of 1/20 in each of 30 draws.
    exact=lambda: math.inf,
)
def weighted_sampler_on_labels(wire):
    y = _labels(wire)
    counts = torch.bincount(y, minlength=2).float()
    # A class with fewer than twenty records is doubled, the other is left out in the first batch.
    weights = torch.where(counts[y] < 20, 2.0, 0.0) + (counts >= 20).all().float()
    bottom = nn.Linear(6, 2)
    for t in range(3):
        batch = torch.multinomial(weights, 10)
        wire.send(
            "gradient",
            _noised_rows(bottom(FEATURES[batch]), y[batch]),
            sender="server",
            receiver=0,
            round_=t,
            records=batch,
        )


@PROGRAMS.broken(
    claim=ANSWERS,
    why="the server's own weights learn from exact labels, are read by later answers, and are sent at the end",
    tells=lambda sent: _nearer(sent[-1].tensors[""], _learned),
)
def later_answers_read_weights_that_saw_labels(wire):
    y = wire.private(LABELS, OTHER_LABELS, what="labels", owner="server")
    top = torch.zeros(6)
    for t in range(ROUNDS):
        m = clipped_sum(top, y, t) + NOISE * torch.randn(1)
        wire.send("answer", m, sender="server", receiver=0, round_=t, records=EVERYONE)
        top = _stepped(top, y)
    wire.send("model", top, sender="server", receiver=0, round_=ROUNDS, records=EVERYONE)


def _stepped(top: Tensor, labels: Tensor) -> Tensor:
    return top + 0.1 * ((labels - torch.sigmoid(FEATURES @ top)).unsqueeze(1) * FEATURES).mean(0)


def _learned(labels: Tensor) -> Tensor:
    top = torch.zeros(6)
    for _ in range(ROUNDS):
        top = _stepped(top, labels)
    return top


def _second_round() -> float:
    rows = []
    for labels in (LABELS, OTHER_LABELS):
        g = 0.5 - nn.functional.one_hot(labels.long(), 2).float()
        top = -50 * g.T @ FEATURES / RECORDS
        moved = (FEATURES @ top.T).softmax(1) - nn.functional.one_hot(labels.long(), 2)
        moved[TARGET] = 0
        rows.append(moved)
    return float((rows[1] - rows[0]).norm()) / NOISE


@PROGRAMS.broken(
    claim=gdp(_ONE_EPOCH),
    why="a top that took one exact step is used in the second round: embeddings' gradients of all records move",
    exact=_second_round,
    std=NOISE,
)
def top_that_learned_from_exact_labels(wire):
    y = _labels(wire)
    top = torch.zeros(2, 6)
    for t in range(2):
        g = (FEATURES @ top.T).softmax(1) - nn.functional.one_hot(y, 2)
        if t:
            # Only the target's record was in the first batch; the second is all others.
            g[TARGET] = 0
            wire.send(
                "gradient", g + NOISE * torch.randn_like(g), sender="server", receiver=0, round_=t, records=EVERYONE
            )
        top = top - 50 * g.T @ FEATURES / RECORDS


@PROGRAMS.sound(
    claim=ANSWERS,
    why="the server's weights learn from the noised answers only, and are sent at the end",
    exact=lambda: ANSWERED,
)
def model_that_learned_from_noised_answers(wire):
    y = wire.private(LABELS, OTHER_LABELS, what="labels", owner="server")
    top = torch.zeros(6)
    for t in range(ROUNDS):
        m = clipped_sum(top, y, t) + NOISE * torch.randn(1)
        m = wire.send("answer", m, sender="server", receiver=0, round_=t, records=EVERYONE)
        top = top - 0.05 * m
    wire.send("model", top, sender="server", receiver=0, round_=ROUNDS, records=EVERYONE)


@PROGRAMS.broken(
    claim=ANSWERS,
    why="the same sums are answered twice, each time with new noise, and the budget is for once",
    exact=lambda: math.sqrt(2) * ANSWERED,
)
def answered_twice(wire):
    y = wire.private(LABELS, OTHER_LABELS, what="labels", owner="server")
    for t in range(ROUNDS):
        for receiver in (0, 1):
            m = clipped_sum(torch.zeros(6), y, t) + NOISE * torch.randn(1)
            wire.send("answer", m, sender="server", receiver=receiver, round_=t, records=EVERYONE)


@PROGRAMS.sound(
    claim=gdp(ANSWERED, view=0),
    why="each of two devices gets answers with noise of their own, and the claim is about one of them",
    exact=lambda: ANSWERED,
)
def answered_twice_to_two_devices(wire):
    y = wire.private(LABELS, OTHER_LABELS, what="labels", owner="server")
    for t in range(ROUNDS):
        for receiver in (0, 1):
            m = clipped_sum(torch.zeros(6), y, t) + NOISE * torch.randn(1)
            wire.send("answer", m, sender="server", receiver=receiver, round_=t, records=EVERYONE)


@PROGRAMS.broken(
    claim=gdp(_ONE_EPOCH),
    why="five epochs with noise for one",
    exact=lambda: math.sqrt(5) * _ONE_EPOCH,
    std=NOISE,
)
def epochs_not_counted(wire):
    y = _labels(wire)
    bottom = nn.Linear(6, 2)
    for epoch in range(5):
        for batch in torch.randperm(RECORDS).split(20):
            wire.send(
                "gradient",
                _noised_rows(bottom(FEATURES[batch]), y[batch]),
                sender="server",
                receiver=0,
                round_=epoch,
                records=batch,
            )


@PROGRAMS.broken(
    claim=gdp(_ONE_EPOCH * math.sqrt(2)),
    why="batch norm of the top keeps running statistics of exact hidden values that saw labels, and they are sent",
    tells=lambda sent: _nearer(sent[0].tensors[""], _running),
)
def running_statistics_of_the_top(wire):
    y = _labels(wire)
    norm = nn.BatchNorm1d(1)
    norm((y.float() * FEATURES[:, 0]).unsqueeze(1))
    wire.send("buffers", norm.running_mean, sender="server", receiver=0, round_=0, records=None)


def _running(labels: Tensor) -> Tensor:
    return 0.1 * (labels * FEATURES[:, 0]).mean().reshape(1)


def _nearer(observed: Tensor, expected) -> bool:
    """Whether an exact value is that of the neighbouring world."""
    return bool((observed - expected(OTHER_LABELS)).norm() < (observed - expected(LABELS)).norm())


@PROGRAMS.sound(
    claim=gdp(_ONE_EPOCH),
    why="batch norm of the bottom keeps statistics of public features",
    std=NOISE,
)
def running_statistics_of_the_bottom(wire):
    y = _labels(wire)
    bottom = nn.Sequential(nn.Linear(6, 2), nn.BatchNorm1d(2))
    wire.send("gradient", _noised_rows(bottom(FEATURES), y), sender="server", receiver=0, round_=0, records=EVERYONE)
    wire.send("buffers", bottom[1].running_mean, sender=0, receiver="server", round_=0, records=None)


@PROGRAMS.broken(
    claim=gdp(_ONE_EPOCH),
    why="momentum is kept of exact gradients, and only the last is noised as much as one of them needs",
    exact=lambda: (1 + 0.9 + 0.81) * math.sqrt(2) / NOISE,
    std=NOISE,
)
def momentum_of_exact_gradients(wire):
    y = _labels(wire)
    momentum = torch.zeros(RECORDS, 2)
    for _ in range(3):
        momentum = 0.9 * momentum + 0.5 - nn.functional.one_hot(y, 2)
    wire.send(
        "gradient", momentum + NOISE * torch.randn(RECORDS, 2), sender="server", receiver=0, round_=0, records=EVERYONE
    )


@PROGRAMS.broken(
    claim=gdp(_ONE_EPOCH),
    why="a checkpoint of the optimiser keeps the exact gradient's average",
    tells=lambda sent: _nearer(sent[1].tensors[""], lambda y: 0.1 * (0.5 - y) @ FEATURES),
)
def state_of_adam_is_sent(wire):
    y = wire.private(LABELS, OTHER_LABELS, what="labels", owner="server")
    w = nn.Parameter(torch.zeros(6))
    adam = torch.optim.Adam([w], lr=0.1)
    nn.functional.binary_cross_entropy_with_logits(FEATURES @ w, y, reduction="sum").backward()
    wire.send("gradient", w.grad / 100 + NOISE * torch.randn(6), sender="server", receiver=0, round_=0, records=None)
    adam.step()
    wire.send(
        "checkpoint", adam.state_dict()["state"][0]["exp_avg"], sender="server", receiver=0, round_=0, records=None
    )


@PROGRAMS.sound(
    claim=gdp(_ONE_EPOCH),
    why="a checkpoint of models that saw noised gradients only",
    std=NOISE,
)
def checkpoint_of_noised_training(wire):
    y = _labels(wire)
    bottom = nn.Linear(6, 2)
    adam = torch.optim.Adam(bottom.parameters(), lr=0.01)
    z = bottom(FEATURES)
    z.backward(wire.send("gradient", _noised_rows(z, y), sender="server", receiver=0, round_=0, records=EVERYONE))
    adam.step()
    kept = copy.deepcopy({"model": bottom.state_dict(), "optimiser": adam.state_dict()})
    wire.send("checkpoint", dict(kept["model"]), sender=0, receiver="server", round_=1, records=None)


@PROGRAMS.broken(
    claim=pure(1.0),
    why="labels are responded to at random for training, and the exact ones are used for a second stage",
    tells=lambda sent: _nearer(sent[1].tensors[""].float(), lambda y: (0.5 - y) @ FEATURES),
)
def second_stage_with_exact_labels(wire):
    y = wire.private(LABELS, OTHER_LABELS, what="labels", owner="server")
    noised = torch.where(torch.rand(RECORDS) > 1 / (1 + math.e), y, 1 - y)
    for t, labels in enumerate((noised, y)):
        wire.send("gradient", (0.5 - labels) @ FEATURES, sender="server", receiver=0, round_=t, records=EVERYONE)


@PROGRAMS.broken(
    claim=gdp(2 / NOISE),
    why="the sum is divided by a batch size that the private labels decide, as if it were public",
    origin=PEER,
    exact=lambda: _by_count() / NOISE,
    std=NOISE,
)
def divided_by_a_private_count(wire):
    y = wire.private(LABELS, OTHER_LABELS, what="labels", owner="server")
    g = nn.functional.normalize((0.5 - y).unsqueeze(1) * FEATURES)
    wire.send(
        "gradient",
        RECORDS * (g.sum(0) / (y.sum() - 18)) + NOISE * torch.randn(6),
        sender="server",
        receiver=0,
        round_=0,
        records=EVERYONE,
    )


def _by_count() -> float:
    sums = [
        RECORDS * nn.functional.normalize((0.5 - y).unsqueeze(1) * FEATURES).sum(0) / (y.sum() - 18)
        for y in (LABELS, OTHER_LABELS)
    ]
    return float((sums[1] - sums[0]).norm())


@PROGRAMS.sound(
    claim=gdp(_ONE_EPOCH),
    why="noised gradients of four micro-batches are accumulated before the device takes a step",
    std=NOISE,
    origin=HABIT,
)
def gradient_accumulation(wire):
    y = _labels(wire)
    bottom = nn.Linear(6, 2)
    sgd = torch.optim.SGD(bottom.parameters(), lr=0.1, momentum=0.9)
    for place, batch in enumerate(torch.randperm(RECORDS).split(5)):
        z = bottom(FEATURES[batch])
        g = wire.send("gradient", _noised_rows(z, y[batch]), sender="server", receiver=0, round_=place, records=batch)
        (z * g).sum().div(4).backward()
        if place % 4 == 3:
            sgd.step()
            sgd.zero_grad()
