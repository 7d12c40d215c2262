"""What `vflpriv attack` does: train every system under every defence, try every attack, write the matrix."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from rich.console import Console

from vflpriv import __version__
from vflpriv.command_audit import Task, progress_bar
from vflpriv.command_ci import append_summary, writable
from vflpriv.config import Config, load_config
from vflpriv.errors import InputError
from vflpriv.files import write_atomically
from vflpriv.report_attacks import AttackReport, Cell, FeatureCell, Limit, TrainedRow

__all__ = ["run_attacks"]

_NONE = "none"


def run_attacks(
    path: Path | None,
    *,
    out: Path,
    overrides: Mapping[str, Any],
    only: Sequence[str],
    fail_on: Sequence[str],
    formats: Sequence[str],
    quiet: bool,
) -> int:
    """Attack, write the report, print it; exit code 1 when a limit of `fail_on` is broken."""
    limits = [Limit.parse(text) for text in fail_on]
    config = load_config(path or Path(str(files("vflpriv").joinpath("attack.toml"))), overrides)
    keys = [s.key for s in config.system]
    for key in only:
        if key not in keys:
            raise InputError("--only", key, f"one of {', '.join(keys)}")
    writable(out)
    report = _attack(config, only or keys, limits, quiet)
    written = _write(report, out, formats)
    _show(report, written)
    from vflpriv.render_attacks import attacks_markdown

    append_summary(lambda room: attacks_markdown(report, limit=room))
    return report.exit_code


def _attack(config: Config, keys: Sequence[str], limits: Sequence[Limit], quiet: bool) -> AttackReport:
    from vflpriv.audits.attack_trials import AttackTrials
    from vflpriv.command_features import FeatureAttempts
    from vflpriv.registry import available, find
    from vflpriv.run import load_data
    from vflpriv.views import Adversary

    a = config.attack
    data = load_data(config)
    every = available("attack")
    chosen = (
        {n: t for n, t in every.items() if t.target == "labels" and not t.heavy}
        if a.attacks is None
        else _named(a.attacks, find)
    )
    for name, attack in chosen.items():
        if attack.target != "labels":
            raise InputError("attack.attacks", name, "attacks on labels; those on features go into attack.features")
    features = FeatureAttempts.of(config, data)
    attacks = [attack() for attack in chosen.values()]
    adversaries = [one for text in a.views for one in Adversary.parse(text).each(data.devices)]
    for adversary in adversaries:
        adversary.members(data.devices)
    trained: list[TrainedRow] = []
    cells: list[Cell] = []
    found: list[FeatureCell] = []
    plans = [plan for place, s in enumerate(config.system) if s.key in keys for plan in _plans(config, place, data)]
    with progress_bar(quiet) as bar:
        times = [1 + features.wanted(row) for row, _ in plans]
        work = [k * s.schedule.rounds for k, (_, s) in zip(times, plans, strict=True) if s is not None]
        task = Task(bar, sum(work))
        for row, system in plans:
            if system is None:
                trained.append(row)
                continue
            task.stage(f"{row.system}, defence {row.defence}")
            trials = AttackTrials(
                system=system, seeds=a.seeds, labels_per_class=a.labels_per_class, confidence=config.confidence
            )
            outcome = trials.run(attacks, adversaries, advance=task.advance)
            trained.append(row.model_copy(update={"accuracy": outcome.accuracy}))
            cells += [_cell(row, tried) for tried in outcome.tried]
            if features.wanted(row):
                task.stage(f"{row.system}, defence {row.defence}: features")
                found += features.cells(row, system, advance=task.advance)
    return AttackReport(
        tool_version=__version__,
        seed=config.seed,
        confidence=config.confidence,
        seeds=a.seeds,
        labels_per_class=a.labels_per_class,
        data={"name": data.name, "records": data.records, "devices": data.devices, "classes": data.classes},
        trained=tuple(trained),
        cells=tuple(cells),
        features=tuple(found),
        limits=tuple(map(str, limits)),
        broken=tuple(line for limit in limits for line in limit.broken_by([*cells, *found])),
    )


def _named(names: Sequence[str], find: Any) -> dict[str, Any]:
    return {name: find("attack", name) for name in names}


def _plans(config: Config, place: int, data: Any) -> list[tuple[TrainedRow, Any]]:
    """One system under no defence and under each of the configuration's; None where the engine has no such setting."""
    from vflpriv.registry import find
    from vflpriv.run import build_system

    section, plans = config.system[place], []
    for name, changes in {_NONE: {}, **config.attack.defences}.items():
        engine = str(section.engine.get("name", ""))
        system, why = None, None
        fields = find("engine", engine).settings_type.model_fields
        missing = [field for field in changes if field not in fields]
        if missing:
            why = f"{engine} has no setting {missing[0]}"
        else:
            changed = section.model_copy(update={"engine": {**section.engine, **changes}})
            systems = tuple(changed if i == place else s for i, s in enumerate(config.system))
            system = build_system(config.model_copy(update={"system": systems}), place, data)
        row = TrainedRow(
            system=section.key,
            title=section.title or section.key,
            engine=engine,
            defence=name,
            settings={} if system is None else system.settings.model_dump(mode="json"),
            not_applicable=why,
        )
        plans.append((row, system))
    return plans


def _cell(row: TrainedRow, tried: Any) -> Cell:
    words = {"system": row.system, "defence": row.defence, "attack": tried.attack, "adversary": str(tried.adversary)}
    found = tried.leakage
    if found is None:
        return Cell(**words, not_applicable=tried.refusal)
    names = ("success", "success_low", "success_high", "chance", "blind", "leakage", "low", "high", "guesses")
    return Cell(**words, **{name: getattr(found, name) for name in names})


def _write(report: AttackReport, out: Path, formats: Sequence[str]) -> list[Path]:
    from vflpriv.render_attacks import attacks_html, attacks_markdown

    render = {"json": AttackReport.to_json, "html": attacks_html, "md": attacks_markdown}
    written = []
    for name in formats:
        target = out / f"attacks.{name}"
        write_atomically(target, render[name](report))
        written.append(target)
    return written


def _show(report: AttackReport, written: Sequence[Path]) -> None:
    from vflpriv.render_attacks import print_attacks

    console = Console()
    print_attacks(report, console)
    for path in written:
        console.print(f"wrote {path}", soft_wrap=True, highlight=False)
