"""Responses with a prior, number by number: which class is answered, when, and what a probe is shown."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

from vflpriv.laws import RandomizedResponse
from vflpriv.training.mechanisms.priors import DrawnLabels, PriorLabels, response, response_law

KEEP = 1 / (1 + 2 * math.exp(-1.0))
THREE_OF_FOUR = torch.tensor([0.1, 0.3, 0.3, 0.3])


@pytest.mark.parametrize(
    ("label", "uniform", "expected"),
    [
        *[(label, (KEEP, 0.7), label) for label in (1, 2, 3)],
        *[(1, (1.0, 0.01), 2), (2, (1.0, 0.49), 3), (3, (1.0, 0.4), 1), (1, (1.0, 0.51), 3), (1, (1.0, 1.0), 3)],
        *[(0, (0.1, 0.3), 1), (0, (1.0, 0.34), 2), (0, (1.0, 0.9), 3), (0, (1.0, 1.0), 3)],
    ],
)
def test_another_label_is_any_of_the_others_and_one_outside_is_answered_by_any(
    label: int, uniform: tuple[float, float], expected: int
) -> None:
    """At ε = 1 the three classes of 0.3 are chosen among: 0.9 / 1.74 is more than 0.6 / 1.37 and 1 / 2.10."""
    given = torch.tensor([label]), THREE_OF_FOUR[None], torch.tensor([uniform])
    assert int(response(*given, 1.0)) == expected


def test_a_law_is_that_of_its_own_prior() -> None:
    priors = torch.stack([THREE_OF_FOUR, THREE_OF_FOUR.flip(0), torch.tensor([0.97, 0.01, 0.01, 0.01])])
    each = torch.stack([response_law(prior, 1.0) for prior in priors])
    assert torch.equal(response_law(priors, 1.0), each)
    assert each.sum(-1).flatten().tolist() == pytest.approx([1.0] * 12)


@dataclass(frozen=True)
class Batches:
    """A schedule of these batches."""

    batches: tuple[list[int], ...]
    records: int = 4

    @property
    def rounds(self) -> int:
        return len(self.batches)

    def batch(self, round_: int) -> np.ndarray:
        return np.array(self.batches[round_])


def mechanism(stages: int, prior: tuple[float, ...] | None = None) -> PriorLabels:
    return PriorLabels(law=RandomizedResponse(1.0), stages=stages, prior=prior)


def test_stages_divide_the_rounds_and_the_last_one_stays() -> None:
    assert [mechanism(2).stage(t, 5) for t in range(7)] == [0, 0, 0, 1, 1, 1, 1]
    assert PriorLabels(law=RandomizedResponse(1.0)).stage(4, 5) == 0


@pytest.mark.parametrize(
    ("stages", "batches", "last"),
    [
        (2, ([0], [1], [0, 1], [1, 0]), 2),
        (2, ([0], [1], [0, 1], [1, 2]), 3),
        (1, ([0, 1], [0], [2, 3], [1, 3]), 2),
        (3, ([0], [1]), 1),
    ],
)
def test_nothing_is_drawn_after_the_last_first_visit(stages: int, batches: tuple[list[int], ...], last: int) -> None:
    assert mechanism(stages).last_draw(Batches(batches)) == last  # type: ignore[arg-type]


class Numbers:
    """A stream of these numbers: what keeps, what is another label, the stage, and the class before it, per record."""

    def __init__(self, numbers: Sequence[Sequence[float]]) -> None:
        self.numbers = torch.tensor([numbers]).flatten(1)

    def uniform(self, count: int) -> torch.Tensor:
        assert count == self.numbers.shape[1]
        return self.numbers


class Shown:
    """A probe that keeps what it is shown, and answers with it."""

    def __init__(self) -> None:
        self.seen: list[tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]] = []

    def observed(
        self, observed: torch.Tensor, records: torch.Tensor, prior: torch.Tensor | None = None
    ) -> torch.Tensor:
        self.seen.append((observed, records, prior))
        return observed


def drawn_labels(mechanism: PriorLabels, numbers: Sequence[Sequence[float]], rounds: int = 2) -> DrawnLabels:
    """The responses of three records with the labels 0, 1 and 2, all of which are in each batch."""
    truth, schedule = torch.tensor([[0, 1, 2]]), Batches(([0, 1, 2],) * rounds, records=3)
    return DrawnLabels(mechanism, truth, 3, stream=Numbers(numbers), schedule=schedule)  # type: ignore[arg-type]


ALL = torch.arange(3)


def test_records_have_the_stage_and_the_class_that_their_numbers_say() -> None:
    """All labels are kept; until its stage a record has a class at random, and nothing was drawn of it."""
    labels = drawn_labels(mechanism(2), [(0.1, 0.5, 0.4, 0.9), (0.1, 0.5, 0.6, 0.1), (0.1, 0.5, 1.0, 1.0)])
    probe = Shown()
    labels.attach(probe)  # type: ignore[arg-type]
    assert probe.seen[0][0].argmax(-1).tolist() == [[2, 0, 2]]
    assert (probe.seen[0][1].tolist(), probe.seen[0][2]) == ([0, 1, 2], None)
    own, drawn = labels.visit(ALL, lambda: torch.full((1, 3, 3), math.nan))
    assert own.tolist() == [[0, 0, 2]]
    assert drawn is not None
    assert drawn.tolist() == [[True, False, False]]
    prior = probe.seen[1][2]
    assert prior is not None
    assert prior[0].tolist() == [pytest.approx([1 / 3] * 3), [0.0] * 3, [0.0] * 3]
    labels.begin(1)
    # The model is sure of class 1 for record 2, and likes 0 and 1 alike for record 1.
    logits = torch.tensor([[[9.0, 0.0, 0.0], [1.0, 1.0, 0.0], [0.0, 30.0, 0.0]]])
    own, drawn = labels.visit(ALL, lambda: logits)
    assert (own.tolist(), drawn) == ([[0, 1, 1]], None)
    shown, _, prior = probe.seen[2]
    assert prior is not None
    assert shown.argmax(-1).tolist() == [[0, 1, 1]]
    assert prior[0, 0].tolist() == [0.0] * 3
    assert torch.equal(prior[0, 1:], torch.softmax(logits, -1)[0, 1:])


def test_with_one_stage_the_prior_is_the_prediction_or_what_is_given() -> None:
    numbers, sure = [(0.1, 0.5, 0.5, 0.5)] * 3, torch.tensor([0.0, 30.0, 0.0]).expand(1, 3, 3)
    for prior, answers in ((None, [[1, 1, 1]]), ((0.0, 0.0, 1.0), [[2, 2, 2]])):
        own, drawn = drawn_labels(mechanism(1, prior), numbers, rounds=1).visit(ALL, lambda: sure)
        assert (own.tolist(), drawn) == (answers, None)


def test_what_a_probe_answers_counts_for_those_whose_turn_it_is() -> None:
    class Other(Shown):
        def observed(self, observed: torch.Tensor, records: torch.Tensor, prior: torch.Tensor | None = None) -> Any:
            return super().observed(observed, records, prior).roll(1, -1)

    labels = drawn_labels(mechanism(2), [(0.1, 0.5, 0.4, 0.9), (0.1, 0.5, 0.4, 0.1), (0.1, 0.5, 1.0, 0.5)])
    labels.attach(Other())  # type: ignore[arg-type]
    assert labels.visit(ALL, lambda: torch.zeros(1, 3, 3))[0].tolist() == [[1, 2, 1]]
