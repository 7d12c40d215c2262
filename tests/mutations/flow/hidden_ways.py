"""Private numbers that come back by a way that no operation of torch shows: texts, files, lists."""

from __future__ import annotations

import io
import json
import math
import statistics
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from tests.mutations.flow.program import HABIT, SIDE, Theme, gdp, pure
from tests.mutations.flow.worlds import COLUMNS, EVERYONE, FEATURES, LABELS, NOISE, OTHER_LABELS, RECORDS

__all__ = ["PROGRAMS"]

PROGRAMS = Theme("hidden ways")
_ROUNDS = 3
_STEPS = gdp(math.sqrt(_ROUNDS) / NOISE)


def _steps(wire, factor: Callable[[Tensor], float], *, log: Callable[[Tensor], object] = lambda y: None) -> None:
    """Noised gradients, and the step that each device is to make: a noised gradient times a factor."""
    y = wire.private(LABELS, OTHER_LABELS, what="labels", owner="server")
    weights = torch.zeros(COLUMNS)
    for t in range(_ROUNDS):
        rows = (torch.sigmoid(FEATURES @ weights) - y)[:, None] * FEATURES
        rows = rows * (0.5 / rows.norm(dim=1, keepdim=True)).clamp(max=1)
        noised = rows.sum(0) + NOISE * torch.randn(COLUMNS)
        log(y)
        wire.send("gradient", noised, sender="server", receiver=0, round_=t, records=EVERYONE)
        wire.send("step", noised * factor(y), sender="server", receiver=0, round_=t)
        weights = weights - 0.1 * noised


def _by_the_factor(sent) -> bool:
    """The adversary who divides a step by its gradient."""
    pairs = zip(*([m.tensors[""] for m in sent if m.kind == kind] for kind in ("gradient", "step")), strict=True)
    factor = float(torch.stack([step.sum() / gradient.sum() for gradient, step in pairs]).mean())
    return abs(factor - float(OTHER_LABELS.mean())) < abs(factor - float(LABELS.mean()))


@PROGRAMS.broken(
    why="a step is scaled by the share of ones, which was written as JSON and read again",
    origin=SIDE,
    claim=_STEPS,
    tells=_by_the_factor,
)
def share_through_json(wire):
    _steps(wire, lambda y: json.loads(json.dumps({"share": y.mean().item()}))["share"])


@PROGRAMS.broken(
    why="a step is scaled by the share of ones, which was read from a line of the log",
    origin=SIDE,
    claim=_STEPS,
    tells=_by_the_factor,
)
def share_through_a_text(wire):
    _steps(wire, lambda y: float(f"{y.mean().item():.4f}"))


def _through_a_file(y: Tensor) -> float:
    torch.save(y.mean(), file := io.BytesIO())
    file.seek(0)
    return float(torch.load(file, weights_only=True))


@PROGRAMS.broken(
    why="a step is scaled by the share of ones, which was saved and loaded",
    origin=SIDE,
    claim=_STEPS,
    tells=_by_the_factor,
)
def share_through_a_file(wire):
    _steps(wire, _through_a_file)


@PROGRAMS.broken(
    why="a step is scaled by the share of ones, which Python's statistics make of a list",
    origin=SIDE,
    claim=_STEPS,
    tells=_by_the_factor,
)
def share_by_statistics(wire):
    _steps(wire, lambda y: float(statistics.mean(y.tolist())))


def _by_numpys_file(y: Tensor) -> float:
    np.save(file := io.BytesIO(), y.numpy())
    file.seek(0)
    return float(np.load(file).mean())


@PROGRAMS.broken(
    why="a step is scaled by the share of ones in an array that was saved and loaded",
    origin=SIDE,
    claim=_STEPS,
    tells=_by_the_factor,
)
def share_through_a_file_of_numpy(wire):
    _steps(wire, _by_numpys_file)


@PROGRAMS.sound(why="the share of ones is printed, kept in a list, and written as JSON", claim=_STEPS, std=NOISE)
def share_that_is_logged(wire):
    kept: list[float] = []

    def log(y: Tensor) -> None:
        kept.append(y.mean().item())
        print(f"{kept[-1]:.2f}", json.dumps(kept), np.round(y.numpy().mean(), 2))

    y = wire.private(LABELS, OTHER_LABELS, what="labels", owner="server")
    weights = torch.zeros(COLUMNS)
    for t in range(_ROUNDS):
        rows = (torch.sigmoid(FEATURES @ weights) - y)[:, None] * FEATURES
        rows = rows * (0.5 / rows.norm(dim=1, keepdim=True)).clamp(max=1)
        noised = rows.sum(0) + NOISE * torch.randn(COLUMNS)
        log(y)
        noised = wire.send("gradient", noised, sender="server", receiver=0, round_=t, records=EVERYONE)
        weights = weights - 0.1 * noised


@PROGRAMS.broken(
    why="a noised count decides whether a message is sent, and is counted as nothing since it is not sent itself",
    claim=gdp(0.01),
    exact=lambda: 1 / NOISE,
)
def noised_count_decides(wire):
    y = wire.private(LABELS, OTHER_LABELS, what="labels", owner="server")
    if (y.sum() + NOISE * torch.randn(())).item() > float(RECORDS) / 2:
        wire.send("stop", torch.ones(1), sender="server", receiver=0, round_=0)
    wire.send("done", torch.zeros(1), sender="server", receiver=0, round_=1)


def _shifted(wire, drawn: Callable[[Tensor], Tensor]) -> None:
    y = wire.private(LABELS.long(), OTHER_LABELS.long(), what="labels", owner="server")
    odds = torch.tensor([math.e, 1.0, 1.0])
    wire.send("answers", (y + drawn(odds / odds.sum())) % 3, sender="server", receiver=0, round_=0)


@PROGRAMS.sound(why="a shift that distributions.Categorical draws", claim=pure(1.0), exact=lambda: 1.0, origin=HABIT)
def response_by_a_drawn_shift(wire):
    _shifted(wire, lambda odds: torch.distributions.Categorical(odds).sample((RECORDS,)))


@PROGRAMS.broken(
    why="a shift that is drawn once for all labels",
    claim=pure(1.0),
    exact=lambda: math.inf,
    origin=HABIT,
)
def one_shift_for_all(wire):
    _shifted(wire, lambda odds: torch.multinomial(odds, 1).expand(RECORDS))
