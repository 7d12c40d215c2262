"""Seeds that are trained together reach what each reaches alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from vflpriv.common.store import Store
from vflpriv.common.tasks import InProcess, NoProgress
from vflpriv.config.loading import load_config
from vflpriv.core.systems import System
from vflpriv.experiments.learning import Trainer, differ_by_seed_alone, learning_curve
from vflpriv.run.systems import build_system, load_data

ONCE = {"name": "send-once", "rounds": 8, "noise": "given", "noise_std": 0.001, "server_rate": 10.0}
DATA = {"name": "digits", "devices": 2, "partition": "rows", "train": 200}


def of_seeds(seeds: range, **engine: Any) -> list[System]:
    configs = [
        load_config({"seed": seed, "data": DATA, "system": [{"key": "one", "engine": engine}]}) for seed in seeds
    ]
    data = load_data(configs[0])
    return [build_system(config, 0, data) for config in configs]


def trainer(folder: Path | None = None) -> Trainer:
    return Trainer(store=Store(folder), progress=NoProgress(), executor=InProcess())


def test_each_seed_has_the_curve_that_it_has_alone():
    systems = of_seeds(range(3), **ONCE)
    together = trainer().curves_of_seeds(systems)
    alone = [learning_curve(system) for system in systems]
    assert [curve.seed for curve in together] == [0, 1, 2]
    for one, other in zip(together, alone, strict=True):
        assert one.accuracy == pytest.approx(other.accuracy, abs=0.004)
        assert one.model_copy(update={"accuracy": ()}) == other.model_copy(update={"accuracy": ()})
    assert len({curve.accuracy for curve in together}) > 1


def test_seeds_that_diverge_together_say_so_as_alone():
    systems = of_seeds(range(2), **{**ONCE, "server_rate": 1e30, "noise_std": 1e10})
    assert [curve.diverged for curve in trainer().curves_of_seeds(systems)] == [8, 8]
    assert [learning_curve(system).diverged for system in systems] == [8, 8]


def test_seeds_that_are_stored_are_not_trained_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    systems, kept = of_seeds(range(3), **ONCE), trainer(tmp_path)
    first, trained = kept.curves_of_seeds(systems[:2]), []
    train = System.train

    def counted(system: System, replicas: Any, **how: Any) -> Any:
        trained.append(how["seeds"])
        return train(system, replicas, **how)

    monkeypatch.setattr(System, "train", counted)
    assert kept.curves_of_seeds(systems)[:2] == first
    assert trained == [[2]]


def test_trainings_with_batches_of_their_own_are_trained_alone():
    drawn = of_seeds(range(2), name="split", rounds=3, batch_size=20)
    assert not differ_by_seed_alone(drawn)
    assert differ_by_seed_alone(of_seeds(range(2), **ONCE))
    assert trainer().curves_of_seeds(drawn) == [learning_curve(system) for system in drawn]
