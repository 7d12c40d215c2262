"""Early stopping: when it stops, what it keeps, and that budgets do not depend on it."""

from __future__ import annotations

import tomllib

import pytest
import torch

from tests.tiny import TINY
from vflpriv.config.loading import load_config
from vflpriv.config.models import TrainConfig
from vflpriv.core.engine import Evaluation
from vflpriv.run.systems import declare_system, read_data
from vflpriv.run.train import EarlyStopping


class Scripted:
    """An engine whose validation accuracy after each evaluation is known, with one number as its model."""

    def __init__(self, accuracies):
        self.accuracies, self.evaluations, self.model = accuracies, 0, torch.zeros(1)

    def evaluate(self, *, part):
        assert part == "validation"
        accuracy = self.accuracies[self.evaluations]
        self.evaluations += 1
        nothing = torch.zeros(1)
        return Evaluation(accuracy=torch.tensor([accuracy]), loss=nothing, logits=nothing, labels=nothing)

    def trained(self):
        return {"model": self.model}

    def train(self, rounds, **config):
        early = EarlyStopping(self, TrainConfig(**config), rounds=rounds)
        for round_ in range(rounds):
            self.model += 1
            if early(round_):
                break
        early.restore()
        return early


@pytest.mark.parametrize(
    ("accuracies", "patience", "every", "trained", "best"),
    [
        ([0.1, 0.3, 0.2, 0.3, 0.9], 2, 5, 20, 10),
        ([0.1, 0.3, 0.2, 0.4, 0.4], 2, 5, 25, 20),
        ([0.5, 0.4, 0.6, 0.1, 0.2], 3, 5, 25, 15),
        ([0.5, 0.6], 1, 20, 25, 25),
        ([0.0, 0.0], 1, 5, 10, 5),
    ],
)
def test_it_stops_after_so_many_evaluations_without_a_better_one(accuracies, patience, every, trained, best):
    engine = Scripted(accuracies)
    early = engine.train(25, patience=patience, evaluate_every=every)
    assert (early.trained_rounds, early.best_round) == (trained, best)
    assert float(engine.model) == best


def test_budgets_count_all_rounds_of_the_schedule():
    kept_back = load_config(tomllib.loads(TINY), {"data.validation": 0.25})
    stopping = load_config(kept_back, {"train.patience": 1, "train.evaluate_every": 1})
    ledgers = [declare_system(config, 0, read_data(config)).ledger for config in (stopping, kept_back)]
    counts = [[int(release.rounds.sum()) for release in ledger.releases] for ledger in ledgers]
    assert counts[0] == counts[1]
    assert (ledgers[0].schedule.rounds, ledgers[0].schedule.records) == (6, 45)
