"""What `vflpriv train` does: train every system of a configuration once, and keep the models if asked to."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text
from safetensors import torch as safetensors

from vflpriv import __version__
from vflpriv import formatting as f
from vflpriv.command_account import is_json
from vflpriv.command_audit import Task, progress_bar
from vflpriv.command_ci import writable
from vflpriv.config import SystemConfig, load_config
from vflpriv.errors import InputError
from vflpriv.files import write_atomically
from vflpriv.render_terminal import Writer
from vflpriv.report_facts import staleness_row, traffic_row, utility_row
from vflpriv.report_train import TrainReport, TrainRow
from vflpriv.run import Audited, build_system, load_data
from vflpriv.systems import System
from vflpriv.wire import Wire

__all__ = ["run_train"]


def run_train(
    path: Path | None,
    *,
    overrides: Mapping[str, Any],
    only: Sequence[str],
    save: Path | None,
    format_: str,
    quiet: bool,
) -> None:
    """Train, print accuracy, traffic and staleness; `save` is a folder for the models and the record."""
    as_json = is_json(format_)
    config = load_config(path, overrides)
    keys = [section.key for section in config.system]
    for key in only:
        if key not in keys:
            raise InputError("--only", key, f"one of {', '.join(keys)}")
    if save is not None:
        writable(save, "--save")
    data = load_data(config)
    chosen = [place for place, key in enumerate(keys) if not only or key in only]
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
        data={"name": data.name, "records": data.records, "devices": data.devices, "classes": data.classes},
        systems=tuple(rows),
    )
    if save is not None:
        write_atomically(save / "train.json", report.to_json())
    if as_json:
        print(report.to_json(), end="")  # noqa: T201
    else:
        _show(report, save)


def _train(system: System, section: SystemConfig, confidence: float, save: Path | None, task: Task) -> TrainRow:
    engine, wire = system.train([0]), Wire()
    before = engine.evaluate()
    engine.run(wire, advance=task.advance)
    trained = Audited(
        system=system, config=section, claims=(), before=before, after=engine.evaluate(), traffic=wire.traffic
    )
    tensors = engine.trained()
    name = None if save is None else f"{system.key}.safetensors"
    if save is not None and name is not None:
        # One entry: safetensors writes several in no fixed order, and the same seed gives the same bytes.
        words = {"vflpriv": json.dumps({"version": __version__, "system": system.key, "engine": system.engine.name})}
        saved = {key: t.detach().cpu().contiguous().clone() for key, t in tensors.items()}
        write_atomically(save / name, safetensors.save(saved, words))
    return TrainRow(
        key=system.key,
        title=section.title or section.key,
        engine=system.engine.name,
        settings=system.settings.model_dump(mode="json"),
        rounds=system.schedule.rounds,
        parameters=sum(t.numel() for t in tensors.values()),
        utility=utility_row(trained, confidence),
        traffic=traffic_row(trained),
        staleness=staleness_row(system.schedule),
        models=name,
    )


def _show(report: TrainReport, save: Path | None) -> None:
    console = Console()
    writer, rows = Writer(console), []
    for row in report.systems:
        names = (f.shorten(row.key, 30), f.clean(row.engine), f.count(row.rounds))
        u, t, s = row.utility, row.traffic, row.staleness
        useful = (f.percent(u.accuracy), f.interval(u.accuracy_low, u.accuracy_high)) if u else (f.NOTHING, f.NOTHING)
        loss = f"{f.exact(u.loss_before)} → {f.exact(u.loss_after)}" if u else f.NOTHING
        sent = (f.size(t.up), f.size(t.down)) if t else (f.NOTHING, f.NOTHING)
        stale = f"{f.count(s.median)}, {f.count(s.largest)}" if s else "none"
        rows.append((*names, *useful, loss, *sent, stale))
    columns = "system;engine;>rounds;>test/accuracy;?>interval;>loss;>up;>down;>stale rounds/median, most"
    writer.table("One training of each system", columns, rows)
    if save is not None:
        console.print()
        for name in (*(row.models for row in report.systems if row.models), "train.json"):
            console.print(Text(f"wrote {save / name}"), soft_wrap=True, highlight=False)
