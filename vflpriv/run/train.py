"""`vflpriv train`: trains every system of a configuration once, and saves its models if a folder is given."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from safetensors import torch as safetensors

from vflpriv import __version__
from vflpriv.audits.statistics.bounds import interval
from vflpriv.common.devices import check_device
from vflpriv.common.files import write_atomically
from vflpriv.common.lazy import no_grad
from vflpriv.common.machine import machine, single_threaded
from vflpriv.common.seeds import SecretKey
from vflpriv.common.sources import program_hash
from vflpriv.config.models import Config, TrainConfig
from vflpriv.core.data import VerticalData
from vflpriv.core.engine import Engine
from vflpriv.core.systems import System
from vflpriv.core.wire import Wire
from vflpriv.errors import InputError
from vflpriv.report.train import Stopping, TrainReport, TrainRow, Validation
from vflpriv.run.progress import Task, progress_bar
from vflpriv.run.selection import places
from vflpriv.run.summary.rows import noise_source, staleness_row, traffic_row, utility_row
from vflpriv.run.systems import build_system, load_quiet_data, with_feature_noise

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["EarlyStopping", "train_config"]

_KEY_FILE = "secret.key"


class EarlyStopping:
    """Evaluates the first replica on the validation records, and says after which round to stop.

    An accuracy that is as good as the best one is not better. The last round of the schedule is evaluated too. When a
    training stops never depends on rounds that were not trained: what it released is a part of what the whole schedule
    releases, whose budgets hold for it.
    """

    def __init__(self, engine: Engine, config: TrainConfig, *, rounds: int) -> None:
        assert config.patience is not None
        self._engine, self._rounds = engine, rounds
        self._every, self._patience = config.evaluate_every, config.patience
        self._best_accuracy, self._waited = -1.0, 0
        self._best_models: dict[str, Tensor] = {}
        self.trained_rounds, self.best_round = 0, 0

    def __call__(self, round_: int) -> bool:
        """Whether this round was the last one."""
        self.trained_rounds = round_ + 1
        if self.trained_rounds % self._every and self.trained_rounds < self._rounds:
            return False
        accuracy = float(self._engine.evaluate(part="validation").accuracy[0])
        if accuracy <= self._best_accuracy:
            self._waited += 1
            return self._waited >= self._patience
        self._best_accuracy, self._waited, self.best_round = accuracy, 0, self.trained_rounds
        self._best_models = {name: value.clone() for name, value in self._engine.trained().items()}
        return False

    @no_grad
    def restore(self) -> None:
        """Put the models of the best evaluation back into the engine."""
        for name, value in self._engine.trained().items():
            value.copy_(self._best_models[name])


@single_threaded()
def train_config(
    config: Config, *, only: Sequence[str], save: Path | None, quiet: bool | None, reproducible: bool = False
) -> TrainReport:
    """Train every selected system once; `save` is a folder for the models and the report.

    What has to be secret is drawn under a new key. A folder keeps it until the training has ended, so that a killed one
    is made again with the same noise. A `reproducible` training draws it from the seed.
    """
    check_device(config.device)
    chosen = places(config, only)
    data = load_quiet_data(config)
    key = None if reproducible else _secret_key(config, data, save)
    data = with_feature_noise(config, data, key)
    systems = [build_system(config, place, data, key) for place in chosen]
    for system in systems:
        if reproducible and system.secure_noise:
            where = f"system.{system.key}.engine.secure_noise"
            raise InputError(where, True, "false for a reproducible training, whose seed gives all its noise away")
    with progress_bar(quiet) as bar:
        task = Task(bar, sum(system.schedule.rounds for system in systems))
        rows = []
        for place, system in zip(chosen, systems, strict=True):
            task.stage(f"{system.key}: training")
            rows.append(_train(system, config, place, save, task))
    report = TrainReport(
        tool_version=__version__,
        machine=machine(),
        seed=config.seed,
        confidence=config.confidence,
        data=data.facts,
        systems=tuple(rows),
    )
    if save is not None:
        write_atomically(save / "train.json", report.to_json())
        (save / _KEY_FILE).unlink(missing_ok=True)
    return report


def _secret_key(config: Config, data: VerticalData, save: Path | None) -> SecretKey:
    """A new key, or the one that a killed training of the same configuration, data and program left in the folder."""
    if save is None:
        return SecretKey.fresh()
    purpose = hashlib.sha256(f"{config.model_dump_json()}\0{program_hash()}\0".encode() + data.digest())
    return SecretKey.kept(save / _KEY_FILE, purpose.digest())


def _train(system: System, config: Config, place: int, save: Path | None, task: Task) -> TrainRow:
    engine, wire, section, confidence = system.train([0]), Wire(), config.system[place], config.confidence
    before = engine.evaluate()
    stopping = _run(engine, wire, config.train, system.schedule.rounds, task)
    after = engine.evaluate()
    trained_rounds = system.schedule.rounds if stopping is None else stopping.trained_rounds
    tensors, secrets = engine.trained(), noise_source(system)
    name = None if save is None else f"{system.key}.safetensors"
    if save is not None and name is not None:
        # A single entry: safetensors writes several in no fixed order, and the same seed is to give the same bytes.
        facts = {"version": __version__, "system": system.key, "engine": system.engine.name, "secrets": secrets}
        metadata = {"vflpriv": json.dumps(facts)}
        saved = {key: t.detach().cpu().contiguous().clone() for key, t in tensors.items()}
        write_atomically(save / name, safetensors.save(saved, metadata))
    return TrainRow(
        key=system.key,
        title=section.title or section.key,
        engine=system.engine.name,
        settings=system.settings.model_dump(mode="json"),
        rounds=system.schedule.rounds,
        parameters=sum(t.numel() for t in tensors.values()),
        utility=utility_row(before, after, tests=len(system.data.test_labels), confidence=confidence),
        validation=_validation(engine, system.data.validation_records, confidence),
        traffic=traffic_row(wire.traffic),
        staleness=staleness_row(system.schedule.first(trained_rounds).staleness()),
        stopping=stopping,
        auc=float(after.auc()[0]) if system.data.classes == 2 else None,
        seconds=_simulated_seconds(system, trained_rounds),
        noise_source=secrets,
        models=name,
    )


def _run(engine: Engine, wire: Wire, config: TrainConfig, rounds: int, task: Task) -> Stopping | None:
    """Train all rounds, or until the validation accuracy no longer improves, as the configuration says."""
    if config.patience is None:
        engine.run(wire, advance=task.advance)
        return None
    early = EarlyStopping(engine, config, rounds=rounds)
    engine.run(wire, advance=task.advance, stop=early)
    task.advance(rounds - early.trained_rounds)
    early.restore()
    return Stopping(trained_rounds=early.trained_rounds, best_round=early.best_round)


def _validation(engine: Engine, records: int, confidence: float) -> Validation | None:
    """The first replica's accuracy on the validation records, where there are any."""
    if not records:
        return None
    accuracy = float(engine.evaluate(part="validation").accuracy[0])
    low, high = interval(round(accuracy * records), records, confidence)
    return Validation(records=records, accuracy=accuracy, accuracy_low=low, accuracy_high=high)


def _simulated_seconds(system: System, rounds: int) -> float | None:
    """When the last of these rounds ends, where the settings say how fast devices are."""
    ends = system.schedule.seconds
    return None if system.settings.delays is None or ends is None else float(ends[rounds - 1])
