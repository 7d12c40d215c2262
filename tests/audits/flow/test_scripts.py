"""Ordinary scripts: logs, numbers that come back, branches, and choices by draws."""

from __future__ import annotations

import math

import pytest
import torch

from tests.mutations.flow.program import Examined, gdp, pure
from vflpriv.audits.flow.plain.wire import FlowWire
from vflpriv.core.claims import Verdict

HERE = torch.tensor([0.0, 1.0, 1.0, 0.0, 1.0, 0.0, 0.0, 1.0])
THERE = torch.tensor([0.0, 1.0, 1.0, 1.0, 1.0, 0.0, 0.0, 1.0])
EPSILON = 1.0
FLIP = 1 / (1 + math.e)


def _noised(wire: FlowWire, y: torch.Tensor) -> None:
    wire.send("sum", (y.sum() + 2 * torch.randn(())).reshape(1))


def test_a_log_is_a_note(capsys: pytest.CaptureFixture[str]) -> None:
    def program(wire: FlowWire) -> None:
        y = wire.private(HERE, THERE)
        total = 0.0
        for _ in range(2):
            total += y.sum().item()
            _noised(wire, y)
        print(f"{total / 2:.3f}")

    result = Examined(program, gdp(0.71))
    assert result.verdict is Verdict.CONSISTENT, result.finding.sentence
    assert any("a log" in note and "test_scripts.py:" in note for note in result.observation.notes)
    assert "4.000" in capsys.readouterr().out


def test_a_number_that_comes_back_is_private() -> None:
    def program(wire: FlowWire) -> None:
        mean = wire.private(HERE, THERE).mean().item()
        wire.send("mean", torch.tensor([mean * 2]))

    result = Examined(program, gdp(9.0))
    assert (result.verdict, result.states) == (Verdict.VIOLATED, ["bare"])


def test_a_branch_that_shows_is_a_leak_and_one_that_does_not_is_a_note() -> None:
    def program(wire: FlowWire, limit: float) -> None:
        y = wire.private(HERE, THERE)
        _noised(wire, y)
        wire.send("progress", torch.ones(1) if y.sum() > limit else torch.zeros(1))

    assert Examined(lambda wire: program(wire, 4.5), gdp(1.0)).verdict is Verdict.VIOLATED
    result = Examined(lambda wire: program(wire, 99.0), gdp(1.0))
    assert result.verdict is Verdict.CONSISTENT
    assert "a branch" in result.observation.notes[0]


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("received", [True, False])
def test_what_a_branch_on_noised_values_sends_is_seen_in_other_transcripts(sign: int, received: bool) -> None:
    """Half of the runs send the labels bare: one transcript alone may show the other half."""

    def program(wire: FlowWire) -> None:
        y = wire.private(HERE, THERE)
        noised = y + 4 * torch.randn(8)
        arrived = wire.send("sum", noised)
        above = sign * (arrived if received else noised).sum() > sign * 4
        wire.send("labels", y if above else torch.zeros(8))

    result = Examined(program, gdp(0.5))
    assert result.observation.decided
    assert result.verdict is Verdict.VIOLATED
    assert "labels is sent without noise" in result.finding.sentence


@pytest.mark.parametrize(("often", "expected"), [(True, Verdict.VIOLATED), (False, Verdict.UNMEASURED)])
def test_a_figure_that_follows_what_was_sent_is_tried_on_other_transcripts(often: bool, expected: Verdict) -> None:
    """How far labels move a sum follows a number that was drawn and sent: far in every run, or in half of them."""

    def program(wire: FlowWire) -> None:
        y = wire.private(HERE, THERE)
        public = wire.send("public", torch.randn(1))
        scale = 10 + public.abs() if often else torch.where(public < 0, 10 - public, 0.01 * public)
        wire.send("sum", scale * y + torch.randn(8))

    result = Examined(program, gdp(0.1))
    assert result.verdict is expected, result.finding.sentence
    # Of thirty transcripts each reaches half of the first one's figure.
    assert (result.finding.trials == 30) is often


CHOICES = {
    "where": lambda y: torch.where(torch.rand(8) < FLIP, 1 - y, y),
    "arithmetic": lambda y: (y + (torch.rand(8) < FLIP).long()) % 2,
    "bernoulli": lambda y: torch.bernoulli(torch.where(y > 0, 1 - FLIP, FLIP)),
    "a private threshold": lambda y: (torch.rand(8) < torch.where(y > 0, 1 - FLIP, FLIP)).long(),
    "multinomial": lambda y: torch.multinomial(torch.where(torch.stack([y < 1, y > 0], 1), 1 - FLIP, FLIP), 1),
    "Gumbel": lambda y: (torch.stack([1 - y, y], 1) - (-torch.rand(8, 2).log()).log()).argmax(1),
}


@pytest.mark.parametrize("name", CHOICES)
def test_randomised_response_is_enumerated(name: str) -> None:
    def program(wire: FlowWire) -> None:
        wire.send("labels", CHOICES[name](wire.private(HERE.long(), THERE.long())))

    result = Examined(program, pure(EPSILON))
    assert result.verdict is Verdict.CONSISTENT, result.finding.sentence
    assert result.finding.figure == pytest.approx(EPSILON, rel=1e-5)
    assert Examined(program, pure(0.9)).verdict is Verdict.VIOLATED


def test_one_coin_for_all_labels_is_no_response() -> None:
    def program(wire: FlowWire) -> None:
        y = wire.private(HERE.long(), THERE.long())
        wire.send("labels", torch.where(torch.rand(1) < FLIP, 1 - y, y))

    assert Examined(program, pure(EPSILON)).verdict is Verdict.UNMEASURED
