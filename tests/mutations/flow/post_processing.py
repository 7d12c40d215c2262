"""What is done to a noised value before it is sent, which costs nothing, and what is done too early or beside it."""

from __future__ import annotations

import math

import torch
from torch import nn

from tests.mutations.flow.program import HABIT, SKETCH, Theme, gdp
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
    clipped_sum,
    other_rows,
)

__all__ = ["PROGRAMS"]

PROGRAMS = Theme("post-processing")


def _draws():
    return torch.randn(ROUNDS)


def _processed(name: str, why: str, after, origin: str = HABIT) -> None:
    """A sound program that does something to each noised answer."""

    def train(wire):
        answers(wire, _draws, after=after)

    train.__name__ = name
    PROGRAMS.sound(claim=ANSWERS, why=why, origin=origin, exact=lambda: ANSWERED)(train)


_processed("rounded", "the noised answer is rounded to quarters", lambda m: (m * 4).round() / 4, SKETCH)
_processed("cast_to_half", "the noised answer is cut to half precision and back", lambda m: m.half().float(), SKETCH)
_processed("sent_as_bfloat16", "the noised answer is sent in bfloat16", lambda m: m.bfloat16())
_processed("clamped_after_the_noise", "the noised answer is clamped", lambda m: m.clamp(-3, 3), SKETCH)
_processed("sign_of_the_noised_value", "only the sign of the noised answer is sent", torch.sign, SKETCH)
_processed("scaled", "the noised answer is scaled by a step size", lambda m: 0.1 * m, SKETCH)
_processed("squashed", "the noised answer goes through tanh", torch.tanh)
_processed(
    "quantised_to_eight_bits",
    "the noised answer is quantised to int8",
    lambda m: (m * 8).round().clamp(-128, 127).to(torch.int8),
)
_processed("nan_replaced", "the noised answer goes through nan_to_num", torch.nan_to_num)
_processed("thresholded", "small noised answers are set to zero", lambda m: torch.where(m.abs() < 1, 0.0, m))
_processed("noised_twice", "a second party adds noise again", lambda m: m + torch.randn(()))
_processed(
    "stochastically_rounded",
    "the noised answer is rounded up or down by a draw",
    lambda m: (m + torch.rand(())).floor(),
)


_UNIT_ROWS = nn.functional.normalize(torch.randn(RECORDS, 4, generator=torch.Generator().manual_seed(1)))
_OTHER_ROWS = other_rows(_UNIT_ROWS, -_UNIT_ROWS[TARGET])
_ROW_MU = 2 / NOISE
"""A row of length 1 is replaced by its opposite, under noise of std 2."""


@PROGRAMS.sound(
    claim=gdp(_ROW_MU), why="of each noised row the largest entry is kept", origin=SKETCH, exact=lambda: _ROW_MU
)
def largest_entry_of_each_noised_row(wire):
    e = wire.private(_UNIT_ROWS, _OTHER_ROWS, what="features", owner=0)
    x = e + NOISE * torch.randn_like(e)
    kept = x * nn.functional.one_hot(x.abs().argmax(1), 4)
    wire.send("embedding", kept, sender=0, receiver="server", round_=0, records=EVERYONE)


@PROGRAMS.sound(
    claim=gdp(_ROW_MU),
    why="the two largest entries of each noised row are sent with their places",
    exact=lambda: _ROW_MU,
)
def top_two_of_each_noised_row(wire):
    e = wire.private(_UNIT_ROWS, _OTHER_ROWS, what="features", owner=0)
    values, places = (e + NOISE * torch.randn_like(e)).topk(2, dim=1)
    wire.send(
        "embedding", {"values": values, "places": places}, sender=0, receiver="server", round_=0, records=EVERYONE
    )


@PROGRAMS.broken(
    claim=gdp(_ROW_MU),
    why="the entries are chosen by the exact row and noised afterwards: the places are exact",
    tells=lambda sent: bool(sent[0].tensors["places"][TARGET, 0] == _OTHER_ROWS[TARGET].argmax()),
)
def top_two_of_each_row_before_the_noise(wire):
    e = wire.private(_UNIT_ROWS, _OTHER_ROWS, what="features", owner=0)
    values, places = e.topk(2, dim=1)
    noised = values + NOISE * torch.randn_like(values)
    wire.send(
        "embedding", {"values": noised, "places": places}, sender=0, receiver="server", round_=0, records=EVERYONE
    )


@PROGRAMS.broken(
    claim=gdp(_ROW_MU),
    why="the mask of entries above zero is sent beside the noised rows",
    tells=lambda sent: bool((sent[0].tensors["mask"][TARGET] == (_OTHER_ROWS[TARGET] > 0)).all()),
)
def mask_of_the_exact_rows(wire):
    e = wire.private(_UNIT_ROWS, _OTHER_ROWS, what="features", owner=0)
    wire.send(
        "embedding",
        {"rows": e + NOISE * torch.randn_like(e), "mask": e > 0},
        sender=0,
        receiver="server",
        round_=0,
        records=EVERYONE,
    )


@PROGRAMS.sound(claim=gdp(_ROW_MU), why="noised rows are brought to length 1", exact=lambda: _ROW_MU)
def normalised_after_the_noise(wire):
    e = wire.private(_UNIT_ROWS, _OTHER_ROWS, what="features", owner=0)
    noised = e + NOISE * torch.randn_like(e)
    wire.send("embedding", nn.functional.normalize(noised), sender=0, receiver="server", round_=0, records=EVERYONE)


@PROGRAMS.broken(
    claim=gdp(_ROW_MU),
    why="the rows are clipped after the noise, which therefore hides rows of any length",
    tells=lambda sent: bool((sent[0].tensors[""][TARGET] @ FEATURES[TARGET] > 0) == (OTHER_LABELS[TARGET] == 0)),
)
def clipped_after_the_noise(wire):
    y = wire.private(LABELS, OTHER_LABELS, what="labels", owner="server")
    g = (0.5 - y).unsqueeze(1) * FEATURES
    noised = g + NOISE * torch.randn_like(g)
    clipped = noised * (1 / noised.norm(dim=1, keepdim=True)).clamp(max=1)
    wire.send("gradient", clipped, sender="server", receiver=0, round_=0, records=EVERYONE)


@PROGRAMS.broken(
    claim=ANSWERS,
    why="the noised answer is clamped between the exact sum plus and minus 1",
    exact=lambda: math.inf,
)
def clamped_around_the_exact_value(wire):
    y = wire.private(LABELS, OTHER_LABELS, what="labels", owner="server")
    w = torch.zeros(6)
    for t in range(ROUNDS):
        s = clipped_sum(w, y, t)
        m = torch.clamp(s + NOISE * torch.randn(()), s - 1, s + 1)
        m = wire.send("answer", m.reshape(1), sender="server", receiver=0, round_=t, records=EVERYONE)
        w = w - 0.05 * m


@PROGRAMS.broken(
    claim=ANSWERS,
    why="noise that changes the answer's sign is left out",
    exact=lambda: math.inf,
)
def sign_kept(wire):
    y = wire.private(LABELS, OTHER_LABELS, what="labels", owner="server")
    w = torch.zeros(6)
    for t in range(ROUNDS):
        s = clipped_sum(w, y, t)
        noised = s + NOISE * torch.randn(())
        m = torch.where(noised * s > 0, noised, s)
        m = wire.send("answer", m.reshape(1), sender="server", receiver=0, round_=t, records=EVERYONE)
        w = w - 0.05 * m


@PROGRAMS.broken(
    claim=ANSWERS,
    why="the noised answer is divided by the exact one's size",
    exact=lambda: math.inf,
)
def divided_by_the_exact_size(wire):
    y = wire.private(LABELS, OTHER_LABELS, what="labels", owner="server")
    for t in range(ROUNDS):
        s = ((0.5 - y) * FEATURES[:, t]).clamp(-0.5, 0.5).sum()
        m = (s + NOISE * torch.randn(())) / (1 + s.abs())
        wire.send("answer", m.reshape(1), sender="server", receiver=0, round_=t, records=EVERYONE)


@PROGRAMS.sound(claim=ANSWERS, why="an exponential average of noised answers is sent", exact=lambda: ANSWERED)
def moving_average_of_noised_answers(wire):
    y = wire.private(LABELS, OTHER_LABELS, what="labels", owner="server")
    average = torch.zeros(1)
    for t in range(ROUNDS):
        s = ((0.5 - y) * FEATURES[:, t]).clamp(-0.5, 0.5).sum()
        average = 0.9 * average + 0.1 * (s + NOISE * torch.randn(1))
        wire.send("answer", average, sender="server", receiver=0, round_=t, records=EVERYONE)


def _averaged_first() -> float:
    """The gap of round t is 1 + 0.9 + … + 0.9^t."""
    gaps = [sum(0.9**k for k in range(t + 1)) for t in range(ROUNDS)]
    return math.sqrt(sum(gap**2 for gap in gaps)) / NOISE


@PROGRAMS.broken(
    claim=ANSWERS,
    why="the noise is added to a moving average that is kept without it, and each sum enters all later averages",
    exact=_averaged_first,
)
def noise_after_a_moving_average(wire):
    y = wire.private(LABELS, OTHER_LABELS, what="labels", owner="server")
    average = torch.zeros(1)
    for t in range(ROUNDS):
        average = 0.9 * average + ((0.5 - y) * FEATURES[:, 0]).clamp(-0.5, 0.5).sum()
        wire.send("answer", average + NOISE * torch.randn(1), sender="server", receiver=0, round_=t, records=EVERYONE)


@PROGRAMS.sound(
    claim=ANSWERS,
    why="noised answers go through a network of the server's, and what comes out is sent",
    exact=lambda: ANSWERED,
)
def noised_answers_through_a_network(wire):
    y = wire.private(LABELS, OTHER_LABELS, what="labels", owner="server")
    decoder = nn.Sequential(nn.Linear(1, 8), nn.ReLU(), nn.Linear(8, 3))
    for t in range(ROUNDS):
        s = ((0.5 - y) * FEATURES[:, t]).clamp(-0.5, 0.5).sum() + NOISE * torch.randn(1)
        wire.send("answer", decoder(s), sender="server", receiver=0, round_=t, records=EVERYONE)


@PROGRAMS.sound(claim=ANSWERS, why="noised answers are sorted and sent at the end", exact=lambda: ANSWERED)
def sorted_at_the_end(wire):
    y = wire.private(LABELS, OTHER_LABELS, what="labels", owner="server")
    noised = [((0.5 - y) * FEATURES[:, t]).clamp(-0.5, 0.5).sum() + NOISE * torch.randn(()) for t in range(ROUNDS)]
    wire.send("answers", torch.stack(noised).sort().values, sender="server", receiver=0, round_=0, records=EVERYONE)


@PROGRAMS.sound(
    claim=ANSWERS, why="whether the noised answer is positive decides how many messages follow", exact=lambda: ANSWERED
)
def number_of_messages_by_a_noised_value(wire):
    y = wire.private(LABELS, OTHER_LABELS, what="labels", owner="server")
    for t in range(ROUNDS):
        m = ((0.5 - y) * FEATURES[:, t]).clamp(-0.5, 0.5).sum() + NOISE * torch.randn(())
        wire.send("answer", m.reshape(1), sender="server", receiver=0, round_=t, records=EVERYONE)
        if m > 0:
            wire.send("note", torch.ones(1), sender="server", receiver=0, round_=t, records=EVERYONE)
