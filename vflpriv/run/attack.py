"""Attacks as data: every system under every defence, trained; every attack tried; the matrix of what leaks."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from vflpriv import __version__
from vflpriv.common.files import write_atomically
from vflpriv.common.registry import available, find
from vflpriv.config.models import Config
from vflpriv.core.budgets import Budget, most_gain
from vflpriv.core.systems import System
from vflpriv.core.units import Unit
from vflpriv.core.views import Adversary
from vflpriv.errors import InputError
from vflpriv.report.attacks import AttackReport, Cell, FeatureCell, TrainedRow
from vflpriv.report.rows import Row
from vflpriv.run.progress import Task, progress_bar
from vflpriv.run.selection import places

if TYPE_CHECKING:
    from vflpriv.core.attack import LabelAttack
    from vflpriv.core.data import VerticalData
    from vflpriv.run.features import FeatureAttempts

__all__ = ["AttemptStore", "Attempted", "attack_config"]


class Attempted(Row):
    """Everything that was found on one system under one defence."""

    accuracy: float
    cells: tuple[Cell, ...]
    features: tuple[FeatureCell, ...] = ()


class AttemptStore:
    """One file a system and defence, named by a hash of all that decides it. Without a folder nothing is kept."""

    def __init__(self, folder: Path | None, config: Config) -> None:
        self.folder = folder
        asked = (config.attack.model_dump_json(exclude={"defences"}), config.data.model_dump_json())
        self._asked = "\0".join((__version__, *asked, str(config.confidence), config.accountant))

    def load(self, row: TrainedRow, system: System) -> Attempted | None:
        """What was found, or None; a file that cannot be read counts as absent and is computed again."""
        path = self._path(row, system)
        if path is None or not path.exists():
            return None
        try:
            return Attempted.model_validate_json(path.read_bytes())
        except ValidationError:
            return None

    def save(self, row: TrainedRow, system: System, found: Attempted) -> None:
        """Keep it; a reader sees all of it or nothing."""
        path = self._path(row, system)
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, found.model_dump_json())

    def _path(self, row: TrainedRow, system: System) -> Path | None:
        if self.folder is None:
            return None
        words = f"{self._asked}\0{row.system}\0{row.defence}\0{system.fingerprint()}"
        return self.folder / f"{hashlib.sha256(words.encode()).hexdigest()[:24]}.json"


# Attacks as data: every system under every defence, trained; every attack tried; the matrix of what leaks.

_NONE = "none"


def attack_config(
    config: Config,
    *,
    only: Sequence[str],
    store: Path | None = None,
    quiet: bool | None = None,
) -> AttackReport:
    """Train every wanted system under every defence and try every attack; what is in the store is not done again."""
    from vflpriv.run.systems import load_data

    wanted, data = places(config, only), load_data(config)
    asked, kept = _Asked.of(config, data), AttemptStore(store, config)
    plans = [plan for place in wanted for plan in _plans(config, place, data)]
    trained: list[TrainedRow] = []
    cells: list[Cell] = []
    features: list[FeatureCell] = []
    with progress_bar(quiet) as bar:
        task = Task(bar, sum(asked.work(row, system) for row, system in plans if system is not None))
        for row, system in plans:
            if system is None:
                trained.append(row)
                continue
            one = kept.load(row, system)
            if one is None:
                one = asked.try_on(row, system, task)
                kept.save(row, system, one)
            else:
                task.advance(asked.work(row, system))
            trained.append(row.model_copy(update={"accuracy": one.accuracy}))
            cells += one.cells
            features += one.features
    return AttackReport(
        tool_version=__version__,
        seed=config.seed,
        confidence=config.confidence,
        seeds=config.attack.seeds,
        labels_per_class=config.attack.labels_per_class,
        data={"name": data.name, "records": data.records, "devices": data.devices, "classes": data.classes},
        trained=tuple(trained),
        cells=tuple(cells),
        features=tuple(features),
    )


@dataclass(frozen=True, kw_only=True)
class _Asked:
    """What a configuration wants tried on every system and defence."""

    config: Config
    attacks: Sequence[LabelAttack]
    adversaries: Sequence[Adversary]
    features: FeatureAttempts

    @classmethod
    def of(cls, config: Config, data: VerticalData) -> _Asked:
        """Check names and views against what there is."""
        from vflpriv.run.features import FeatureAttempts

        adversaries = [one for text in config.attack.views for one in Adversary.parse(text).each(data.devices)]
        for adversary in adversaries:
            adversary.members(data.devices)
        attacks, features = _chosen(config.attack.attacks), FeatureAttempts.of(config, data)
        return cls(config=config, attacks=attacks, adversaries=adversaries, features=features)

    def work(self, row: TrainedRow, system: System) -> int:
        """Rounds of all trainings of one system under one defence."""
        return (1 + self.features.trainings(row.defence)) * system.schedule.rounds

    def try_on(self, row: TrainedRow, system: System, task: Task) -> Attempted:
        """Every attack, on labels and on features, through every view."""
        from vflpriv.audits.scoring.labels import AttackTrials
        from vflpriv.run.budgets import accounted

        config, where = self.config, f"{row.system}, defence {row.defence}"
        task.stage(where)
        per_class, confidence = config.attack.labels_per_class, config.confidence
        trials = AttackTrials(
            system=system, seeds=config.attack.seeds, labels_per_class=per_class, confidence=confidence
        )
        outcome = trials.run(self.attacks, self.adversaries, advance=task.advance)
        budgets = {who: accounted(config.accountant, system, who, Unit.LABEL) for who in self.adversaries}
        features: list[FeatureCell] = []
        if self.features.trainings(row.defence):
            task.stage(f"{where}: features")
            features = self.features.cells(row.system, system, defence=row.defence, advance=task.advance)
        cells = tuple(_cell(row, tried, budgets[tried.adversary]) for tried in outcome.tried)
        return Attempted(accuracy=outcome.accuracy, cells=cells, features=tuple(features))


def _chosen(names: Sequence[str] | None) -> list[LabelAttack]:
    """The attacks on labels that are named; all that train no models of their own if none is."""
    if names is None:
        return [t() for t in available("attack").values() if t.target == "labels" and not t.heavy]
    chosen = [find("attack", name)() for name in names]
    for attack in chosen:
        if attack.target != "labels":
            expected = "attacks on labels; those on features go into attack.features"
            raise InputError("attack.attacks", attack.name, expected)
    return chosen


def _plans(config: Config, place: int, data: VerticalData) -> list[tuple[TrainedRow, Any]]:
    """One system under no defence and under each of the configuration's; None where the engine has no such setting."""
    from vflpriv.run.systems import build_system

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
