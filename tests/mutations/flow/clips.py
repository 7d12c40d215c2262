"""How far one label moves what is noised: clips by record, batch and layer, and sensitivities that are miscounted."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from tests.mutations.flow.program import PEER, Theme, gdp
from tests.mutations.flow.worlds import (
    EVERYONE,
    FEATURES,
    LABELS,
    NOISE,
    OTHER_LABELS,
    RECORDS,
    TARGET,
    other_rows,
)

__all__ = ["PROGRAMS"]

PROGRAMS = Theme("clips and sensitivity")

CLIP = 1.0
_OPPOSITE = gdp(2 * CLIP / NOISE)
"""A row of length at most 1 is replaced by any other: its opposite is farthest away."""


def _exact_opposite() -> float:
    return 2 * CLIP / NOISE


def _per_record(labels: Tensor) -> Tensor:
    """(records, 6) gradients of the logistic loss by the weights, at zero; the target's has length 12."""
    return (0.5 - labels).unsqueeze(1) * FEATURES


def _clipped_gap() -> float:
    """How far the target's gradient moves where rows are clipped to length 1: from v to -v."""
    rows = [_per_record(y)[TARGET] for y in (LABELS, OTHER_LABELS)]
    return float((rows[0] / rows[0].norm() - rows[1] / rows[1].norm()).norm())


def _send(wire, g, kind="gradient"):
    return wire.send(kind, g, sender="server", receiver=0, round_=0, records=EVERYONE)


def _sums(wire, clip) -> None:
    """Sends the noised sum of gradients, each clipped in some way."""
    y = wire.private(LABELS, OTHER_LABELS, what="labels", owner="server")
    total = clip(_per_record(y)).sum(0)
    _send(wire, total + NOISE * torch.randn(6))


@PROGRAMS.sound(claim=_OPPOSITE, why="each record's gradient is clipped by its own length", std=NOISE)
def clipped_by_record(wire):
    _sums(wire, lambda g: g * (CLIP / g.norm(dim=1, keepdim=True)).clamp(max=1))


@PROGRAMS.sound(claim=_OPPOSITE, why="the clip of Opacus, with its small number in the denominator", std=NOISE)
def clipped_as_opacus_does(wire):
    _sums(wire, lambda g: torch.einsum("n,nd->d", (CLIP / (g.norm(2, dim=-1) + 1e-6)).clamp(max=1.0), g).unsqueeze(0))


@PROGRAMS.sound(claim=_OPPOSITE, why="rows are divided by max(1, length)", std=NOISE)
def divided_by_the_larger_of_one_and_the_length(wire):
    _sums(wire, lambda g: g / torch.linalg.vector_norm(g, dim=1, keepdim=True).div(CLIP).clamp(min=1))


@PROGRAMS.sound(claim=_OPPOSITE, why="rows are renormed by torch.renorm", std=NOISE)
def clipped_by_renorm(wire):
    _sums(wire, lambda g: torch.renorm(g, 2, 0, CLIP))


@PROGRAMS.sound(claim=_OPPOSITE, why="automatic clipping: each row is divided by its length plus 0.01", std=NOISE)
def automatic_clipping(wire):
    _sums(wire, lambda g: g / (g.norm(dim=1, keepdim=True) + 0.01))


@PROGRAMS.broken(
    claim=_OPPOSITE,
    why="no clip at all: the target's gradient is 12 long",
    exact=lambda: float((_per_record(OTHER_LABELS) - _per_record(LABELS)).norm()) / NOISE,
    std=NOISE,
)
def no_clip(wire):
    _sums(wire, lambda g: g)


@PROGRAMS.broken(
    claim=_OPPOSITE,
    why="each entry is clipped, not the row: six entries of 1 are √6 long",
    exact=lambda: 2 * math.sqrt(6) * CLIP / NOISE,
    std=NOISE,
)
def clipped_entry_by_entry(wire):
    _sums(wire, lambda g: g.clamp(-CLIP, CLIP))


@PROGRAMS.broken(
    claim=_OPPOSITE,
    why="min(g, C) has no lower bound",
    exact=lambda: float((_upper(OTHER_LABELS) - _upper(LABELS)).norm()) / NOISE,
    std=NOISE,
)
def clipped_from_above_only(wire):
    _sums(wire, lambda g: g.clamp(max=CLIP))


def _upper(labels: Tensor) -> Tensor:
    return _per_record(labels).clamp(max=CLIP)


def _batch_clip_gap() -> float:
    """The batch's mean is clipped to length 40: a label moves it by less than 40 and by more than 2."""
    means = [
        g * (RECORDS * CLIP / g.norm()).clamp(max=1) for g in (_per_record(y).sum(0) for y in (LABELS, OTHER_LABELS))
    ]
    return float((means[1] - means[0]).norm())


@PROGRAMS.broken(
    claim=_OPPOSITE,
    why="the length of the whole batch's gradient is clipped, to as much as 40 records may have",
    exact=lambda: _batch_clip_gap() / NOISE,
    std=NOISE,
    origin=PEER,
)
def clipped_by_batch(wire):
    y = wire.private(LABELS, OTHER_LABELS, what="labels", owner="server")
    w = nn.Parameter(torch.zeros(6))
    nn.functional.binary_cross_entropy_with_logits(FEATURES @ w, y, reduction="sum").backward()
    nn.utils.clip_grad_norm_([w], RECORDS * CLIP)
    _send(wire, w.grad + NOISE * torch.randn(6))


def _layers(labels: Tensor) -> tuple[Tensor, Tensor]:
    g = _per_record(labels)
    return g, g[:, :1] * 2


@PROGRAMS.broken(
    claim=_OPPOSITE,
    why="two layers are clipped to length 1 each, and noised as if both together were",
    exact=lambda: math.sqrt(2) * 2 * CLIP / NOISE,
    std=NOISE,
    origin=PEER,
)
def clipped_layer_by_layer(wire):
    # fedbiomed's central privacy did it by parameter (its issue 1443).
    y = wire.private(LABELS, OTHER_LABELS, what="labels", owner="server")
    layers = [g * (CLIP / g.norm(dim=1, keepdim=True)).clamp(max=1) for g in _layers(y)]
    sums = [g.sum(0) + NOISE * torch.randn(g.shape[1]) for g in layers]
    _send(wire, {"weight": sums[0], "bias": sums[1]})


@PROGRAMS.sound(
    claim=gdp(math.sqrt(2) * 2 * CLIP / NOISE),
    why="two layers are clipped to length 1 each, and the claim counts both",
    std=NOISE,
)
def clipped_layer_by_layer_and_counted(wire):
    y = wire.private(LABELS, OTHER_LABELS, what="labels", owner="server")
    layers = [g * (CLIP / g.norm(dim=1, keepdim=True)).clamp(max=1) for g in _layers(y)]
    sums = [g.sum(0) + NOISE * torch.randn(g.shape[1]) for g in layers]
    _send(wire, {"weight": sums[0], "bias": sums[1]})


@PROGRAMS.broken(
    claim=_OPPOSITE,
    why="a weight by class is multiplied after the clip: the rarer class counts for more",
    exact=lambda: _weighted_gap() / NOISE,
    std=NOISE,
)
def class_weight_after_the_clip(wire):
    y = wire.private(LABELS, OTHER_LABELS, what="labels", owner="server")
    g = _per_record(y)
    g = g * (CLIP / g.norm(dim=1, keepdim=True)).clamp(max=1)
    _send(wire, (g * _weights(y).unsqueeze(1)).sum(0) + NOISE * torch.randn(6))


def _weights(labels: Tensor) -> Tensor:
    return torch.where(labels > 0, 3.0, 1.0)


def _weighted_gap() -> float:
    """From a row of length 1 to its opposite of length 3, or the other way round."""
    return float(CLIP * sum(_weights(y)[TARGET] for y in (LABELS, OTHER_LABELS)))


@PROGRAMS.broken(
    claim=_OPPOSITE,
    why="all gradients are divided by the mean length of the batch, so that a long one stays long",
    exact=lambda: _relative_gap() / NOISE,
    std=NOISE,
)
def divided_by_the_mean_length(wire):
    _sums(wire, lambda g: g / g.norm(dim=1).mean())


def _relative_gap() -> float:
    sums = [(g / g.norm(dim=1).mean()).sum(0) for g in (_per_record(y) for y in (LABELS, OTHER_LABELS))]
    return float((sums[1] - sums[0]).norm())


@PROGRAMS.broken(
    claim=_OPPOSITE,
    why="the clip is applied to a detached copy, and the gradient itself is sent",
    exact=lambda: float((_per_record(OTHER_LABELS) - _per_record(LABELS)).norm()) / NOISE,
    std=NOISE,
)
def clip_of_a_copy(wire):
    def clip(g):
        for row in g.clone():
            row.mul_((CLIP / row.norm()).clamp(max=1))
        return g

    _sums(wire, clip)


@PROGRAMS.broken(
    claim=_OPPOSITE,
    why="noise for a clip of 1, and another setting clips at 10",
    exact=lambda: 2 * 10.0 / NOISE,
    std=NOISE / RECORDS,
)
def clip_of_another_setting(wire):
    settings = {"clip": CLIP, "max_grad_norm": 10.0}
    y = wire.private(LABELS, OTHER_LABELS, what="labels", owner="server")
    g = _per_record(y)
    g = g * (settings["max_grad_norm"] / g.norm(dim=1, keepdim=True)).clamp(max=1)
    _send(wire, g.mean(0) + settings["clip"] * NOISE / RECORDS * torch.randn(6))


_ROWS = torch.randn(RECORDS, 4, generator=torch.Generator().manual_seed(2))
_OTHER = other_rows(_ROWS, -5 * _ROWS[TARGET])
_LONG = other_rows(_ROWS, -500 * _ROWS[TARGET])


@PROGRAMS.sound(claim=gdp(2 / NOISE), why="embeddings have length 1 by F.normalize, and noise of their own", std=NOISE)
def normalised_embeddings(wire):
    x = wire.private(_ROWS, _OTHER, what="features", owner=0)
    e = nn.functional.normalize(x)
    wire.send("embedding", e + NOISE * torch.randn_like(e), sender=0, receiver="server", round_=0, records=EVERYONE)


@PROGRAMS.broken(
    claim=gdp(2 / NOISE),
    why="normalised over the batch in place of over the row, so that long rows stay long",
    exact=lambda: _column_gap() / NOISE,
    std=NOISE,
)
def normalised_over_the_wrong_dimension(wire):
    x = wire.private(_ROWS, _LONG, what="features", owner=0)
    e = nn.functional.normalize(x, dim=0) * math.sqrt(RECORDS)
    wire.send("embedding", e + NOISE * torch.randn_like(e), sender=0, receiver="server", round_=0, records=EVERYONE)


def _column_gap() -> float:
    rows = [nn.functional.normalize(x, dim=0) * math.sqrt(RECORDS) for x in (_ROWS, _LONG)]
    return float((rows[1] - rows[0]).norm())


@PROGRAMS.broken(
    claim=gdp(2 / NOISE),
    why="an embedding passes a layer with a weight of 5 after it was normalised",
    exact=lambda: 5 * 2 / NOISE,
    std=NOISE,
)
def scaled_after_it_was_normalised(wire):
    x = wire.private(_ROWS, _OTHER, what="features", owner=0)
    layer = nn.Linear(4, 4, bias=False)
    nn.init.eye_(layer.weight)
    with torch.no_grad():
        layer.weight.mul_(5)
        e = layer(nn.functional.normalize(x))
    wire.send("embedding", e + NOISE * torch.randn_like(e), sender=0, receiver="server", round_=0, records=EVERYONE)


@PROGRAMS.broken(
    claim=gdp(2 / NOISE),
    why="an embedding without any noise, in a program that promises something of features",
    tells=lambda sent: bool((sent[0].tensors[""][TARGET] @ _OTHER[TARGET]) > 0),
)
def bare_embedding(wire):
    x = wire.private(_ROWS, _OTHER, what="features", owner=0)
    wire.send("embedding", nn.functional.normalize(x), sender=0, receiver="server", round_=0, records=EVERYONE)


@PROGRAMS.broken(
    claim=gdp(2 / NOISE),
    why="the embedding is noised in the first epoch, and sent again without noise for evaluation",
    tells=lambda sent: bool((sent[-1].tensors[""][TARGET] @ _OTHER[TARGET]) > 0),
)
def noise_in_training_mode_only(wire):
    class Noised(nn.Module):
        def forward(self, e):
            return e + NOISE * torch.randn_like(e) if self.training else e

    x = wire.private(_ROWS, _OTHER, what="features", owner=0)
    bottom = nn.Sequential(nn.Identity(), Noised())
    for epoch in range(2):
        bottom.train(epoch == 0)
        wire.send(
            "embedding", bottom(nn.functional.normalize(x)), sender=0, receiver="server", round_=epoch, records=EVERYONE
        )


@PROGRAMS.sound(
    claim=gdp(math.sqrt(2) / NOISE),
    why="gradients of cross-entropy by logits move by √2 at most, with no clip at all",
    exact=lambda: math.sqrt(2) / NOISE,
    std=NOISE,
)
def cross_entropy_needs_no_clip(wire):
    y = wire.private(LABELS.long(), OTHER_LABELS.long(), what="labels", owner="server")
    z = FEATURES[:, :2].clone().requires_grad_()
    nn.functional.cross_entropy(z, y, reduction="sum").backward()
    _send(wire, z.grad + NOISE * torch.randn_like(z))


@PROGRAMS.broken(
    claim=gdp(math.sqrt(2) / NOISE / RECORDS),
    why="the noise is scaled for the mean's sensitivity, and the loss was summed",
    exact=lambda: math.sqrt(2) / NOISE,
    std=NOISE,
)
def sum_for_mean(wire):
    y = wire.private(LABELS.long(), OTHER_LABELS.long(), what="labels", owner="server")
    z = FEATURES[:, :2].clone().requires_grad_()
    nn.functional.cross_entropy(z, y, reduction="sum").backward()
    _send(wire, z.grad + NOISE * torch.randn_like(z))


@PROGRAMS.sound(
    claim=gdp(0.5 / NOISE),
    why="the mean of forty sigmoids moves by less than the claim has",
    std=NOISE,
)
def sensitivity_below_the_claim(wire):
    x = wire.private(_ROWS, _OTHER, what="features", owner=0)
    m = torch.sigmoid(x).mean(0)
    wire.send("mean", m + NOISE * torch.randn(4), sender=0, receiver="server", round_=0, records=EVERYONE)


@PROGRAMS.broken(
    claim=gdp(float(FEATURES[TARGET].norm()) / RECORDS / NOISE),
    why="noise for a mean over forty records, and the mean is over those of class 1, whose number the label changes",
    exact=lambda: _class_mean_gap() / NOISE,
    std=NOISE,
)
def mean_over_a_class(wire):
    y = wire.private(LABELS, OTHER_LABELS, what="labels", owner="server")
    m = (FEATURES * y.unsqueeze(1)).sum(0) / y.sum()
    _send(wire, m + NOISE * torch.randn(6))


def _class_mean_gap() -> float:
    means = [(FEATURES * y.unsqueeze(1)).sum(0) / y.sum() for y in (LABELS, OTHER_LABELS)]
    return float((means[1] - means[0]).norm())
