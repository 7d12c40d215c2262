"""`vflpriv train`: trains every system of a configuration once, and saves its models if a folder is given."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from safetensors import torch as safetensors

from vflpriv import __version__
from vflpriv.audits.statistics.bounds import interval
from vflpriv.common.files import write_atomically
from vflpriv.common.threads import single_threaded
from vflpriv.config.models import Config, SystemConfig
from vflpriv.core.engine import Engine
from vflpriv.core.systems import System
from vflpriv.core.wire import Wire
from vflpriv.report.train import TrainReport, TrainRow, Validation
from vflpriv.run.progress import Task, progress_bar
from vflpriv.run.rows import staleness_row, traffic_row, utility_row
from vflpriv.run.selection import places
from vflpriv.run.systems import build_system, load_data
from vflpriv.training.engine import check_device

__all__ = ["train_config"]


@single_threaded()
def train_config(config: Config, *, only: Sequence[str], save: Path | None, quiet: bool | None) -> TrainReport:
    """Train every selected system once; `save` is a folder for the models and the report."""
    check_device(config.device)
    chosen = places(config, only)
    data = load_data(config)
    systems = [build_system(config, place, data) for place in chosen]
    with progress_bar(quiet) as bar:
        task = Task(bar, sum(system.schedule.rounds for system in systems))
        rows = []
        for place, system in zip(chosen, systems, strict=True):
            task.stage(f"{system.key}: training")
            rows.append(_train(system, config.system[place], config.confidence, save, task))
    report = TrainReport(
        tool_version=__version__,
        seed=config.seed,
        confidence=config.confidence,
        data=data.facts,
        systems=tuple(rows),
    )
    if save is not None:
        write_atomically(save / "train.json", report.to_json())
    return report


def _train(system: System, section: SystemConfig, confidence: float, save: Path | None, task: Task) -> TrainRow:
    engine, wire = system.train([0]), Wire()
    before = engine.evaluate()
    engine.run(wire, advance=task.advance)
    after = engine.evaluate()
    tensors = engine.trained()
    name = None if save is None else f"{system.key}.safetensors"
    if save is not None and name is not None:
        # A single entry: safetensors writes several in no fixed order, and the same seed is to give the same bytes.
        metadata = {"vflpriv": json.dumps({"version": __version__, "system": system.key, "engine": system.engine.name})}
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
        staleness=staleness_row(system.staleness()),
        auc=float(after.auc()[0]) if system.data.classes == 2 else None,
        seconds=_simulated_seconds(system),
        models=name,
    )


def _validation(engine: Engine, records: int, confidence: float) -> Validation | None:
    """The first replica's accuracy on the validation records, where there are any."""
    if not records:
        return None
    accuracy = float(engine.evaluate(part="validation").accuracy[0])
    low, high = interval(round(accuracy * records), records, confidence)
    return Validation(records=records, accuracy=accuracy, accuracy_low=low, accuracy_high=high)


def _simulated_seconds(system: System) -> float | None:
    """When the last round ends, where the settings say how fast devices are."""
    ends = system.schedule.seconds
    return None if system.settings.delays is None or ends is None else float(ends[-1])
