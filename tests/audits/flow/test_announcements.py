"""Announced draws and answers: what is said of them is held against what is traced."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
import torch
from torch import Tensor

from vflpriv.audits.flow.observation import Observation, observe
from vflpriv.audits.flow.plain.wire import FlowWire, Program
from vflpriv.common.random import Stream, announced, answered
from vflpriv.core.law import Law
from vflpriv.laws import (
    CorrelatedGaussian,
    DiscreteGaussian,
    DiscreteLaplace,
    Exponential,
    Gaussian,
    LabelSets,
    Laplace,
    RandomizedResponse,
)
from vflpriv.laws.correlated import tree_encoder
from vflpriv.laws.discrete_gaussian import DiscreteGaussianPair
from vflpriv.laws.labels.law import LawAnswers

LABELS = torch.tensor([[0, 2, 1, 3, 0, 1]])
OTHER = torch.tensor([[0, 2, 3, 3, 0, 1]])
COUNTS = torch.tensor([[4.0, 2.0, 7.0]])
MORE = torch.tensor([[4.0, 5.0, 7.0]])


def stream() -> Stream:
    """A secret stream; its seed is another in a run under another seed."""
    return Stream.of(torch.initial_seed(), "noise", [0], torch.device("cpu"))


def seen(program: Program) -> Observation:
    return observe(program, "eavesdropper", 0)


def released(law: Law, value: Tensor, other: Tensor, *, rounds: int = 1) -> Observation:
    """What a trace says of values that a law's own sampler noises."""

    def program(wire: FlowWire) -> None:
        secret, source = wire.private(value, other), stream()
        for round_ in range(rounds):
            draws = law.draw(source, value.shape[1], round_, 0)
            wire.send("value", law.release(secret, draws), round_=round_)

    return seen(program)


def answers_of(answer: Callable[[Tensor], Tensor]) -> Observation:
    return seen(lambda wire: wire.send("labels", answer(wire.private(LABELS, OTHER))))


def test_noise_on_a_grid_costs_what_its_law_says() -> None:
    observation = released(DiscreteLaplace(1.5), COUNTS, MORE)
    assert observation.messages[0].state == "sealed"
    assert observation.loss.epsilon == pytest.approx(3 / 1.5, rel=1e-9)
    fine = released(DiscreteLaplace(0.5, 0.25, 9), COUNTS, MORE)
    assert fine.loss.epsilon == pytest.approx(3 / 0.5, rel=1e-9)


def test_discrete_gaussian_noise_has_the_pair_of_its_law() -> None:
    observation = released(DiscreteGaussian(2.0), COUNTS, MORE)
    assert observation.loss.pairs == [DiscreteGaussianPair(3, 2.0)]
    assert any("epsilon without a delta" in reason for reason in observation.unknown)


def test_continuous_noise_costs_what_its_law_says() -> None:
    assert released(Gaussian(2.0), COUNTS, MORE, rounds=4).loss.mu == pytest.approx(2 * 3 / 2.0, rel=1e-9)
    assert released(Laplace(2.0), COUNTS, MORE).loss.epsilon == pytest.approx(3 / 2.0, rel=1e-9)


def test_correlated_noise_costs_what_its_matrix_says() -> None:
    law = CorrelatedGaussian(2.0, tree_encoder(4))
    encoder = torch.tensor(law.encoder, dtype=torch.float64)
    # The gap is in all rounds: that of the sum of the encoder's columns.
    expected = 3 * float(encoder.sum(1).norm()) / 2.0
    assert released(law, COUNTS, MORE, rounds=4).loss.mu == pytest.approx(expected, rel=1e-6)


def test_the_exponential_mechanism_costs_what_its_candidates_say() -> None:
    observation = released(Exponential(2.0), COUNTS, MORE)
    laws = [torch.softmax(counts / 2.0, 1) for counts in (COUNTS.double(), MORE.double())]
    expected = float((laws[0].log() - laws[1].log()).abs().max())
    assert observation.messages[0].state == "sealed"
    assert observation.loss.epsilon == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("law", [LabelSets(1.0), LabelSets(0.2), RandomizedResponse(2.0)], ids=str)
def test_answers_cost_what_their_law_says(law: LabelSets) -> None:
    observation = answers_of(lambda labels: answered(labels, LawAnswers(law, 4, stream())))
    assert observation.messages[0].state == "sealed"
    assert observation.loss.epsilon == pytest.approx(law.epsilon, rel=1e-9)


def test_an_answer_that_is_sent_with_its_draws_hides_nothing() -> None:
    law = LabelSets(1.0)

    def program(wire: FlowWire) -> None:
        labels, source = wire.private(LABELS, OTHER), stream()
        sets = answered(labels, LawAnswers(law, 4, source))
        wire.send("labels", {"sets": sets, "draws": source.uniform(6 * LABELS.numel())})

    assert any("used elsewhere" in reason for reason in seen(program).unknown)


def test_two_answers_by_the_same_draws_are_not_two_answers() -> None:
    def program(wire: FlowWire) -> None:
        labels, source = wire.private(LABELS, OTHER), stream()
        for round_ in range(2):
            wire.send("labels", answered((labels + round_) % 4, LawAnswers(LabelSets(1.0), 4, source)), round_=round_)

    assert any("used elsewhere" in reason for reason in seen(program).unknown)


@dataclass(frozen=True, eq=False)
class Lying(LawAnswers):
    """Says that labels are answered by its law, and sends them as they are."""

    def answered(self, asked: Tensor) -> Tensor:
        return asked.clone()


@dataclass(frozen=True)
class LyingSets(LabelSets):
    """A law with the table of its parent, whose sampler keeps every label."""

    def observe(self, labels: Tensor, classes: int, stream: object) -> Tensor:
        stream.uniform(3)  # type: ignore[attr-defined]
        return torch.nn.functional.one_hot(labels, classes).float()


def test_answers_that_are_not_what_is_said_of_them_are_not_believed() -> None:
    plain = answers_of(lambda labels: answered(labels, Lying(LabelSets(1.0), 4, stream())))
    assert plain.messages[0].state == "bare"
    own = answers_of(lambda labels: answered(labels, LawAnswers(LyingSets(1.0), 4, stream())))
    assert own.messages[0].state == "bare"


@dataclass(frozen=True)
class Source:
    """A source that says that its numbers are secret."""

    secret: bool = True
    keys: tuple[int, ...] = field(default=(7,))


@pytest.mark.parametrize("factor", [0.0, 0.01])
def test_announced_draws_that_are_none_hide_nothing(factor: float) -> None:
    """Zeros, and a hundredth of the noise that is announced."""
    value, other = torch.zeros(1, 200), torch.ones(1, 200)

    def program(wire: FlowWire) -> None:
        noise = announced(factor * torch.randn(1, 200, dtype=torch.float64), Source(), "gaussian", "noise", 0)
        wire.send("value", wire.private(value, other) + noise.float())

    observation = seen(program)
    assert observation.unknown or observation.messages[0].state == "bare"
    assert not (observation.messages[0].state == "sealed" and not observation.unknown)


def test_announced_draws_that_are_the_same_under_every_seed_hide_nothing() -> None:
    value, other = torch.zeros(1, 200), torch.ones(1, 200)
    fixed = torch.randn(1, 200, generator=torch.Generator().manual_seed(3), dtype=torch.float64)

    def program(wire: FlowWire) -> None:
        noise = announced(fixed.clone(), Source(), "gaussian", "noise", 0)
        wire.send("value", wire.private(value, other) + noise.float())

    assert math.isinf(seen(program).loss.mu)
