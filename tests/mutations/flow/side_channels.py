"""Ways past the noise: other tensors, sizes, types, counts, order, signs of zero; and harmless things beside it."""

from __future__ import annotations

import json
import math

import torch
from torch import Tensor

from tests.mutations.flow.program import HABIT, SIDE, SKETCH, Theme, gdp
from tests.mutations.flow.worlds import (
    ANSWERED,
    ANSWERS,
    EVERYONE,
    FEATURES,
    LABELS,
    OTHER_LABELS,
    RECORDS,
    ROUNDS,
    TARGET,
    answers,
)

__all__ = ["PROGRAMS"]

PROGRAMS = Theme("side channels")

_OTHER = bool(OTHER_LABELS[TARGET] > 0)
"""The target's label in the neighbouring world."""


def _draws():
    return torch.randn(ROUNDS)


def _also(wire, round_, tensor, kind="progress"):
    return wire.send(kind, tensor, sender="server", receiver=0, round_=round_, records=None)


def _extra(sent) -> list[Tensor]:
    """What was sent beside the answers."""
    return [m.tensors[""] for m in sent if m.kind == "progress"]


def _leaky(name: str, why: str, beside, tells, *, origin: str = SIDE) -> None:
    """A broken program: sound answers, and something beside each of them."""

    def train(wire):
        answers(wire, _draws, beside=beside)

    train.__name__ = name
    PROGRAMS.broken(claim=ANSWERS, why=why, origin=origin, tells=tells)(train)


def _harmless(name: str, why: str, beside, *, origin: str = HABIT) -> None:
    """A sound program: sound answers, and something beside each of them."""

    def train(wire):
        answers(wire, _draws, beside=beside)

    train.__name__ = name
    PROGRAMS.sound(claim=ANSWERS, why=why, origin=origin, exact=lambda: ANSWERED)(train)


def _masked(wire, y, round_):
    r = torch.randint(0, 1 << 16, (1,))
    _also(wire, round_, (y[TARGET : TARGET + 1].long() + r) % (1 << 16))
    _also(wire, round_, (-r) % (1 << 16))


def _wrong_buffer(wire, y, round_):
    buffer = y.clone()
    noised = buffer.clone()
    noised.add_(torch.randn(RECORDS))
    _also(wire, round_, buffer)


def _copied_view(wire, y, round_):
    rows = torch.stack((y, 1 - y)).t()
    rows.reshape(-1).add_(torch.randn(2 * RECORDS))
    _also(wire, round_, rows)


_leaky(
    "negative_zero",
    "zeros are sent, with the label in their sign",
    lambda wire, y, t: _also(wire, t, torch.where(y > 0, torch.tensor(-0.0), torch.tensor(0.0))[TARGET : TARGET + 1]),
    lambda sent: bool(_extra(sent)[0].signbit().item() == _OTHER),
    origin=SKETCH,
)
_leaky(
    "dtype_by_the_number_of_ones",
    "the dtype of a message depends on how many labels are 1",
    lambda wire, y, t: _also(wire, t, torch.zeros(1, dtype=torch.float16 if int(y.sum()) % 2 else torch.float32)),
    lambda sent: (_extra(sent)[0].dtype == torch.float16) == (int(OTHER_LABELS.sum()) % 2 == 1),
    origin=SKETCH,
)
_leaky(
    "masks_that_cancel",
    "two messages are a label plus a mask and the mask: each is uniform, their sum is the label",
    _masked,
    lambda sent: int(_extra(sent)[0] + _extra(sent)[1]) % 2**16 == int(_OTHER),
    origin=SKETCH,
)
_leaky(
    "metric_under_public_noise",
    "a metric is sent under noise whose seed is the round, and hardly any other",
    lambda wire, y, t: _also(
        wire,
        t,
        (2 * y - 1).mean().reshape(1)
        + 2e-4 * torch.randn(1)
        + 100 * torch.randn(1, generator=torch.Generator().manual_seed(t)),
    ),
    lambda sent: abs(_unmasked(sent) - (2 * OTHER_LABELS - 1).mean()) < abs(_unmasked(sent) - (2 * LABELS - 1).mean()),
    origin=SKETCH,
)


def _unmasked(sent):
    return (_extra(sent)[0] - 100 * torch.randn(1, generator=torch.Generator().manual_seed(0))).item()


_leaky(
    "length_of_a_message",
    "as many zeros are sent as there are records of class 1",
    lambda wire, y, t: _also(wire, t, torch.zeros(int(y.sum()))),
    lambda sent: len(_extra(sent)[0]) == int(OTHER_LABELS.sum()),
)
_leaky(
    "nan_payload",
    "a NaN is sent whose spare bits are the label",
    lambda wire, y, t: _also(wire, t, (0x7FC00000 + y[TARGET : TARGET + 1].int()).view(torch.float32)),
    lambda sent: bool(_extra(sent)[0].view(torch.int32).item() & 1) == _OTHER,
)
_leaky(
    "nan_where_the_loss_is_undefined",
    "a logarithm of the label is multiplied by zero: NaN for class 0, zero for class 1",
    lambda wire, y, t: _also(wire, t, 0 * y[TARGET : TARGET + 1].log()),
    lambda sent: (not _extra(sent)[0].isnan().item()) == _OTHER,
)
_leaky(
    "one_more_message_for_a_class",
    "a message is sent only where the target is of class 1",
    lambda wire, y, t: _also(wire, t, torch.zeros(1)) if y[TARGET] > 0 else None,
    lambda sent: bool(_extra(sent)) == _OTHER,
)
_leaky(
    "round_number_by_a_label",
    "the number of a message's round depends on the label",
    lambda wire, y, t: _also(wire, t + int(y[TARGET].item()), torch.zeros(1)),
    lambda sent: bool(next(m.round for m in sent if m.kind == "progress")) == _OTHER,
)
_leaky(
    "receiver_by_a_label",
    "the label decides which device is told first",
    lambda wire, y, t: wire.send(
        "progress", torch.zeros(1), sender="server", receiver=int(y.tolist()[TARGET]), round_=t, records=None
    ),
    lambda sent: bool(next(m for m in sent if m.kind == "progress").receivers[0]) == _OTHER,
)
_leaky(
    "kind_by_a_label",
    "the name of a message says of which class the target is",
    lambda wire, y, t: _also(wire, t, torch.zeros(1), kind=f"class {y[TARGET]:.0f}"),
    lambda sent: any(m.kind == f"class {OTHER_LABELS[TARGET]:.0f}" for m in sent),
)
_leaky(
    "sorted_by_label",
    "record numbers are sent in the order of their labels",
    lambda wire, y, t: _also(wire, t, y.argsort(stable=True)),
    lambda sent: bool(torch.equal(_extra(sent)[0], OTHER_LABELS.argsort(stable=True))),
)
_leaky(
    "bare_loss",
    "the mean loss is sent to the devices for their progress bar",
    lambda wire, y, t: _also(wire, t, _loss(y).reshape(1)),
    lambda sent: abs(_extra(sent)[0] - _loss(OTHER_LABELS)) < abs(_extra(sent)[0] - _loss(LABELS)),
    origin=HABIT,
)
_leaky(
    "loss_as_a_number",
    "the mean loss is read by item() and sent as a new tensor",
    lambda wire, y, t: _also(wire, t, torch.tensor([round(_loss(y).item(), 4)])),
    lambda sent: abs(_extra(sent)[0] - _loss(OTHER_LABELS)) < abs(_extra(sent)[0] - _loss(LABELS)),
    origin=HABIT,
)
_leaky(
    "labels_as_json",
    "labels are written to JSON and its bytes are sent",
    lambda wire, y, t: _also(wire, t, torch.frombuffer(bytearray(json.dumps(y.tolist()).encode()), dtype=torch.uint8)),
    lambda sent: json.loads(bytes(_extra(sent)[0].tolist()))[TARGET] == float(_OTHER),
)
_leaky(
    "parity_in_the_lowest_bit",
    "the lowest bit of the size of a harmless random number is the label",
    lambda wire, y, t: _also(wire, t, torch.randint(2**20, (1,)) * 2 + y[TARGET].long()),
    lambda sent: bool(_extra(sent)[0].item() % 2) == _OTHER,
)
_leaky(
    "large_value_swallows_the_noise",
    "in single precision numbers near 2^30 have steps of 64: the noise is rounded away",
    lambda wire, y, t: _also(wire, t, (2.0**30 * (2 * y[TARGET : TARGET + 1] - 1)) + torch.randn(1)),
    lambda sent: bool(_extra(sent)[0].item() > 0) == _OTHER,
)
_leaky(
    "in_place_on_the_wrong_buffer",
    "a clone is noised in place and the buffer beside it is sent",
    _wrong_buffer,
    lambda sent: bool(torch.equal(_extra(sent)[0], OTHER_LABELS)),
)
_leaky(
    "noise_through_reshape_of_a_copy",
    "reshape of a transposed matrix is a copy, so that noise added to it in place reaches nothing",
    _copied_view,
    lambda sent: bool(torch.equal(_extra(sent)[0][:, 0], OTHER_LABELS)),
)


def _loss(labels: Tensor) -> Tensor:
    return torch.nn.functional.binary_cross_entropy_with_logits(FEATURES[:, 0] / 10 + FEATURES[:, 1] / 20, labels)


# Harmless things -----------------------------------------------------------------------------------------------------

_harmless(
    "public_metadata",
    "the round's number and the batch size are sent too",
    lambda wire, y, t: _also(wire, t, torch.tensor([t, len(y)])),
)
_harmless(
    "public_features_beside",
    "a public vector is sent beside the answers",
    lambda wire, y, t: _also(wire, t, FEATURES[:, t % 6]),
)
_harmless(
    "random_padding",
    "random padding that has nothing to do with labels is sent",
    lambda wire, y, t: _also(wire, t, torch.randn(8)),
)
_harmless(
    "shape_of_the_labels",
    "zeros in the shape and dtype of the labels are sent",
    lambda wire, y, t: _also(wire, t, torch.zeros_like(y)),
)
_harmless(
    "labels_that_cancel",
    "the labels less themselves are sent: zeros in any world",
    lambda wire, y, t: _also(wire, t, torch.where(torch.isfinite(y), 0.0, 1.0)),
)
_harmless(
    "loss_is_printed",
    "the loss is printed",
    lambda wire, y, t: print(f"round {t}: loss {_loss(y).item():.4f}", end="\r"),
)
_harmless(
    "accuracy_is_kept",
    "the accuracy is counted in a list that stays here",
    lambda wire, y, t: _HISTORY.append(((FEATURES[:, 0] > 0) == (y > 0)).float().mean().item()),
)
_HISTORY: list[float] = []


@PROGRAMS.sound(
    claim=gdp(0.01, view=0),
    why="one of two masks that cancel goes to each device, and the claim is about device 0 alone",
    exact=lambda: 0.0,
)
def one_share_of_two(wire):
    y = wire.private(LABELS.long(), OTHER_LABELS.long(), what="labels", owner="server")
    r = torch.randint(0, 1 << 16, (RECORDS,))
    wire.send("share", (y + r) % (1 << 16), sender="server", receiver=0, round_=0, records=EVERYONE)
    wire.send("share", (-r) % (1 << 16), sender="server", receiver=1, round_=0, records=EVERYONE)


@PROGRAMS.broken(
    claim=gdp(1.0),
    why="one of two masks that cancel goes to each device, and whoever listens to both adds them",
    tells=lambda sent: int((sent[0].tensors[""] + sent[1].tensors[""])[TARGET]) % 2**16 == int(_OTHER),
)
def two_shares_of_two(wire):
    y = wire.private(LABELS.long(), OTHER_LABELS.long(), what="labels", owner="server")
    r = torch.randint(0, 1 << 16, (RECORDS,))
    wire.send("share", (y + r) % (1 << 16), sender="server", receiver=0, round_=0, records=EVERYONE)
    wire.send("share", (-r) % (1 << 16), sender="server", receiver=1, round_=0, records=EVERYONE)


@PROGRAMS.broken(
    claim=gdp(1.0, view=0),
    why="the masks of floating-point shares are a thousandth of what they hide",
    exact=lambda: 1 / 1e-3,
)
def share_under_a_small_normal_mask(wire):
    y = wire.private(LABELS, OTHER_LABELS, what="labels", owner="server")
    r = 1e-3 * torch.randn(RECORDS)
    wire.send("share", y + r, sender="server", receiver=0, round_=0, records=EVERYONE)
    wire.send("share", -r, sender="server", receiver=1, round_=0, records=EVERYONE)


@PROGRAMS.sound(
    claim=gdp(0.01),
    why="the message goes to device 1 and the labels never meet it",
    exact=lambda: 0.0,
)
def labels_never_used(wire):
    y = wire.private(LABELS, OTHER_LABELS, what="labels", owner="server")
    assert y.shape == (RECORDS,)
    wire.send("embedding", FEATURES @ torch.randn(6, 3), sender=0, receiver="server", round_=0, records=EVERYONE)


@PROGRAMS.broken(
    claim=gdp(1.0),
    why="a count of labels is rounded to tens: other labels than these are at its edge, and no draw hides them",
    origin=SKETCH,
    # In this pair of worlds the count rounds to the same ten; the claim is about every pair.
    exact=lambda: math.inf,
)
def rounded_count_without_noise(wire):
    y = wire.private(LABELS, OTHER_LABELS, what="labels", owner="server")
    _also(wire, 0, (y.sum() / 10).round().reshape(1))


@PROGRAMS.broken(
    claim=gdp(1.0),
    why="training ends when the loss on private labels is low: the number of messages tells",
    tells=lambda sent: len(sent) == _messages_until(OTHER_LABELS),
)
def early_stopping_on_private_labels(wire):
    y = wire.private(LABELS, OTHER_LABELS, what="labels", owner="server")
    for t in range(ROUNDS):
        wire.send("embedding", torch.randn(3), sender=0, receiver="server", round_=t, records=None)
        if _patience(y, t) < 0:
            break


def _patience(labels: Tensor, round_: int) -> Tensor:
    """Below zero after as many rounds as the share of labels of class 1 says."""
    return labels.mean() * 120 % ROUNDS - round_ - 1


def _messages_until(labels: Tensor) -> int:
    return next((t + 1 for t in range(ROUNDS) if _patience(labels, t) < 0), ROUNDS)


@PROGRAMS.broken(
    claim=gdp(1.0),
    why="the step size of the next message depends on whether the private loss fell",
    tells=lambda sent: bool(sent[0].tensors[""][0] == _step(OTHER_LABELS)),
)
def step_size_by_the_private_loss(wire):
    y = wire.private(LABELS, OTHER_LABELS, what="labels", owner="server")
    step = _step(y)
    wire.send("settings", torch.full((1,), step), sender="server", receiver=0, round_=0, records=None)


def _step(labels: Tensor) -> float:
    return 0.5 if int(labels.sum()) % 2 else 0.25
