"""Trainings that are evaluated on their way, and those whose reported round validation records decide."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from tests.support import make_system, toy_data
from vflpriv.core.engine import Evaluation
from vflpriv.core.systems import System
from vflpriv.core.wire import Wire
from vflpriv.experiments.lagrangian import followed_round, unmet_conditions
from vflpriv.experiments.learning import learning_curve
from vflpriv.training.engine import Engine
from vflpriv.training.engines.vimadmm import Vimadmm

VALIDATED = (0.5, 0.7, 0.69, 0.6, 0.9)
TESTED = (0.3, 0.2, 0.9, 0.4, 0.5)


@pytest.fixture
def system() -> System:
    data = toy_data()
    blocks = tuple(block[:6] for block in data.test_blocks)
    with_validation = replace(data, validation_blocks=blocks, validation_labels=data.test_labels[:6])
    return make_system("vimadmm", data=with_validation, rounds=10)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The parts that evaluations were asked of; their accuracies are those of the script."""
    asked: list[str] = []

    def scripted(_: Engine, *, part: str = "test", **how: Any) -> Evaluation:
        values = VALIDATED if part == "validation" else TESTED
        accuracy = torch.tensor([values[asked.count(part)]])
        asked.append(part)
        return Evaluation(accuracy=accuracy, loss=accuracy, logits=torch.zeros(1, 1, 3), labels=torch.zeros(1).long())

    monkeypatch.setattr(Engine, "evaluate", scripted)
    return asked


class Counted:
    """Progress that adds up."""

    rounds = 0

    def advance(self, rounds: int) -> None:
        self.rounds += rounds

    def stage(self, text: str) -> None:
        pass


def test_all_rounds_are_trained_and_the_last_is_reported_without_a_drop(system: System, asked: list[str]) -> None:
    curve = learning_curve(system, evaluations=5)
    assert curve.rounds == (2, 4, 6, 8, 10)
    assert curve.validation == ()
    assert curve.reached == pytest.approx(0.5)
    assert asked == ["test"] * 5


def test_a_training_that_diverges_says_so() -> None:
    wild = learning_curve(make_system("split-concat", rounds=40, device_rate=1e30, server_rate=1e30), evaluations=4)
    assert wild.diverged in wild.rounds
    assert learning_curve(make_system("split-concat", rounds=4)).diverged is None


def test_the_round_that_is_best_on_validation_records_is_reported(system: System, asked: list[str]) -> None:
    progress = Counted()
    curve = learning_curve(system, evaluations=5, drop=0.05, progress=progress)
    assert curve.rounds == (2, 4, 6, 8)  # 0.69 is not yet 5 points below 0.7; 0.6 is, and 0.9 is never seen
    assert curve.validation == pytest.approx((0.5, 0.7, 0.69, 0.6))
    assert curve.place == 1
    assert curve.reached == pytest.approx(0.2)  # not the best on test records
    assert progress.rounds == 10
    assert asked.count("test") == 4


def test_a_try_is_evaluated_on_validation_records_alone(system: System, asked: list[str]) -> None:
    curve = learning_curve(system, evaluations=5, part="validation", drop=0.5)
    assert curve.reached == pytest.approx(0.9)
    assert asked == ["validation"] * 5


def test_importance_is_that_of_the_reported_round(system: System, asked: list[str]) -> None:
    stopped = learning_curve(system, evaluations=5, drop=0.05)
    asked.clear()
    until = learning_curve(replace(system, schedule=system.schedule.first(4)), evaluations=2)
    assert stopped.importance == until.importance
    asked.clear()
    assert stopped.importance != learning_curve(system, evaluations=5).importance


def test_rises_of_the_lagrangian_are_counted_where_it_is_followed(system: System) -> None:
    engine = system.train([0])
    assert isinstance(engine, Vimadmm)
    values = torch.stack([followed_round(engine, t, Wire()) for t in range(system.rounds)])
    curve = learning_curve(system, evaluations=5, lagrangian=True)
    assert curve.rises == int((values[1:] > values[:-1]).sum()) > 0
    assert curve.unmet == unmet_conditions(engine) != ()
    plain = learning_curve(system, evaluations=5)
    assert (plain.rises, plain.unmet) == (None, ())
    assert plain.accuracy == curve.accuracy
    assert learning_curve(make_system("split-concat", rounds=2), lagrangian=True).rises is None
