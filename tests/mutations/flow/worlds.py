"""The records that the small programs train on, and the adversary's arithmetic on what they send.

The neighbouring world has another label (or another row of features) at one record. That record's features are such
that a clipped contribution moves by exactly the whole clip range, so that claims are true with equality.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from tests.mutations.flow.program import gdp
from vflpriv.audits.flow.plain.wire import SentMessage

__all__ = [
    "ANSWERED",
    "ANSWERS",
    "COLUMNS",
    "EVERYONE",
    "FEATURES",
    "LABELS",
    "NOISE",
    "OTHER_LABELS",
    "RECORDS",
    "ROUNDS",
    "TARGET",
    "answers",
    "answers_of_one_sign",
    "clipped_sum",
    "correlated_mu",
    "epsilon_of",
    "noise_of",
    "other_rows",
]

RECORDS, COLUMNS, ROUNDS = 40, 6, 6
TARGET = 3
"""The record that differs between the worlds."""
NOISE = 2.0
"""Std of the noise on one clipped sum, which one label moves by at most 1."""

_generator = torch.Generator().manual_seed(5)
FEATURES = torch.randn(RECORDS, COLUMNS, generator=_generator)
FEATURES[TARGET] = torch.tensor([10.0, -10.0, 10.0, -10.0, 10.0, -10.0])
LABELS = (FEATURES[:, 0] > 0).float()
OTHER_LABELS = LABELS.clone()
OTHER_LABELS[TARGET] = 1 - OTHER_LABELS[TARGET]
EVERYONE = torch.arange(RECORDS)

ANSWERED = math.sqrt(ROUNDS) * 1.0 / NOISE
"""μ of one run of `answers`: sensitivity 1, noise std 2, each round."""
ANSWERS = gdp(ANSWERED)


def clipped_sum(weights: Tensor, labels: Tensor, round_: int) -> Tensor:
    """The derivative of the logistic loss by one weight, each record's share clipped to [-1/2, 1/2]."""
    shares = (torch.sigmoid(FEATURES @ weights) - labels) * FEATURES[:, round_ % COLUMNS]
    return shares.clamp(-0.5, 0.5).sum()


def answers(
    wire: Any,
    noise: Callable[[], Tensor],
    *,
    after: Callable[[Tensor], Tensor] | None = None,
    beside: Callable[[Any, Tensor, int], None] | None = None,
    column: int | None = None,
) -> None:
    """A server answers a device with one clipped sum a round, under noise of its own, and the device learns by it.

    `noise` are the draws of all rounds, with std 1; `after` is done to what is sent; `beside` sends more.
    With a `column`, all rounds ask for the sum of that one.
    """
    labels = wire.private(LABELS, OTHER_LABELS, what="labels", owner="server")
    draws = noise()
    weights = torch.zeros(COLUMNS)
    for round_ in range(ROUNDS):
        answer = clipped_sum(weights, labels, round_ if column is None else column) + NOISE * draws[round_]
        answer = answer if after is None else after(answer)
        answer = wire.send("answer", answer.reshape(1), sender="server", receiver=0, round_=round_, records=EVERYONE)
        weights = weights - 0.05 * answer
        if beside is not None:
            beside(wire, labels, round_)


def answers_of_one_sign(wire: Any, noise: Callable[[], Tensor]) -> None:
    """Answers that the target's label moves in the same direction each round, since all ask for the first column."""
    answers(wire, noise, column=0)


def noise_of(sent: Sequence[SentMessage], labels: Tensor, *, column: int | None = None) -> Tensor:
    """The draws that answers would hide if these were the labels, which everybody can compute."""
    weights, draws = torch.zeros(COLUMNS), []
    for message in (m for m in sent if m.kind == "answer"):
        draws.append(
            (message.tensors[""][0] - clipped_sum(weights, labels, message.round if column is None else column)) / NOISE
        )
        weights = weights - 0.05 * message.tensors[""]
    return torch.stack(draws).double()


def correlated_mu(gaps: Tensor, spread: Tensor) -> float:
    """μ of releases that move by `gaps` under noise `spread @ z`, z standard normal; inf if a direction has none."""
    covariance = spread.double() @ spread.double().T
    solution = torch.linalg.pinv(covariance, rtol=1e-10, hermitian=True) @ gaps.double()
    if (covariance @ solution - gaps.double()).norm() > 1e-6 * gaps.double().norm():
        return math.inf
    return math.sqrt(float(gaps.double() @ solution))


def epsilon_of(here: Sequence[float], there: Sequence[float]) -> float:
    """The largest |log ratio| of two discrete laws; inf where one has mass that the other has not."""
    pairs = [(p, q) for p, q in zip(here, there, strict=True) if p > 0 or q > 0]
    return max(abs(math.log(p / q)) if p > 0 and q > 0 else math.inf for p, q in pairs)


def other_rows(rows: Tensor, replacement: Tensor) -> Tensor:
    """The rows of the neighbouring world: the target's is replaced."""
    replaced = rows.clone()
    replaced[TARGET] = replacement
    return replaced
