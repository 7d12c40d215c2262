"""Recorded trainings whose values were processed after their noise, and broken ones that look alike.

A transcript shows values as they were sent. Values that are too small to hold the declared noise may have been
processed after it, which costs nothing; so they accuse nobody by themselves, and support nothing either.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from tests.mutations.case import Mutation
from tests.mutations.recorded import (
    BATCH,
    RECORDS,
    RESPONSES,
    ROUNDS,
    ROWS,
    SCALARS,
    Recorded,
    Script,
    Training,
    claimed,
)

__all__ = ["CONTROLS", "MUTATIONS"]

Processing = Callable[[Tensor], Tensor]


def _sums(process: Processing = torch.clone, *, noise: float = 1.0, weight: float = 0.05, bare: int = 0) -> Script:
    """Noised sums of labels, processed; every `bare`-th has no noise."""

    def script(wire: Any, training: Training) -> None:
        for t, ids in enumerate(training.batches()):
            drawn = 0.0 * training.normal(1) if bare and t % bare == bare - 1 else noise * training.normal(1)
            wire.down(t, 0, "answer", {"x": process(weight * training.labels[ids].float().sum() + drawn)}, ids)

    return script


def _averaged(wire: Any, training: Training) -> None:
    average = torch.zeros(1)
    for t, ids in enumerate(training.batches()):
        noised = 0.05 * training.labels[ids].float().sum() + training.normal(1)
        average = 0.95 * average + 0.05 * noised
        wire.down(t, 0, "answer", {"x": average}, ids)


def _rows(process: Processing, *, noise: float = 1.0, size: float = 0.2, bare: int = 0) -> Script:
    """Noised embeddings, processed; those of every `bare`-th round have no noise."""

    def script(wire: Any, training: Training) -> None:
        embeddings = size * training.normal(RECORDS, 4)
        embeddings = embeddings * (0.25 / embeddings.norm(dim=1, keepdim=True)).clamp(max=1.0 if noise else 100.0)
        for t, ids in enumerate(training.batches()):
            quiet = bare and t % bare == bare - 1
            drawn = (0.0 if quiet else noise) * training.normal(BATCH, 4)
            wire.up(t, 0, "embeddings", {"embedding": process(embeddings[ids] + drawn)}, ids)

    return script


def _largest(rows: Tensor) -> Tensor:
    return rows * (rows.abs() >= rows.abs().amax(-1, keepdim=True))


def _bytes(rows: Tensor) -> Tensor:
    step = rows.abs().max() / 127
    return (rows / step).round() * step


def _laplace(*, gaussian: float = 0.0) -> Script:
    """Sums under Laplace noise of scale 1, or under Gaussian noise of this std."""

    def script(wire: Any, training: Training) -> None:
        for t, ids in enumerate(training.batches()):
            centred = torch.rand(1, generator=training.generator) - 0.5
            drawn = -centred.sign() * torch.log1p(-2 * centred.abs())
            drawn = gaussian * training.normal(1) if gaussian else drawn
            wire.down(t, 0, "answer", {"x": 0.05 * training.labels[ids].float().sum() + drawn}, ids)

    return script


def _redrawn(wire: Any, training: Training) -> None:
    for t, ids in enumerate(training.batches()):
        noised = training.responses(training.labels[ids], 1.0)
        wire.down(t, 0, "logit-gradient", {"gradient": training.gradients(noised)}, ids)


def _smoothed(wire: Any, training: Training) -> None:
    """Responses that are drawn once, with smoothed labels behind them."""
    noised = training.responses(training.labels, 1.0)
    for t, ids in enumerate(training.batches()):
        gradients = training.gradients(noised[ids]) * 0.9
        wire.down(t, 0, "logit-gradient", {"gradient": gradients}, ids)


def _beside(status: Callable[[Training, Tensor], Tensor]) -> Script:
    """Noised sums, and a status of the batch beside them."""

    def script(wire: Any, training: Training) -> None:
        _sums()(wire, training)
        for t, ids in enumerate(training.batches(), start=ROUNDS):
            wire.down(t, 0, "status", {"values": status(training, ids)}, ids)

    return script


def _missing(wire: Any, training: Training) -> None:
    """Some rounds were not recorded, and the numbers of the others show it."""
    for t, ids in enumerate(training.batches()):
        if not 20 <= t < 30:
            wire.down(t, 0, "answer", {"x": 0.05 * training.labels[ids].float().sum() + training.normal(1)}, ids)


def _coarse(values: Tensor) -> Tensor:
    return values.round()


_FEATURES = claimed("features", "server")
_LAPLACE = SCALARS.replace('"gaussian"', '"laplace"')
_PUBLIC = 'public = ["status"]' + SCALARS


def _sound(name: str, fault: str, script: Script, ledger: str = SCALARS + claimed(), **fields: Any) -> Mutation:
    return Mutation(
        name=f"sound-recorded-{name}",
        family="control",
        fault=fault,
        change="none",
        expected="none",
        case=Recorded(script=script, ledger=ledger, **fields),
        accepted=(0, 3),
        seeds=5,
    )


def _broken(
    name: str, fault: str, change: str, script: Script, ledger: str = SCALARS + claimed(), **fields: Any
) -> Mutation:
    return Mutation(
        name=f"recorded-{name}",
        family="recorded",
        fault=fault,
        change=change,
        expected="noise",
        case=Recorded(script=script, ledger=ledger, **fields),
        accepted=(1, 3),
    )


CONTROLS: Sequence[Mutation] = (
    _sound("rounded", "recorded sums, rounded to one digit after the noise", _sums(lambda x: (10 * x).round() / 10)),
    _sound("rounded-coarsely", "recorded sums, rounded to whole standard deviations", _sums(_coarse)),
    _sound(
        "rounded-to-few", "recorded sums, rounded to three standard deviations", _sums(lambda x: 3 * (x / 3).round())
    ),
    _sound("signs", "the signs of recorded sums", _sums(torch.sign)),
    _sound("small-signs", "the signs of recorded sums, a hundredth as large", _sums(lambda x: 0.01 * x.sign())),
    _sound("clamped", "recorded sums, clamped to one standard deviation", _sums(lambda x: x.clamp(-1, 1))),
    _sound("clamped-closely", "recorded sums, clamped to a fifth", _sums(lambda x: x.clamp(-0.2, 0.2))),
    _sound("brain", "recorded sums in bfloat16", _sums(lambda x: x.bfloat16())),
    _sound("scaled", "recorded sums, scaled to a half", _sums(lambda x: 0.5 * x)),
    _sound("squashed", "the hyperbolic tangents of recorded sums", _sums(torch.tanh)),
    _sound("more-noise", "recorded sums with one and a half times the noise", _sums(noise=1.5)),
    _sound("averaged", "a moving average of noised sums", _averaged),
    _sound("laplace", "recorded sums with Laplace noise", _laplace(), _LAPLACE + claimed()),
    _sound(
        "gaussian-for-laplace",
        "recorded sums under Gaussian noise of the deviation of the declared Laplace noise, which tells less at this δ",
        _laplace(gaussian=math.sqrt(2)),
        _LAPLACE + claimed(),
    ),
    _sound("integers", "recorded sums as whole numbers", _sums(lambda x: x.round().to(torch.int64))),
    _sound("top-rows", "the largest entry of each noised row", _rows(_largest), ROWS + _FEATURES),
    _sound("byte-rows", "noised rows in eight bits", _rows(_bytes), ROWS + _FEATURES),
    _sound(
        "unit-rows",
        "noised rows of length one",
        _rows(lambda x: torch.nn.functional.normalize(x, dim=-1)),
        ROWS + _FEATURES,
    ),
    _sound("positive-rows", "the positive parts of noised rows", _rows(torch.relu), ROWS + _FEATURES),
    _sound("sign-rows", "the signs of noised rows", _rows(torch.sign), ROWS + _FEATURES),
    _sound("rounded-rows", "noised rows, rounded to whole standard deviations", _rows(torch.round), ROWS + _FEATURES),
    _sound("smoothed", "gradients of responses, scaled as smoothing does", _smoothed, RESPONSES + claimed()),
    _sound(
        "clock",
        "a public status that says the time",
        _beside(lambda training, ids: training.normal(1)),
        _PUBLIC + claimed(),
    ),
)
MUTATIONS: Sequence[Mutation] = (
    _broken(
        "bare-signs", "the signs of rows without noise", "total leak", _rows(torch.sign, noise=0.0), ROWS + _FEATURES
    ),
    _broken(
        "bare-rounded",
        "rows that are rounded, without noise",
        "total leak",
        _rows(lambda x: (4 * x).round() / 4, noise=0.0, size=3.0),
        ROWS + _FEATURES,
    ),
    _broken(
        "bare-in-ten",
        "rows of one round in ten are without noise",
        "total leak",
        _rows(torch.clone, size=3.0, bare=10),
        ROWS + _FEATURES,
    ),
    _broken(
        "noise-too-small",
        "rows with a tenth of the noise, rounded to a tenth",
        "+900 %",
        _rows(lambda x: (10 * x).round() / 10, noise=0.1),
        ROWS + _FEATURES,
    ),
    _broken(
        "gaussian-for-laplace",
        "Gaussian noise of std 0.5 where Laplace noise of scale 1 is declared",
        "+100 %",
        _laplace(gaussian=0.5),
        _LAPLACE + claimed(),
    ),
    _broken(
        "redrawn-once",
        "responses that the ledger calls drawn once are drawn anew for every batch",
        "ε times the epochs",
        _redrawn,
        RESPONSES + claimed(),
    ),
    _broken("sensitivity", "sums of labels move by ten times the declared sensitivity", "+900 %", _sums(weight=0.5)),
    _broken(
        "public-sums",
        "the number of labels of the batch in a kind that the ledger calls public",
        "total leak",
        _beside(lambda training, ids: training.labels[ids].float().sum()[None]),
        _PUBLIC + claimed(),
    ),
    _broken(
        "public-noisy-sums",
        "the same under some noise",
        "+1900 %",
        _beside(lambda training, ids: training.labels[ids].float().sum()[None] + training.normal(1)),
        _PUBLIC + claimed(),
    ),
    _broken("missing-rounds", "ten rounds in the middle were not recorded", "+10 %", _missing),
)
