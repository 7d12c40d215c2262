"""`vflpriv attack`: trains every system under every defence, tries every attack, and reports what leaks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from vflpriv import __version__
from vflpriv.audits.scoring.integrity import IntegrityTrials
from vflpriv.audits.scoring.trainings import Training, attempt_work
from vflpriv.audits.statistics.significance import mean_interval
from vflpriv.common.devices import check_device
from vflpriv.common.machine import machine, single_threaded
from vflpriv.common.registry import available
from vflpriv.common.sources import code_hash
from vflpriv.common.store import Entry, JsonForm, Store
from vflpriv.common.tasks import Executor, InProcess, NoProgress, Progress, Tasks, Worker
from vflpriv.config.defences import DefenceVariant
from vflpriv.config.models import Config
from vflpriv.core.attack import NO_DEFENCE, IntegrityAttack, LabelAttack, made_for
from vflpriv.core.budgets import most_gain
from vflpriv.core.data import VerticalData
from vflpriv.core.systems import System, accelerated
from vflpriv.core.units import Unit
from vflpriv.core.views import Adversary
from vflpriv.errors import InputError
from vflpriv.report.attacks import AttackReport, Cell, FeatureCell, IntegrityCell, TrainedRow
from vflpriv.report.rows import Row
from vflpriv.run.features import FeaturePlan, chosen_attacks, parse_views, trials_of
from vflpriv.run.progress import Task, progress_bar
from vflpriv.run.selection import places
from vflpriv.run.summary.budgets import accounted
from vflpriv.run.summary.cells import integrity_cell, label_cell
from vflpriv.run.systems import build_system, check_defences, inapplicable, load_data, read_defence

__all__ = ["AttackPlan", "SystemResults", "attack_config", "attack_variant", "results_entries", "variants_of"]

_SILENT = NoProgress()
_ACCURACY = ("accuracy", "accuracy_low", "accuracy_high")
_OTHER = "attacks on labels; those on features go into attack.features"
_UNDEFENDED = DefenceVariant(name=NO_DEFENCE, section=NO_DEFENCE, changes={})


@single_threaded()
def attack_config(
    config: Config,
    *,
    only: Sequence[str],
    store: Path | None = None,
    quiet: bool | None = None,
    executor: Executor | None = None,
) -> AttackReport:
    """Train every selected system under every defence and try every attack; results in the store are used again."""
    check_device(config.device)
    check_defences(config)
    selected, data = places(config, only), load_data(config)
    plan = AttackPlan.of(config, data)
    variants = [variant for place in selected for variant in variants_of(config, place, data)]
    tried = [(row, system) for row, system in variants if system is not None]
    with progress_bar(quiet) as bar:
        task = Task(bar, sum(plan.work(row, system) for row, system in tried))
        results = iter(_all_results(plan, tried, Store(store), task, executor or InProcess()))
    trained: list[TrainedRow] = []
    cells: list[Cell] = []
    features: list[FeatureCell] = []
    integrity: list[IntegrityCell] = []
    for row, system in variants:
        if system is None:
            trained.append(row)
            continue
        result = next(results)
        trained.append(row.model_copy(update={name: getattr(result, name) for name in _ACCURACY}))
        cells += result.cells
        features += result.features
        integrity += result.integrity
    return AttackReport(
        tool_version=__version__,
        machine=machine(),
        seed=config.seed,
        confidence=config.confidence,
        seeds=config.attack.seeds,
        labels_per_class=config.attack.labels_per_class,
        affordable_loss=config.attack.affordable_loss,
        data=data.facts,
        trained=tuple(trained),
        cells=tuple(cells),
        features=tuple(features),
        integrity=tuple(integrity),
    )


class SystemResults(Row):
    """The results of all attacks on one system under one defence."""

    accuracy: float
    accuracy_low: float
    accuracy_high: float
    cells: tuple[Cell, ...]
    features: tuple[FeatureCell, ...] = ()
    integrity: tuple[IntegrityCell, ...] = ()


def results_entries(
    config: Config, tried: Sequence[tuple[TrainedRow, System]], store: Store, work: Sequence[int]
) -> list[Entry[SystemResults]]:
    """Where the results of attacks on each system under each defence are stored, and how much work they are."""
    code = code_hash(*available("attack").values(), *available("accountant").values())
    settings = config.attack.model_dump_json(exclude={"defences", "affordable_loss"}), config.data.model_dump_json()
    shared = store.key(code, "an attack", *settings, config.confidence, config.accountant)
    form = JsonForm(SystemResults)
    return [
        Entry(key=shared and system.result_key(store, shared, row.system, row.defence), form=form, work=rounds)
        for (row, system), rounds in zip(tried, work, strict=True)
    ]


@dataclass(frozen=True, kw_only=True)
class AttackPlan:
    """The attacks and adversaries of a configuration, to be tried on every system under every defence."""

    config: Config
    attacks: Sequence[LabelAttack]
    adversaries: Sequence[Adversary]
    features: FeaturePlan
    dishonest: Sequence[IntegrityAttack] = ()
    """Attacks on what the model predicts."""

    @classmethod
    def of(cls, config: Config, data: VerticalData) -> AttackPlan:
        """Read the plan from the configuration; names and views that do not exist are refused."""
        return cls(
            config=config,
            adversaries=parse_views(config.attack.views, data.devices),
            attacks=chosen_attacks(config.attack.attacks, "attack", lambda target: target == "labels", _OTHER),
            features=FeaturePlan.of(config, data),
            dishonest=[kind() for kind in available("attack").values() if kind.target == "integrity"]
            if config.attack.malicious
            else [],
        )

    @property
    def dishonest_devices(self) -> list[Adversary]:
        """The adversaries that have devices of their own."""
        return [adversary for adversary in self.adversaries if adversary.is_device]

    def attacks_on(self, system: System) -> list[LabelAttack]:
        """The attacks on labels that are tried on a system: where none are named, those that were made against
        defences only where they know one that is in force."""
        named, defences = self.config.attack.attacks is not None, system.defences
        return [attack for attack in self.attacks if named or made_for(attack, defences)]

    def work(self, row: TrainedRow, system: System) -> int:
        """Replica-rounds of all trainings and attempts of one system under one defence, for the progress bar."""
        attempts = len(self.attacks_on(system)) * len(self.adversaries)
        labels = system.schedule.rounds + attempts * attempt_work(system)
        trainings = len(self.dishonest) * len(self.dishonest_devices)
        integrity = trainings * (system.schedule.rounds + attempt_work(system))
        return labels + integrity + self.features.work(system, row.defence, shared=True)


def attack_variant(row: TrainedRow, system: System, plan: AttackPlan, progress: Progress = _SILENT) -> SystemResults:
    """Train one system under one defence and try every attack, on labels and on features, through every view.

    Attacks on labels and on features read one training. It depends on its arguments alone, and these and its results
    can be sent to another process.
    """
    config, stage = plan.config, f"{row.system}, defence {row.defence}"
    progress.stage(stage)
    trials, attacks = trials_of(config, system), plan.attacks_on(system)
    observing = plan.features.observing if plan.features.applies(row.defence) else []
    training = trials.training([*attacks, *observing], plan.adversaries, advance=progress.advance)
    budgets = {a: accounted(config.accountant, system, a, Unit.LABEL) for a in plan.adversaries}
    cells = []
    for attempt in trials.run(attacks, plan.adversaries, training=training, advance=progress.advance):
        budget = budgets[attempt.adversary]
        fields = {"epsilon": budget.upper, "delta": budget.delta, "allowed": most_gain(budget)}
        cells.append(label_cell({"system": row.system, "defence": row.defence} | fields, attempt))
    features: list[FeatureCell] = []
    if plan.features.applies(row.defence):
        progress.stage(f"{stage}: features")
        features = plan.features.cells(
            row.system, system, defence=row.defence, training=training, advance=progress.advance
        )
    integrity = _integrity(row, training, plan, progress) if plan.dishonest else ()
    accuracies, tests = training.engine.evaluate().accuracy.tolist(), len(system.data.test_labels)
    accuracy = mean_interval(accuracies, config.confidence, (0.0, 1.0), grain=1 / max(1, tests))
    return SystemResults(
        **dict(zip(_ACCURACY, accuracy, strict=True)),
        cells=tuple(cells),
        features=tuple(features),
        integrity=integrity,
    )


def _integrity(row: TrainedRow, training: Training, plan: AttackPlan, progress: Progress) -> tuple[IntegrityCell, ...]:
    """Attacks of dishonest devices on what the model predicts, each in a training of its own."""
    progress.stage(f"{row.system}, defence {row.defence}: dishonest devices")
    attack = plan.config.attack
    trials = IntegrityTrials(honest=training, confidence=plan.config.confidence, known=attack.labels_per_class)
    attempts = trials.run(plan.dishonest, plan.dishonest_devices, advance=progress.advance)
    fields = {"system": row.system, "defence": row.defence}
    return tuple(integrity_cell(fields, attempt) for attempt in attempts)


_Tried = Sequence[tuple[TrainedRow, System]]


def _all_results(
    plan: AttackPlan, tried: _Tried, store: Store, progress: Progress, executor: Executor
) -> list[SystemResults]:
    """The results of each system under each defence, from the store or computed, and then stored as each is done."""

    def tasks(missing: Sequence[int]) -> Tasks[tuple[AttackPlan, _Tried], int, SystemResults]:
        chosen = [tried[place] for place in missing]
        progress.stage(f"attacks on {len(chosen)} systems and defences")
        return Tasks(
            function=_attack,
            common=(plan, chosen),
            items=range(len(chosen)),
            names=[f"{row.system}, defence {row.defence}" for row, _ in chosen],
            accelerated=any(accelerated(system) for _, system in chosen),
        )

    entries = results_entries(plan.config, tried, store, [plan.work(row, system) for row, system in tried])
    return store.results(entries, tasks, executor=executor, progress=progress)


def _attack(common: tuple[AttackPlan, _Tried], place: int, worker: Worker) -> SystemResults:
    """The task of one system under one defence; what all have in common, data and models' files, is sent once."""
    plan, tried = common
    row, system = tried[place]
    return attack_variant(row, system, plan, worker.progress)


def variants_of(config: Config, place: int, data: VerticalData) -> list[tuple[TrainedRow, System | None]]:
    """One system without a defence and under each of the configuration's; None where a defence does not apply."""
    section, variants = config.system[place], []
    engine, undefended = str(section.engine.get("name", "")), build_system(config, place, data)
    for variant in (_UNDEFENDED, *config.attack.variants):
        system, reason = None, _inapplicable(undefended, engine, variant)
        if reason is None:
            changed = section.model_copy(update={"engine": {**section.engine, **variant.changes}})
            systems = tuple(changed if i == place else s for i, s in enumerate(config.system))
            try:
                system = build_system(config.model_copy(update={"system": systems}), place, data)
            except InputError as error:
                reason = _unfit(error, engine, variant)
        row = TrainedRow(
            system=section.key,
            title=section.title or section.key,
            engine=engine,
            defence=variant.name,
            settings={} if system is None else system.settings.model_dump(mode="json"),
            not_applicable=reason,
        )
        variants.append((row, system))
    return variants


def _inapplicable(system: System, engine: str, variant: DefenceVariant) -> str | None:
    """Why a system cannot be defended by these changes of its settings; None if it can."""
    missing = [field for field in variant.changes if field not in type(system.settings).model_fields]
    if missing:
        return f"{engine} has no setting {missing[0]}"
    named = variant.changes.get("defence")
    if named is None:
        return None
    defence = read_defence(named, f"attack.defences.{variant.section}.defence")
    return inapplicable(defence, system.engine, system.settings, system.schedule, system.classes)


def _unfit(error: InputError, engine: str, variant: DefenceVariant) -> str:
    """Why the other settings of a system do not go with a defence; a value of the defence itself that is wrong is an
    error. How noise is chosen is right or wrong for an engine only."""
    field = error.field.rpartition(".")[2]
    if field in variant.changes and field != "noise":
        raise error
    return f"{engine} has {field} = {error.value!r}, expected {error.expected}"
