"""Attacks as data: every system under every defence, trained; every attack tried; the matrix of what leaks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vflpriv import __version__
from vflpriv.budgets import Budget, most_gain
from vflpriv.config import Config
from vflpriv.errors import InputError
from vflpriv.report_attacks import AttackReport, Cell, FeatureCell, TrainedRow
from vflpriv.run_attempts import Attempted, AttemptStore
from vflpriv.run_choice import places
from vflpriv.run_progress import Task, progress_bar
from vflpriv.units import Unit

__all__ = ["attack_config"]

_NONE = "none"


def attack_config(
    config: Config,
    *,
    only: Sequence[str],
    store: Path | None = None,
    quiet: bool | None = None,
) -> AttackReport:
    """Train every wanted system under every defence and try every attack; what is in the store is not done again."""
    from vflpriv.audits.attack_trials import AttackTrials
    from vflpriv.registry import available, find
    from vflpriv.report_budgets import accounted
    from vflpriv.run_features import FeatureAttempts
    from vflpriv.run_systems import load_data
    from vflpriv.views import Adversary

    a, wanted = config.attack, places(config, only)
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
    plans = [plan for place in wanted for plan in _plans(config, place, data)]
    kept = AttemptStore(store, config)
    with progress_bar(quiet) as bar:
        times = [1 + features.trainings(row.defence) for row, _ in plans]
        work = [k * s.schedule.rounds for k, (_, s) in zip(times, plans, strict=True) if s is not None]
        task = Task(bar, sum(work))
        for row, system in plans:
            if system is None:
                trained.append(row)
                continue
            task.stage(f"{row.system}, defence {row.defence}")
            one = kept.load(row, system)
            if one is None:
                trials = AttackTrials(
                    system=system, seeds=a.seeds, labels_per_class=a.labels_per_class, confidence=config.confidence
                )
                outcome = trials.run(attacks, adversaries, advance=task.advance)
                budgets = {who: accounted(config.accountant, system, who, Unit.LABEL) for who in adversaries}
                of_features: list[FeatureCell] = []
                if features.trainings(row.defence):
                    task.stage(f"{row.system}, defence {row.defence}: features")
                    of_features = features.cells(row.system, system, defence=row.defence, advance=task.advance)
                one = Attempted(
                    accuracy=outcome.accuracy,
                    cells=tuple(_cell(row, tried, budgets[tried.adversary]) for tried in outcome.tried),
                    features=tuple(of_features),
                )
                kept.save(row, system, one)
            else:
                task.advance((1 + features.trainings(row.defence)) * system.schedule.rounds)
            trained.append(row.model_copy(update={"accuracy": one.accuracy}))
            cells += one.cells
            found += one.features
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
    )


def _named(names: Sequence[str], find: Any) -> dict[str, Any]:
    return {name: find("attack", name) for name in names}


def _plans(config: Config, place: int, data: Any) -> list[tuple[TrainedRow, Any]]:
    """One system under no defence and under each of the configuration's; None where the engine has no such setting."""
    from vflpriv.registry import find
    from vflpriv.run_systems import build_system

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


def _cell(row: TrainedRow, tried: Any, budget: Budget) -> Cell:
    words: dict[str, Any] = {
        "system": row.system,
        "defence": row.defence,
        "attack": tried.attack,
        "adversary": str(tried.adversary),
        "epsilon": budget.upper,
        "delta": budget.delta,
        "allowed": most_gain(budget),
    }
    found = tried.leakage
    if found is None:
        return Cell(**words, not_applicable=tried.refusal)
    success, beyond = ("success", "success_low", "success_high", "success_error"), ("leakage", "low", "high")
    names = (*success, "chance", "blind", *beyond, "leakage_error", "guesses")
    return Cell(**words, **{name: getattr(found, name) for name in names})
