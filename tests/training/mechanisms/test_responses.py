"""Responses to labels, number by number: who is drawn when, with which uniform numbers, and what the ledger says."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from vflpriv.core.releases import Release, StateLeak
from vflpriv.core.schedules import Batching, Schedule
from vflpriv.core.units import Unit
from vflpriv.core.views import EVERYONE
from vflpriv.laws import Alibi, Gaussian, RandomizedResponse
from vflpriv.training.mechanisms.labels import LabelMechanism, NoisedBefore, as_target, label_claims, protected
from vflpriv.training.mechanisms.priors import DrawnLabels, PriorLabels, response, response_law

FOUR = math.log(4.0)
"""At this ε a label is kept among two with 4/5, among three with 4/6, among five with 1/2."""


def schedule_of(batches: list[list[int]], records: int) -> Schedule:
    size = np.array([len(batch) for batch in batches], dtype=np.int64)
    return Schedule(
        batching=Batching.SHUFFLE,
        records=records,
        batch_size=int(size.max()),
        devices=1,
        active=np.ones((len(batches), 1), dtype=np.bool_),
        order=np.array([record for batch in batches for record in batch], dtype=np.int64),
        start=np.cumsum(size) - size,
        size=size,
    )


class _Places:
    """Uniform numbers that are given, in place of a stream's."""

    def __init__(self, values: Tensor) -> None:
        self.values = values

    def uniform(self, count: int, *path: int) -> Tensor:
        assert count == self.values[0].numel()
        return self.values.flatten(1)


# One response -------------------------------------------------------------------------------------------------------


def answers(prior: list[float], labels: list[int], uniform: list[tuple[float, float]]) -> list[int]:
    priors = torch.tensor(prior).expand(len(labels), -1)
    drawn: list[int] = response(torch.tensor(labels), priors, torch.tensor(uniform), FOUR).tolist()
    return drawn


def test_a_label_among_the_likeliest_is_kept_or_moved_on_among_them() -> None:
    """Of five classes with these priors three are asked: 1, 3 and 0, in this order; a label is kept up to 2/3."""
    prior = [0.2, 0.4, 0.03, 0.3, 0.07]
    kept = [0.4 * 1, 0.7 * 4 / 5, 0.9 * 4 / 6, 0.97 * 4 / 7, 1.0 * 4 / 8]
    assert kept.index(max(kept)) + 1 == 3
    places = [(0.66, 0.9), (0.67, 0.0), (0.67, 0.49), (0.67, 0.51), (0.67, 1.0)]
    assert answers(prior, [1] * 5, places) == [1, 3, 3, 0, 0]
    assert answers(prior, [3] * 5, places) == [3, 0, 0, 1, 1]
    assert answers(prior, [0] * 5, places) == [0, 1, 1, 3, 3]
    # A label that is not among them is answered by any of them.
    others = [(0.1, 0.0), (0.9, 0.32), (0.5, 0.34), (0.5, 0.68), (0.5, 1.0)]
    assert answers(prior, [2] * 5, others) == answers(prior, [4] * 5, others) == [1, 1, 3, 0, 0]
    table = response_law(torch.tensor(prior, dtype=torch.float64), FOUR)
    first = [1 / 6, 2 / 3, 0, 1 / 6, 0]
    np.testing.assert_allclose(table[1], first, atol=1e-12)
    np.testing.assert_allclose(table[3], [1 / 6, 1 / 6, 0, 2 / 3, 0], atol=1e-12)
    np.testing.assert_allclose(table[2], [1 / 3, 1 / 3, 0, 1 / 3, 0], atol=1e-12)


def test_laws_of_several_priors_are_those_of_each() -> None:
    priors = torch.tensor([[0.2, 0.4, 0.03, 0.3, 0.07], [0.9, 0.05, 0.02, 0.02, 0.01], [0.2, 0.2, 0.2, 0.3, 0.1]])
    together = response_law(priors.unsqueeze(1), FOUR)
    assert together.shape == (3, 1, 5, 5)
    for prior, law in zip(priors, together[:, 0], strict=True):
        torch.testing.assert_close(law, response_law(prior, FOUR))


def test_a_sure_prior_answers_alone_and_of_equal_choices_the_fewest_are_asked() -> None:
    assert answers([0.05, 0.9, 0.05], [0, 1, 2], [(0.99, 0.99)] * 3) == [1, 1, 1]
    # One class keeps 1/2, two keep (1/2 + 1/8) · 4/5 = 1/2 as well.
    assert answers([0.125, 0.5, 0.125, 0.125, 0.125], [1, 0], [(0.99, 0.99)] * 2) == [1, 1]


# When labels are drawn ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stages", [1, 2, 3])
@pytest.mark.parametrize("rounds", [3, 7, 8])
def test_stages_divide_the_rounds(stages: int, rounds: int) -> None:
    mechanism = PriorLabels(law=RandomizedResponse(FOUR), stages=stages)
    found = [mechanism.stage(t, rounds) for t in range(rounds)]
    assert found == [max(s for s in range(stages) if s * rounds <= t * stages) for t in range(rounds)]
    assert mechanism.stage(rounds + 5, rounds) == stages - 1


def test_the_last_draw_is_the_last_first_visit_of_the_last_stage() -> None:
    one, two = (PriorLabels(law=RandomizedResponse(FOUR), stages=stages) for stages in (1, 2))
    batches = [[0, 1], [2], [0, 2], [1, 3], [3, 1], [0, 1]]
    assert one.last_draw(schedule_of(batches, 4)) == 3
    assert two.last_draw(schedule_of(batches, 4)) == 5
    assert two.last_draw(schedule_of([[0, 1, 2, 3]] * 6, 4)) == 3
    assert two.last_draw(schedule_of([*[[0, 1, 2, 3]] * 4, [0, 1], [2]], 4)) == 3
    assert one.last_draw(schedule_of([[0]], 4)) == 0
    # Where nobody is met in the last stage, nothing is known of it before the end.
    assert two.last_draw(schedule_of([[0], [1], [], []], 4)) == 3


def drawn_labels(mechanism: PriorLabels, uniform: Tensor, batches: list[list[int]]) -> DrawnLabels:
    truth = torch.tensor([[0, 1, 2, 0]])
    source: Any = _Places(uniform)
    return DrawnLabels(mechanism, truth, 3, stream=source, schedule=schedule_of(batches, 4))


def no_logits() -> Tensor:
    raise AssertionError("the model was asked")


UNIFORM = torch.tensor([[[0.1, 0.0, 0.2, 0.9], [0.9, 0.2, 0.7, 0.1], [0.9, 0.8, 0.49, 0.34], [0.5, 0.5, 1.0, 1.0]]])
"""For each of four records: whether it is kept, what else it becomes, its stage, and its placeholder."""


def test_placeholders_and_stages_come_from_the_last_two_numbers() -> None:
    mechanism = PriorLabels(law=RandomizedResponse(FOUR), stages=2)
    labels = drawn_labels(mechanism, UNIFORM, [[0, 1, 2, 3]] * 4)
    assert labels.labels.tolist() == [[2, 0, 1, 2]]
    assert not labels.drawn.any()
    labels.begin(0)
    records = torch.tensor([3, 0, 1])
    found, drawn = labels.visit(records, no_logits)
    # In the first stage the prior is uniform: of three classes a label is kept up to 2/3. Record 0 is of this stage.
    assert found.tolist() == [[2, 0, 0]]
    assert drawn is not None
    assert drawn.tolist() == [[False, True, False]]
    assert labels.drawn.tolist() == [[True, False, False, False]]
    # Record 2 is kept no longer: 0.8 of two others is the second one, after it in the order of classes.
    labels.begin(1)
    found, _ = labels.visit(torch.tensor([2]), no_logits)
    assert (found.tolist(), labels.drawn.tolist()) == ([[1]], [[True, False, True, False]])


def test_later_stages_ask_the_model_and_never_draw_again() -> None:
    mechanism = PriorLabels(law=RandomizedResponse(FOUR), stages=2)
    labels = drawn_labels(mechanism, UNIFORM, [[0, 1, 2, 3]] * 4)
    labels.begin(0)
    every, asked = torch.arange(4), []
    labels.visit(every, no_logits)
    before = labels.labels.clone()
    labels.begin(2)

    def logits() -> Tensor:
        asked.append(1)
        return torch.tensor([0.0, 9.0, 0.0]).expand(1, 4, 3)

    for _ in range(2):
        found, drawn = labels.visit(every, logits)
        assert drawn is None
    assert asked == [1], "the same batch of the same round is drawn once"
    assert found.tolist() == [[int(before[0, 0]), 1, int(before[0, 2]), 1]]
    assert labels.drawn.all()
    labels.begin(3)
    found, drawn = labels.visit(every, no_logits)
    assert drawn is None
    assert found.tolist() == labels.labels.tolist()
    assert labels.visit(torch.tensor([3, 1]), no_logits)[0].tolist() == [[1, 1]]


def test_one_stage_asks_the_model_from_the_first_round_unless_a_prior_is_given() -> None:
    batches = [[0, 1], [2, 3]]
    plain = drawn_labels(PriorLabels(law=RandomizedResponse(FOUR)), UNIFORM, batches)
    plain.begin(0)
    with pytest.raises(AssertionError, match="was asked"):
        plain.visit(torch.tensor([0, 1]), no_logits)
    sure = PriorLabels(law=RandomizedResponse(FOUR), prior=(0.05, 0.05, 0.9))
    given = drawn_labels(sure, UNIFORM, batches)
    given.begin(0)
    assert given.visit(torch.tensor([0, 1]), no_logits)[0].tolist() == [[2, 2]]
    given.begin(1)
    assert given.visit(torch.tensor([2, 3]), no_logits)[0].tolist() == [[2, 2]]


class _Probe:
    """Answers every record that is drawn now with class 0."""

    def __init__(self) -> None:
        self.shown: list[tuple[list[Any], list[int], list[Any] | None]] = []

    def observed(self, observed: Tensor, records: Tensor, prior: Tensor | None = None) -> Tensor:
        self.shown.append((observed.argmax(-1).tolist(), records.tolist(), None if prior is None else prior.tolist()))
        return torch.nn.functional.one_hot(torch.zeros_like(observed[..., 0], dtype=torch.int64), 3).float()


def test_a_probe_is_shown_each_batch_and_may_answer_for_those_drawn_now() -> None:
    mechanism = PriorLabels(law=RandomizedResponse(FOUR), stages=2, prior=(0.05, 0.05, 0.9))
    labels, probe = drawn_labels(mechanism, UNIFORM, [[0, 1, 2, 3]] * 4), _Probe()
    asked: Any = probe
    labels.attach(asked)
    assert probe.shown == [([[2, 0, 1, 2]], [0, 1, 2, 3], None)]
    labels.begin(0)
    found, _ = labels.visit(torch.tensor([0, 3]), no_logits)
    batch, records, prior = probe.shown[1]
    assert (batch, records) == ([[2, 2]], [0, 3])
    assert prior is not None
    np.testing.assert_allclose(prior, [[[0.05, 0.05, 0.9], [0.0, 0.0, 0.0]]], atol=1e-6)
    assert found.tolist() == [[0, 2]], "record 3 is not drawn yet, and keeps its placeholder"


def test_without_a_prior_the_first_stage_has_a_uniform_one_from_the_start() -> None:
    mechanism, probe = PriorLabels(law=RandomizedResponse(FOUR), stages=2), _Probe()
    labels = drawn_labels(mechanism, UNIFORM, [[0, 1, 2, 3]] * 2)
    asked: Any = probe
    labels.attach(asked)
    labels.visit(torch.tensor([0]), no_logits)
    (prior,) = (prior for _, _, prior in probe.shown if prior is not None)
    np.testing.assert_allclose(prior, [[[1 / 3, 1 / 3, 1 / 3]]], atol=1e-6)


# What the ledger and claims say -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("mechanism", "distance", "of_record"), [
    (NoisedBefore(law=Alibi(1.5)), 2.0, 2.0),
    (NoisedBefore(law=RandomizedResponse(0.7)), 1.0, 1.0),
    (PriorLabels(law=RandomizedResponse(0.7)), 1.0, math.inf),
    (PriorLabels(law=RandomizedResponse(0.7), prior=(0.5, 0.5)), 1.0, 1.0),
])  # fmt: skip
def test_noised_labels_are_released_once_to_everyone(
    mechanism: LabelMechanism, distance: float, of_record: float
) -> None:
    release = mechanism.release(4)
    bounds = {Unit.LABEL: distance, Unit.RECORD: of_record, Unit.ADD_REMOVE: of_record}
    assert (release.sensitivity, release.rounds.tolist()) == (bounds, [True, False, False, False])
    assert (release.kind, release.noise, release.once, release.reaches_all) == (
        "noised-labels",
        mechanism.law,
        True,
        True,
    )
    assert (release.seen_by, release.carried, release.additive) == (EVERYONE - {"server"}, False, False)
    assert mechanism.release(4, server_holds=False).seen_by == EVERYONE
    assert (mechanism.epsilon, mechanism.sensitivity) == (mechanism.law.label_epsilon, distance)
    if isinstance(mechanism, PriorLabels):
        assert mechanism.budget == 0.7
        assert mechanism.statement != mechanism.law.statement


def test_other_releases_no_longer_depend_on_labels() -> None:
    mechanism = NoisedBefore(law=RandomizedResponse(0.7))
    bounds = {Unit.LABEL: 3.0, Unit.RECORD: 4.0}
    common: dict[str, Any] = {
        "what": "x",
        "noise": Gaussian(1.0),
        "sensitivity": bounds,
        "rounds": np.ones(3, dtype=np.bool_),
        "seen_by": frozenset({"device"}),
    }
    plain = Release(kind="loss", **common)
    leaking = Release(kind="table", leak=StateLeak(carrier="c", sensitivity=bounds, own=True), **common)
    first, second, labels = protected((plain, leaking), mechanism, 3)
    assert (first.kind, first.sensitivity, first.leak) == ("loss", {Unit.RECORD: 4.0}, None)
    assert (second.kind, second.sensitivity) == ("table", {Unit.RECORD: 4.0})
    assert second.leak == StateLeak(carrier="c", sensitivity={Unit.RECORD: 4.0}, own=True)
    assert (labels.kind, labels.seen_by) == ("noised-labels", EVERYONE - {"server"})
    assert protected((), mechanism, 3, server_holds=False)[0].seen_by == EVERYONE


class _Settings:
    class noise_parameters:  # noqa: N801 (a field of settings)
        delta = 1e-3

    def __init__(self, mechanism: LabelMechanism | None, target: float | None) -> None:
        self.label_mechanism, self.label_epsilon = mechanism, target


def test_claims_of_label_noise_are_its_epsilon_or_the_one_asked_for() -> None:
    holders: Any = type("Engine", (), {"label_holders": frozenset({"server", "device"})})
    server: Any = type("Engine", (), {"label_holders": frozenset({"server"})})
    mechanism = NoisedBefore(law=Alibi(1.5))
    (given,) = label_claims(server, _Settings(mechanism, None))
    (asked,) = label_claims(holders, _Settings(mechanism, 1.2))
    assert (given.epsilon, given.where, given.adversary.kind) == (mechanism.epsilon, "label_protection", "device")
    assert (asked.epsilon, asked.where, asked.adversary.kind) == (1.2, "label_epsilon", "eavesdropper")
    assert (given.delta, given.unit, given.source, given.statement) == (
        1e-3, Unit.LABEL, "ALIBI", mechanism.law.statement,
    )  # fmt: skip
    assert label_claims(server, _Settings(None, None)) == ()


def test_integer_labels_become_one_hot_targets_of_the_type_asked_for() -> None:
    like = torch.zeros(2, 3, dtype=torch.float64)
    assert as_target(torch.tensor([2, 0]), like).tolist() == [[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]
    assert as_target(torch.tensor([[2, 0]]), torch.zeros(1, 2, 3)).shape == (1, 2, 3)
    soft = torch.tensor([[0.5, 0.25, 0.25]])
    assert as_target(soft, like).tolist() == soft.tolist()
    assert as_target(soft, like).dtype == as_target(torch.tensor([1]), like).dtype == torch.float64
