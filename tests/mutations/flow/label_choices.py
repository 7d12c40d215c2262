"""Labels that are chosen by draws: randomised response, Gumbel's trick, label sets, and the mistakes in them."""

from __future__ import annotations

import math
import random

import numpy as np
import torch
from torch import Tensor, nn

from tests.mutations.flow.program import HABIT, PEER, SKETCH, Theme, gdp, pure
from tests.mutations.flow.worlds import EVERYONE, FEATURES, LABELS, OTHER_LABELS, RECORDS, TARGET, epsilon_of

__all__ = ["PROGRAMS"]

PROGRAMS = Theme("label choices")

_EPSILON = 1.0
_ONCE = pure(_EPSILON)
_CODES, _OTHER_CODES = LABELS.long(), OTHER_LABELS.long()
_CLASSES = 4
_GENRES = (torch.arange(RECORDS) * 7) % _CLASSES
_OTHER_GENRES = _GENRES.clone()
_OTHER_GENRES[TARGET] = (_GENRES[TARGET] + 1) % _CLASSES


def _flip(epsilon: float = _EPSILON) -> float:
    return 1 / (1 + math.exp(epsilon))


def _two(flip: float) -> float:
    """ε of one label out of two that is exchanged with this probability."""
    return epsilon_of((1 - flip, flip), (flip, 1 - flip))


def _learn(wire, labels: Tensor, rounds: int = 4) -> None:
    """The top trains on the labels that it was given, and sends the gradients by the inputs' weights."""
    w = torch.zeros(6)
    for t in range(rounds):
        g = ((torch.sigmoid(FEATURES @ w) - labels.float())[:, None] * FEATURES).sum(0)
        w = w - 0.05 * wire.send("gradient", g, sender="server", receiver=0, round_=t, records=EVERYONE)


def _codes(wire) -> Tensor:
    return wire.private(_CODES, _OTHER_CODES, what="labels", owner="server")


@PROGRAMS.sound(claim=_ONCE, why="randomised response by where", origin=SKETCH, exact=lambda: _two(_flip()))
def response_by_where(wire):
    y = _codes(wire)
    keep = torch.rand(RECORDS) > _flip()
    _learn(wire, torch.where(keep, y, 1 - y))


@PROGRAMS.sound(claim=_ONCE, why="randomised response by exclusive or", origin=SKETCH, exact=lambda: _two(_flip()))
def response_by_xor(wire):
    y = _codes(wire)
    _learn(wire, y ^ (torch.rand(RECORDS) < _flip()).long())


@PROGRAMS.sound(claim=_ONCE, why="randomised response by Bernoulli draws", origin=SKETCH, exact=lambda: _two(_flip()))
def response_by_bernoulli(wire):
    y = _codes(wire)
    _learn(wire, torch.bernoulli(torch.where(y > 0, 1 - _flip(), _flip())))


@PROGRAMS.sound(claim=_ONCE, why="randomised response by multinomial draws", origin=SKETCH, exact=lambda: _two(_flip()))
def response_by_multinomial(wire):
    y = _codes(wire)
    chances = torch.where(nn.functional.one_hot(y, 2).bool(), 1 - _flip(), _flip())
    _learn(wire, torch.multinomial(chances, 1)[:, 0])


@PROGRAMS.sound(
    claim=_ONCE,
    why="the larger of two logits under Gumbel noise is a softmax draw",
    origin=SKETCH,
    exact=lambda: _two(_flip()),
)
def response_by_gumbel(wire):
    y = _codes(wire)
    gumbel = -(-torch.rand(RECORDS, 2).log()).log()
    _learn(wire, (nn.functional.one_hot(y, 2) * _EPSILON + gumbel).argmax(1))


@PROGRAMS.sound(
    claim=_ONCE, why="distributions.Categorical over four classes", exact=lambda: epsilon_of(*_two_of_four(_EPSILON))
)
def response_by_categorical(wire):
    y = wire.private(_GENRES, _OTHER_GENRES, what="labels", owner="server")
    logits = _EPSILON * nn.functional.one_hot(y, _CLASSES).float()
    noised = torch.distributions.Categorical(logits=logits).sample()
    wire.send("labels", noised, sender="server", receiver=0, round_=0, records=EVERYONE)


def _two_of_four(epsilon: float) -> tuple[list[float], list[float]]:
    """The laws of the response in the two worlds, over four classes."""
    other = 1 / (_CLASSES - 1 + math.exp(epsilon))
    here = [math.exp(epsilon) * other, other, other, other]
    return here, [other, here[0], other, other]


@PROGRAMS.sound(
    claim=_ONCE,
    why="a label is replaced by a uniform class with the right probability",
    exact=lambda: epsilon_of(*_two_of_four(_EPSILON)),
)
def response_by_a_uniform_class(wire):
    y = wire.private(_GENRES, _OTHER_GENRES, what="labels", owner="server")
    # Keep with probability (e^ε − 1)/(e^ε + 3), else any of the four.
    keep = (math.exp(_EPSILON) - 1) / (math.exp(_EPSILON) + _CLASSES - 1)
    noised = torch.where(torch.rand(RECORDS) < keep, y, torch.randint(_CLASSES, (RECORDS,)))
    wire.send("labels", noised, sender="server", receiver=0, round_=0, records=EVERYONE)


@PROGRAMS.broken(
    claim=_ONCE,
    why="kept with e^ε/(e^ε + 3) and otherwise any of the four, so that the right one has a second chance",
    exact=lambda: epsilon_of(
        (_kept() + (1 - _kept()) / _CLASSES, (1 - _kept()) / _CLASSES),
        ((1 - _kept()) / _CLASSES, _kept() + (1 - _kept()) / _CLASSES),
    ),
)
def response_with_a_second_chance(wire):
    y = wire.private(_GENRES, _OTHER_GENRES, what="labels", owner="server")
    noised = torch.where(torch.rand(RECORDS) < _kept(), y, torch.randint(_CLASSES, (RECORDS,)))
    wire.send("labels", noised, sender="server", receiver=0, round_=0, records=EVERYONE)


def _kept() -> float:
    return math.exp(_EPSILON) / (math.exp(_EPSILON) + _CLASSES - 1)


@PROGRAMS.sound(
    claim=pure(1.0), why="half of the budget that is claimed", origin=SKETCH, exact=lambda: _two(_flip(0.5))
)
def response_with_less_than_claimed(wire):
    y = _codes(wire)
    _learn(wire, torch.where(torch.rand(RECORDS) > _flip(0.5), y, 1 - y))


@PROGRAMS.broken(
    claim=_ONCE, why="Gumbel noise of half the scale that ε = 1 needs", origin=SKETCH, exact=lambda: _two(_flip(2.0))
)
def gumbel_of_half_the_scale(wire):
    y = _codes(wire)
    gumbel = -(-torch.rand(RECORDS, 2).log()).log()
    _learn(wire, (nn.functional.one_hot(y, 2) * _EPSILON + gumbel / 2).argmax(1))


@PROGRAMS.sound(
    claim=_ONCE,
    why="the Gumbel noise of torch.nn.functional.gumbel_softmax, hard, at any temperature",
    exact=lambda: _two(_flip()),
)
def response_by_gumbel_softmax(wire):
    y = _codes(wire)
    hard = nn.functional.gumbel_softmax(nn.functional.one_hot(y, 2) * _EPSILON, tau=0.5, hard=True)
    _learn(wire, hard[:, 1].round())


@PROGRAMS.broken(
    claim=_ONCE,
    why="a soft Gumbel draw is a real number whose ratio of densities is not that of the choice",
    # log(p1/p0) = (logit difference + logistic noise)/τ: the logistic law moved by 2ε, since both logits exchange.
    exact=lambda: 2 * _EPSILON,
)
def soft_gumbel_is_sent(wire):
    y = _codes(wire)
    soft = nn.functional.gumbel_softmax(nn.functional.one_hot(y, 2) * _EPSILON, tau=0.5)
    wire.send("labels", soft, sender="server", receiver=0, round_=0, records=EVERYONE)


@PROGRAMS.broken(
    claim=_ONCE,
    why="exactly a quarter of the labels are flipped: whoever knows all others counts the flips",
    origin=SKETCH,
    tells=lambda sent: int((sent[0].tensors[""] != _CODES).sum()) != round(_flip() * RECORDS),
)
def exact_number_of_flips(wire):
    y = _codes(wire)
    rank = torch.rand(RECORDS).argsort().argsort()
    noised = torch.where(rank < round(_flip() * RECORDS), 1 - y, y)
    wire.send("labels", noised, sender="server", receiver=0, round_=0, records=EVERYONE)


@PROGRAMS.broken(
    claim=_ONCE,
    why="a random permutation chooses which eleven labels are flipped",
    tells=lambda sent: int((sent[0].tensors[""] != _CODES).sum()) != 11,
)
def flips_by_a_permutation(wire):
    y = _codes(wire)
    noised = y.clone()
    chosen = torch.randperm(RECORDS)[:11]
    noised[chosen] = 1 - noised[chosen]
    wire.send("labels", noised, sender="server", receiver=0, round_=0, records=EVERYONE)


@PROGRAMS.sound(
    claim=_ONCE, why="the flips are drawn record by record and applied by an index", exact=lambda: _two(_flip())
)
def flips_by_an_index(wire):
    y = _codes(wire)
    noised = y.clone()
    chosen = torch.rand(RECORDS) < _flip()
    noised[chosen] = 1 - noised[chosen]
    wire.send("labels", noised, sender="server", receiver=0, round_=0, records=EVERYONE)


@PROGRAMS.sound(claim=_ONCE, why="as many fresh bits as a mask has places are put there", exact=lambda: _two(_flip()))
def fresh_bits_by_a_mask(wire):
    responses = _codes(wire).clone()
    chosen = torch.rand(RECORDS) < 2 * _flip()
    responses[chosen] = torch.randint(0, 2, (int(chosen.sum()),))
    wire.send("labels", responses, sender="server", receiver=0, round_=0, records=EVERYONE)


@PROGRAMS.broken(
    claim=_ONCE,
    why="the mask ends before half of the records, whose labels are sent as they are",
    tells=lambda sent: bool(sent[0].tensors[""][TARGET] == _OTHER_CODES[TARGET]),
)
def fresh_bits_for_some_records_only(wire):
    responses = _codes(wire).clone()
    chosen = torch.rand(RECORDS) < 2 * _flip()
    chosen &= EVERYONE < TARGET
    responses[chosen] = torch.randint(0, 2, (int(chosen.sum()),))
    wire.send("labels", responses, sender="server", receiver=0, round_=0, records=EVERYONE)


@PROGRAMS.sound(claim=_ONCE, why="NumPy flips the labels before torch sees them", exact=lambda: _two(_flip()))
def flips_by_numpy(wire):
    y = _codes(wire).numpy()
    flips = np.random.default_rng().random(RECORDS) < _flip()
    wire.send(
        "labels", torch.from_numpy(np.where(flips, 1 - y, y)), sender="server", receiver=0, round_=0, records=EVERYONE
    )


@PROGRAMS.sound(
    claim=_ONCE, why="a plain loop over a list flips each label by Python's random", exact=lambda: _two(_flip())
)
def flips_by_a_python_loop(wire):
    y = _codes(wire)
    noised = [1 - label if random.random() < _flip() else label for label in y.tolist()]
    wire.send("labels", torch.tensor(noised), sender="server", receiver=0, round_=0, records=EVERYONE)


@PROGRAMS.broken(
    claim=_ONCE,
    why="the flips come from a generator whose seed is the round, which everybody knows",
    tells=lambda sent: bool(
        (sent[0].tensors[""] ^ (torch.rand(RECORDS, generator=torch.Generator().manual_seed(0)) < _flip()))[TARGET]
        == _OTHER_CODES[TARGET]
    ),
)
def flips_from_a_public_seed(wire):
    y = _codes(wire)
    flips = torch.rand(RECORDS, generator=torch.Generator().manual_seed(0)) < _flip()
    wire.send("labels", y ^ flips.long(), sender="server", receiver=0, round_=0, records=EVERYONE)


@PROGRAMS.broken(
    claim=_ONCE,
    why="the flips are drawn anew in each of eight epochs, and the budget is for one",
    exact=lambda: 8 * _two(_flip()),
)
def drawn_anew_in_each_epoch(wire):
    y = _codes(wire)
    for epoch in range(8):
        noised = torch.where(torch.rand(RECORDS) > _flip(), y, 1 - y)
        wire.send("labels", noised, sender="server", receiver=0, round_=epoch, records=EVERYONE)


@PROGRAMS.sound(
    claim=pure(8 * _EPSILON / 8),
    why="drawn anew in each of eight epochs, each with an eighth of the budget",
    exact=lambda: 8 * _two(_flip(_EPSILON / 8)),
)
def drawn_anew_with_a_share_each(wire):
    y = _codes(wire)
    for epoch in range(8):
        noised = torch.where(torch.rand(RECORDS) > _flip(_EPSILON / 8), y, 1 - y)
        wire.send("labels", noised, sender="server", receiver=0, round_=epoch, records=EVERYONE)


@PROGRAMS.sound(claim=_ONCE, why="flipped once, before many epochs of mini-batches", exact=lambda: _two(_flip()))
def flipped_once_for_many_epochs(wire):
    y = _codes(wire)
    noised = y ^ (torch.rand(RECORDS) < _flip()).long()
    top = nn.Linear(6, 2)
    optimiser = torch.optim.SGD(top.parameters(), lr=0.1)
    for epoch in range(5):
        for batch in torch.randperm(RECORDS).split(20):
            z = FEATURES[batch].requires_grad_()
            loss = nn.functional.cross_entropy(top(z), noised[batch])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            wire.send("gradient", z.grad, sender="server", receiver=0, round_=epoch, records=batch)


@PROGRAMS.broken(
    claim=_ONCE,
    why="the training loss is taken of the exact labels and sent",
    tells=lambda sent: (
        abs(_mean_loss(sent[0].tensors["labels"], OTHER_LABELS) - sent[0].tensors["loss"])
        < abs(_mean_loss(sent[0].tensors["labels"], LABELS) - sent[0].tensors["loss"])
    ),
)
def loss_of_the_exact_labels(wire):
    y = _codes(wire)
    noised = y ^ (torch.rand(RECORDS) < _flip()).long()
    loss = _mean_loss(noised, y.float())
    wire.send("labels", {"labels": noised, "loss": loss}, sender="server", receiver=0, round_=0, records=EVERYONE)


def _mean_loss(noised: Tensor, labels: Tensor) -> Tensor:
    """The loss of a model that predicts the noised labels with probability 0.8."""
    return nn.functional.binary_cross_entropy(0.2 + 0.6 * noised.float(), labels.float())


@PROGRAMS.broken(
    claim=_ONCE,
    why="the accuracy of the noised labels is sent, and counts the flips",
    tells=lambda sent: int((sent[0].tensors[""] == _OTHER_CODES).sum()) == round(float(sent[1].tensors[""]) * RECORDS),
)
def accuracy_of_the_noised_labels(wire):
    y = _codes(wire)
    noised = y ^ (torch.rand(RECORDS) < _flip()).long()
    wire.send("labels", noised, sender="server", receiver=0, round_=0, records=EVERYONE)
    wire.send(
        "metric", (noised == y).float().mean().reshape(1), sender="server", receiver=0, round_=0, records=EVERYONE
    )


@PROGRAMS.broken(
    claim=_ONCE,
    why="a flip goes to the next class and never to the other two, so that two classes are ruled out",
    exact=lambda: math.inf,
)
def flips_to_the_next_class_only(wire):
    y = wire.private(_GENRES, _OTHER_GENRES, what="labels", owner="server")
    noised = torch.where(torch.rand(RECORDS) < _flip(), (y + 1) % _CLASSES, y)
    wire.send("labels", noised, sender="server", receiver=0, round_=0, records=EVERYONE)


@PROGRAMS.broken(
    claim=_ONCE,
    why="only labels of class 1 are ever flipped: a 1 that arrives is a 1",
    exact=lambda: math.inf,
)
def flips_one_class_only(wire):
    y = _codes(wire)
    noised = torch.where((torch.rand(RECORDS) < _flip()) & (y == 1), 0, y)
    wire.send("labels", noised, sender="server", receiver=0, round_=0, records=EVERYONE)


_INCLUDED = math.exp(_EPSILON) / (math.exp(_EPSILON) + 1)
"""Two of four classes are sent; the right one is among them with this probability."""


def _label_sets(y: Tensor, included: float, size: int = 2) -> Tensor:
    """(records, 4) which classes are in each record's set, the right one with probability `included`."""
    right = nn.functional.one_hot(y, _CLASSES).bool()
    inside = torch.rand(RECORDS, 1) < included
    scores = torch.rand(RECORDS, _CLASSES).masked_fill(right, 2.0)
    scores = torch.where(right & ~inside, -1.0, scores)
    return torch.zeros(RECORDS, _CLASSES, dtype=torch.bool).scatter_(1, scores.topk(size, dim=1).indices, True)


def _sets_epsilon(included: float, size: int) -> float:
    """Sets that hold one of the two labels and not the other, of those that hold it or not (Wang et al., 2016)."""
    with_it = included / math.comb(_CLASSES - 1, size - 1)
    without = (1 - included) / math.comb(_CLASSES - 1, size)
    return epsilon_of((with_it, without), (without, with_it))


@PROGRAMS.sound(
    claim=_ONCE,
    why="a set of two of four classes holds the right one with e^ε/(e^ε + 1)",
    exact=lambda: _sets_epsilon(_INCLUDED, 2),
)
def label_sets(wire):
    y = wire.private(_GENRES, _OTHER_GENRES, what="labels", owner="server")
    wire.send("label sets", _label_sets(y, _INCLUDED), sender="server", receiver=0, round_=0, records=EVERYONE)


@PROGRAMS.broken(
    claim=_ONCE,
    why="the probability is that of sets of two classes, and the sets have one",
    exact=lambda: _sets_epsilon(_INCLUDED, 1),
)
def label_sets_of_the_wrong_size(wire):
    y = wire.private(_GENRES, _OTHER_GENRES, what="labels", owner="server")
    sets = _label_sets(y, _INCLUDED, size=1)
    wire.send("label sets", sets, sender="server", receiver=0, round_=0, records=EVERYONE)


@PROGRAMS.broken(
    claim=_ONCE,
    why="each class is kept with the probability of one bit, and two bits of the right one's row depend on the label",
    exact=lambda: 2 * _two(_flip()),
)
def unary_encoding_with_the_budget_of_one_bit(wire):
    y = wire.private(_GENRES, _OTHER_GENRES, what="labels", owner="server")
    bits = nn.functional.one_hot(y, _CLASSES).bool()
    noised = bits ^ (torch.rand(RECORDS, _CLASSES) < _flip())
    wire.send("labels", noised, sender="server", receiver=0, round_=0, records=EVERYONE)


@PROGRAMS.sound(
    claim=_ONCE, why="each bit of the one-hot row has half of the budget", exact=lambda: 2 * _two(_flip(_EPSILON / 2))
)
def unary_encoding(wire):
    y = wire.private(_GENRES, _OTHER_GENRES, what="labels", owner="server")
    bits = nn.functional.one_hot(y, _CLASSES).bool()
    noised = bits ^ (torch.rand(RECORDS, _CLASSES) < _flip(_EPSILON / 2))
    wire.send("labels", noised, sender="server", receiver=0, round_=0, records=EVERYONE)


_ONE_HOT_EPSILON = 2 * math.sqrt(2) / 2.0
"""ALIBI: Laplace noise of std 2 on each entry of a one-hot row, of which two move by 1."""


@PROGRAMS.sound(
    claim=pure(_ONE_HOT_EPSILON),
    why="Laplace noise of scale √2 on a one-hot row moves it by two scales of 1/√2",
    exact=lambda: 2 / (2.0 / math.sqrt(2)),
)
def laplace_on_one_hot_labels(wire):
    y = wire.private(_GENRES, _OTHER_GENRES, what="labels", owner="server")
    noised = nn.functional.one_hot(y, _CLASSES) + torch.distributions.Laplace(0, 2.0 / math.sqrt(2)).sample(
        (RECORDS, _CLASSES)
    )
    soft = noised.softmax(1)
    z = torch.zeros(RECORDS, _CLASSES, requires_grad=True)
    nn.functional.cross_entropy(z, soft).backward()
    wire.send("gradient", z.grad, sender="server", receiver=0, round_=0, records=EVERYONE)


@PROGRAMS.broken(
    claim=pure(_ONE_HOT_EPSILON / 2),
    why="a change of label moves two entries of the one-hot row, and the budget counts one",
    exact=lambda: _ONE_HOT_EPSILON,
    origin=PEER,
)
def laplace_on_one_hot_labels_counted_once(wire):
    y = wire.private(_GENRES, _OTHER_GENRES, what="labels", owner="server")
    noised = nn.functional.one_hot(y, _CLASSES) + torch.distributions.Laplace(0, 2.0 / math.sqrt(2)).sample(
        (RECORDS, _CLASSES)
    )
    wire.send("labels", noised, sender="server", receiver=0, round_=0, records=EVERYONE)


@PROGRAMS.broken(
    claim=_ONCE,
    why="label smoothing and mixed-in classes have no draws: the largest entry is the label",
    tells=lambda sent: bool(sent[0].tensors[""][TARGET].argmax() == _OTHER_GENRES[TARGET]),
)
def label_smoothing_taken_for_noise(wire):
    y = wire.private(_GENRES, _OTHER_GENRES, what="labels", owner="server")
    smoothed = 0.7 * nn.functional.one_hot(y, _CLASSES) + 0.3 / _CLASSES
    wire.send("labels", smoothed, sender="server", receiver=0, round_=0, records=EVERYONE)


@PROGRAMS.broken(
    claim=gdp(1.0),
    why="a key of one bit for all labels: the pattern of the others shows the key",
    tells=lambda sent: bool(
        (sent[0].tensors[""] ^ (sent[0].tensors[""][0] ^ _CODES[0]))[TARGET] == _OTHER_CODES[TARGET]
    ),
)
def one_coin_for_all_labels(wire):
    y = _codes(wire)
    wire.send("labels", y ^ torch.randint(2, (1,)), sender="server", receiver=0, round_=0, records=EVERYONE)


@PROGRAMS.sound(
    claim=pure(0.01),
    why="a fair coin for each label hides it wholly from those who have not seen the coins",
    origin=HABIT,
    exact=lambda: _two(0.5),
)
def one_fair_coin_for_each_label(wire):
    y = _codes(wire)
    wire.send("labels", y ^ torch.randint(2, (RECORDS,)), sender="server", receiver=0, round_=0, records=EVERYONE)


def _winners(genres: Tensor) -> list[float]:
    """How probable each class is to win; a count moves by 1, so that ε/2 a count gives ε for any pair."""
    return (torch.bincount(genres, minlength=_CLASSES) * _EPSILON / 2).softmax(0).tolist()


@PROGRAMS.sound(
    claim=pure(_EPSILON),
    why="the index of the class with the largest count under Gumbel noise: the exponential mechanism",
    exact=lambda: epsilon_of(*(_winners(genres) for genres in (_GENRES, _OTHER_GENRES))),
)
def most_frequent_class_by_gumbel(wire):
    y = wire.private(_GENRES, _OTHER_GENRES, what="labels", owner="server")
    counts = torch.bincount(y, minlength=_CLASSES).float()
    gumbel = -(-torch.rand(_CLASSES).log()).log()
    winner = (counts * _EPSILON / 2 + gumbel).argmax()
    wire.send("class", winner.reshape(1), sender="server", receiver=0, round_=0, records=EVERYONE)


@PROGRAMS.broken(
    claim=pure(_EPSILON),
    why="the most frequent class without noise: a tie is broken by one label",
    tells=lambda sent: int(sent[0].tensors[""]) != int(torch.bincount(_GENRES, minlength=_CLASSES).argmax()),
)
def most_frequent_class_without_noise(wire):
    y = wire.private(_GENRES, _OTHER_GENRES, what="labels", owner="server")
    winner = torch.bincount(y, minlength=_CLASSES).argmax()
    wire.send("class", winner.reshape(1), sender="server", receiver=0, round_=0, records=EVERYONE)
