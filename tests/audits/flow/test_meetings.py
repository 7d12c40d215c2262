"""Where noise comes to lie on private values: how far any record can move them, and whether state does."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from vflpriv.audits.bounds.proved import Following
from vflpriv.audits.flow.observation import observe

CLIP, STD, ROUNDS, BATCH = 0.25, 0.5, 3, 8
LABELS = torch.arange(40) % 2
BATCHES = [torch.arange(start, start + BATCH) for start in range(0, 8 * ROUNDS, 8)]


def _rows(gradient):
    return gradient * (CLIP / gradient.norm(dim=1, keepdim=True).clamp(min=1e-12)).clamp(max=1)


def _program(protect, *, learning=False, keep=lambda model, noised: None):
    """Gradients of rows by a model that may learn from labels in clear."""

    def program(wire):
        model = nn.Linear(4, 2)
        labels = wire.private(LABELS, 1 - LABELS)
        for ids in BATCHES:
            inputs = torch.randn(BATCH, 4, requires_grad=True)
            nn.functional.cross_entropy(model(inputs), labels[ids]).backward()
            noised = protect(inputs.grad) + STD * torch.randn(inputs.grad.shape)
            wire.send("gradient", noised, records=ids)
            with torch.no_grad():
                if learning:
                    model.weight -= model.weight.grad
                keep(model, noised)
            model.zero_grad()

    return program


def _meetings(program):
    observation = observe(program, 0, 3, bounding=Following)
    assert not observation.unknown
    meetings = observation.trace.meetings
    assert len(meetings) == ROUNDS
    assert all(meeting.rows.scales.square().sum(1).sqrt().tolist() == pytest.approx([STD] * 32) for meeting in meetings)
    return meetings


def test_rows_of_a_model_that_does_not_learn_move_one_by_one():
    meetings = _meetings(_program(_rows))
    assert [meeting.moves for meeting in meetings] == pytest.approx([2 * CLIP] * ROUNDS)
    assert [(meeting.entries, meeting.stale) for meeting in meetings] == [(4, False)] * ROUNDS


def test_a_model_that_learns_from_labels_moves_all_rows_after_its_first_step():
    meetings = _meetings(_program(_rows, learning=True))
    assert [meeting.stale for meeting in meetings] == [False, True, True]
    assert [meeting.moves for meeting in meetings] == pytest.approx(
        [2 * CLIP, *[2 * CLIP * math.sqrt(BATCH)] * (ROUNDS - 1)]
    )


def test_a_model_that_learns_from_noised_values_is_no_state():
    def learn(model, noised):
        model.weight -= noised.mean()

    assert not any(meeting.stale for meeting in _meetings(_program(_rows, keep=learn)))


def test_what_is_not_clipped_has_no_bound_and_the_operation_is_named():
    """Rows of this gradient are short for these weights, and weights are drawn."""
    meetings = _meetings(_program(lambda gradient: gradient))
    assert [meeting.moves for meeting in meetings] == [math.inf] * ROUNDS
    assert all(meeting.why for meeting in meetings)
