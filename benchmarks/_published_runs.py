"""Trains the system of a published figure, tries its attacks, and keeps every result as soon as there is one.

The trainings of a row are its steps: one that all attacks of honest devices share, and one for each attack whose device
departs from the protocol; of a large system, each of these for every seed by itself. A killed run goes on with the step
it was at.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from _checkpoints import continued
from _support import build
from torch import Tensor

from vflpriv import __version__
from vflpriv.audits.scoring.labels import counted, draw_auxiliary, label_score
from vflpriv.audits.scoring.trainings import Training, needed_kinds, train
from vflpriv.common.devices import precise_device
from vflpriv.common.files import write_atomically
from vflpriv.common.ranking import auc
from vflpriv.common.registry import find
from vflpriv.core.attack import Auxiliary, Guess, LabelAttack, run_and_blind
from vflpriv.core.data import VerticalData
from vflpriv.core.systems import System
from vflpriv.core.views import Adversary
from vflpriv.data import loading
from vflpriv.data.files import data_folder

__all__ = ["Candidate", "DataChoice", "Line", "Results", "Row", "Step", "part", "run", "steps_of", "validated"]

_ATTACKER = Adversary.parse("device(0)")
_SCORED_SEED = 1
_OTHER_SEED = 1001
"""The seed of the trainings that settings are chosen by."""
_TOLD_EVERY = 30.0
"""Seconds between two lines about the progress of a training."""


@dataclass(frozen=True, kw_only=True)
class DataChoice:
    """Some records of a data set and how their features are divided; `train` is all of the training part if None."""

    name: str
    devices: int = 2
    partition: str | None = None
    train: int | None = None
    keep_shape: bool = False


@dataclass(frozen=True, kw_only=True)
class Line:
    """One figure: an attack, what is measured of it, and what the paper says, as a share or in words."""

    attack: str
    paper: float | None = None
    says: str = ""
    measure: str = "success"


@dataclass(frozen=True, kw_only=True)
class Row:
    """One published experiment and ours beside it.

    `known` labels of each class are told to the attacks that take any. `tuning` are fields of the attacks' training
    (`attack.completion`) that are not as published. The seeds of one system are trained at once, unless `apart`: then
    each is a training that is stored every two minutes, and goes on where it was killed; its attacks read models, not
    messages.
    """

    key: str
    title: str
    source: str
    setting: str
    """The published setting in short."""
    ours: str
    """Our setting in short."""
    differs: str
    """Why our figures are not the published ones."""
    chosen: str
    """How our settings were chosen without the scored labels."""
    data: DataChoice
    engine: str
    settings: Mapping[str, Any]
    lines: tuple[Line, ...]
    main: float | None = None
    """The published accuracy of the joint model."""
    known: int = 4
    tuning: Mapping[str, Any] | None = None
    seeds: int = 5
    apart: bool = False

    @property
    def identity(self) -> dict[str, Any]:
        """All that decides the result of a step, as JSON."""
        names = ("data", "engine", "settings", "known", "tuning")
        return dict(json.loads(json.dumps({name: asdict(self)[name] for name in names})))

    def attacks(self, *, conduct: str | None) -> list[LabelAttack]:
        """The attacks whose devices behave like this, honest ones for None."""
        names = dict.fromkeys(line.attack for line in self.lines)
        attacks = [_tuned(find("attack", name)(), self.tuning) for name in names]
        return [a for a in attacks if (a.conduct.name if a.conduct else None) == conduct]


def _tuned(attack: Any, tuning: Mapping[str, Any] | None) -> Any:
    """The attack, with these settings of the model that it completes if it does; all others are as published."""
    if tuning and hasattr(attack, "completion"):
        attack.completion = type(attack.completion)(**tuning)
    return attack


@dataclass(frozen=True, kw_only=True)
class Step:
    """One training and the attacks on it: the conduct of the attacking device, None for honest, and the seeds."""

    conduct: str | None
    seed: int
    replicas: int

    @property
    def name(self) -> str:
        seeds = f"seed {self.seed}" if self.replicas == 1 else f"{self.replicas} seeds from {self.seed}"
        return f"{self.conduct or 'honest'}, {seeds}"


def steps_of(row: Row) -> list[Step]:
    """The steps of a row, seed by seed, honest devices first."""
    attacks = [find("attack", name) for name in dict.fromkeys(line.attack for line in row.lines)]
    conducts = dict.fromkeys(a.conduct.name if a.conduct else None for a in attacks)
    ordered = sorted(conducts, key=lambda conduct: conduct is not None)
    seeds = [(_SCORED_SEED + s, 1) for s in range(row.seeds)] if row.apart else [(_SCORED_SEED, row.seeds)]
    return [Step(conduct=c, seed=seed, replicas=count) for seed, count in seeds for c in ordered]


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """Settings that a row might have had, to be compared on records that the row does not score.

    They are the `train` records after the first `skip` of the training part, the last `held` of them for the accuracy.
    Without `held` the records are the row's own, and the seed alone is another one.
    """

    row: Row
    settings: str = ""
    """Where it differs from the row, for the reader."""
    train: int | None = None
    skip: int = 0
    held: int | None = None

    @property
    def data(self) -> VerticalData:
        return part(replace(self.row.data, train=self.train or self.row.data.train), skip=self.skip, held=self.held)


def validated(candidate: Candidate, *, seeds: int = 1) -> dict[str, Any]:
    """What the attacks of honest devices reach with these settings."""
    step = Step(conduct=None, seed=_OTHER_SEED, replicas=seeds)
    return run(candidate.row, step, candidate.data)


# Results on disk


class Results:
    """The results of one row in a file that is rewritten after every step."""

    def __init__(self, folder: Path, row: Row) -> None:
        self.path, self.row = folder / f"attacks-{row.key}.json", row
        stored = json.loads(self.path.read_text("utf-8")) if self.path.exists() else {}
        current = stored.get("row") == row.identity
        self.steps: dict[str, Any] = stored["steps"] if current else {}
        self.facts: dict[str, Any] | None = stored if current else None
        """What the file says of versions and hardware; None where there are no results."""

    @property
    def missing(self) -> list[Step]:
        """The steps without a result of every attack."""
        wanted = {step: {a.name for a in self.row.attacks(conduct=step.conduct)} for step in steps_of(self.row)}
        return [s for s, names in wanted.items() if names - set(self.steps.get(s.name, {}).get("attacks", ()))]

    def save(self, step: Step, result: Mapping[str, Any]) -> None:
        """Keep the result of a step."""
        self.steps[step.name] = dict(result)
        self.facts = {
            "row": self.row.identity,
            "command": f"python benchmarks/published_attacks.py {self.row.key} --again",
            "versions": {"vflpriv": __version__, "torch": torch.__version__, "python": platform.python_version()},
            "hardware": {"machine": platform.machine(), "cores": os.cpu_count()},
            "steps": self.steps,
        }
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(self.path, (json.dumps(self.facts, indent=1, ensure_ascii=False) + "\n").encode())

    def values(self, attack: str, measure: str) -> list[float]:
        """One measure of an attack, of all seeds that have been tried."""
        of_seeds = [
            step["attacks"][attack].get(measure, []) for step in self.steps.values() if attack in step["attacks"]
        ]
        return [value for values in of_seeds for value in values]

    def accuracies(self) -> list[float]:
        """The accuracy of the joint model where all devices are honest, of all seeds that have been trained."""
        return [value for name, step in self.steps.items() if name.startswith("honest") for value in step["accuracy"]]


# Trainings and attacks


def part(choice: DataChoice, *, skip: int = 0, held: int | None = None) -> VerticalData:
    """The chosen records. With `held`, as many of those after the first `skip`, and the last `held` of these stand in
    for the test records: no label that is scored is among them."""
    if held is None:
        return _load(choice, choice.train)
    count = choice.train or 0
    data = _load(choice, skip + count)
    blocks, labels = tuple(b[skip:].clone() for b in data.blocks), data.labels[skip:].clone()
    return replace(
        data,
        blocks=tuple(b[:-held] for b in blocks),
        labels=labels[:-held],
        test_blocks=tuple(b[-held:] for b in blocks),
        test_labels=labels[-held:],
    )


def _load(choice: DataChoice, train: int | None) -> VerticalData:
    return loading.load(
        choice.name, devices=choice.devices, partition=choice.partition, train=train, keep_shape=choice.keep_shape
    )


def run(row: Row, step: Step, data: VerticalData) -> dict[str, Any]:
    """Train one step and try its attacks: shares of each seed, and the CPU seconds."""
    begun, attacks = time.process_time(), row.attacks(conduct=step.conduct)
    system = build(data, row.engine, seed=step.seed, **row.settings)
    conducts = {0: attacks[0].conduct} if attacks[0].conduct else {}
    advance, half_trained = _told(f"{row.key}, {step.name}", system.schedule.rounds), _checkpoint(row, step)
    if row.apart:
        training = continued(system, half_trained, conducts=conducts, advance=advance)
    else:
        kinds = needed_kinds(system, attacks)
        training = train(system, step.replicas, kinds, devices=frozenset({0}), conducts=conducts, advance=advance)
    accuracy = [float(a) for a in training.engine.evaluate().accuracy.flatten()]
    trained = time.process_time() - begun
    _say(f"{row.key}, {step.name}: main accuracy {_mean(accuracy):.3f}, {trained:.0f} CPU s")
    results = dict(_tried(row, step, training, system, attacks))
    half_trained.unlink(missing_ok=True)
    return {
        "accuracy": [round(a, 6) for a in accuracy],
        "attacks": results,
        "cpu_seconds": {"training": round(trained), "attacks": round(time.process_time() - begun - trained)},
    }


def _checkpoint(row: Row, step: Step) -> Path:
    """The file of a training that has not ended, named after all that decides the training."""
    decisive = {name: row.identity[name] for name in ("data", "engine", "settings")}
    digest = hashlib.sha256(json.dumps(decisive, sort_keys=True).encode()).hexdigest()[:12]
    name = f"{row.key}-{step.conduct or 'honest'}-{step.seed}-{digest}.safetensors"
    return data_folder() / "published-attacks" / name


def _tried(
    row: Row, step: Step, training: Training, system: System, attacks: Sequence[LabelAttack]
) -> Iterator[tuple[str, dict[str, list[float]]]]:
    view = training.views([_ATTACKER])[_ATTACKER]
    labels = system.data.labels.to(precise_device(system.torch_device))
    for attack in attacks:
        refusal = attack.refusal(view)
        if refusal is not None:
            raise ValueError(f"{row.key}: {attack.name} {refusal}")
        per_class = row.known if attack.auxiliary else 0
        known = [
            draw_auxiliary(labels, view.classes, per_class=per_class, seed=step.seed, replica=r)
            for r in range(step.replicas)
        ]
        guesses, blind = run_and_blind(attack, view, known)
        result = _measured(list(zip(guesses, known, blind, strict=True)), labels)
        _say(f"{row.key}, {step.name}: {attack.name} " + ", ".join(f"{k} {_mean(v):.3f}" for k, v in result.items()))
        yield attack.name, {name: [round(v, 6) for v in values] for name, values in result.items()}


def _measured(tried: Sequence[tuple[Guess, Auxiliary, Guess | None]], labels: Tensor) -> dict[str, list[float]]:
    """Of each seed the success, its baselines, and the AUC where the guesses have scores."""
    scores = [label_score(guess, labels, auxiliary=known, blind=blind) for guess, known, blind in tried]
    aucs = []
    for guess, known, _ in tried:
        if guess.scores is not None:
            rows = counted(guess, labels, known)
            aucs.append(float(auc(guess.scores[0][rows], labels[guess.records[rows]] == 1)))
    measured = {
        "success": [s.value for s in scores],
        "chance": [s.chance for s in scores],
        "blind": [s.blind for s in scores if s.blind is not None],
        "auc": aucs,
    }
    return {name: values for name, values in measured.items() if values}


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else float("nan")


def _told(what: str, rounds: int) -> Callable[[int], None]:
    """Counts rounds, and says every half minute how many there were."""
    done, last = 0, time.monotonic()

    def advance(count: int) -> None:
        nonlocal done, last
        done, now = done + count, time.monotonic()
        if now - last >= _TOLD_EVERY:
            last = now
            _say(f"{what}: round {done} of {rounds}")

    return advance


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
