"""Seconds of every registered attack on the first of a few systems that it applies to, beside those of a training."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from _support import BATCH, build, seconds

from vflpriv.audits.scoring.trainings import Training, needed_kinds, train
from vflpriv.audits.scoring.trials import Trials
from vflpriv.common.registry import available
from vflpriv.core.systems import System
from vflpriv.core.views import Adversary
from vflpriv.data import loading as datasets

__all__ = ["attack_seconds"]

_SEEDS, _QUICK_SEEDS = 3, 1
_VIEWS = [Adversary.parse(text) for text in ("device(0)", "devices(0, 1)", "eavesdropper", "server")]
_RATES = {"device_rate": 0.5, "server_rate": 0.5}
_SYSTEMS: dict[str, tuple[str, dict[str, Any]]] = {
    "split": ("digits", {"rounds": 115, **_RATES}),
    "split, summed logits": ("digits", {"rounds": 115, "aggregation": "sum", "device_rate": 0.5}),
    "split, two classes": ("breast-cancer", {"rounds": 60, **_RATES}),
    "vimadmm": ("digits", {"rounds": 46, "local_steps": 5}),
    "syn-zoo-vfl, summed logits": ("digits", {"rounds": 115, "aggregation": "sum", "device_rate": 0.1}),
    "dpzv": ("digits", {"rounds": 460, "embedding": 8, "noise": "given", "noise_std": 0.0, "device_rate": 0.002}),
}
"""The data set and the engine's settings, by a name that begins with the engine's."""


@dataclass(eq=False, kw_only=True)
class _Trained:
    """A system and its training with all that attacks read, and how long that took."""

    system: System
    seeds: int
    training: Training = field(init=False)
    took: float = field(init=False)

    def __post_init__(self) -> None:
        kinds = needed_kinds(self.system, [attack() for attack in available("attack").values()])

        def run() -> None:
            self.training = train(self.system, self.seeds, kinds, white=True)

        self.took = seconds(run)

    def timed(self, attack: Any, adversary: Adversary) -> tuple[float, str | None]:
        """The seconds of one attempt, and why it was refused, or None."""
        attempts: list[Any] = []
        took = seconds(lambda: attempts.append(self._attempt(attack, adversary)))
        return took, attempts[0].refusal

    def _attempt(self, attack: Any, adversary: Adversary) -> Any:
        """One attempt on all seeds; an attack on labels whose devices are dishonest trains the system again."""
        trials = Trials(system=self.system, seeds=self.seeds, confidence=0.95, attribute=0)
        return trials.run([attack], [adversary], training=self.training)[0]


def attack_seconds(quick: bool) -> None:
    """A line for each attack, the slowest first; with `quick`, of one seed."""
    seeds = _QUICK_SEEDS if quick else _SEEDS
    print(f"Seconds of each attack on one system, {seeds} seeds, baseline included; CPU seconds if it runs on the CPU")
    print(f"  {'attack':<26} {'on':<27} {'seen by':<14} {'by default':<11} {'seconds':>8} {'of a training':>14}")
    trained = {name: _Trained(system=system, seeds=seeds) for name, system in _systems()}
    lines = [_line(attack(), trained) for attack in available("attack").values()]
    for _, line in sorted(lines, key=lambda pair: -pair[0]):
        print(f"  {line}", flush=True)


def _systems() -> Iterator[tuple[str, System]]:
    for name, (data, settings) in _SYSTEMS.items():
        devices, partition = (4, "rows") if data == "digits" else (2, None)
        loaded = datasets.load(data, devices=devices, partition=partition)
        yield name, build(loaded, name.split(",")[0], batch_size=BATCH, **settings)


def _line(attack: Any, trained: dict[str, _Trained]) -> tuple[float, str]:
    """The seconds of one attack, and its line."""
    for name, trainings in trained.items():
        for adversary in _VIEWS:
            took, refusal = trainings.timed(attack, adversary)
            if refusal is None:
                usual, ratio = "no" if attack.heavy else "yes", took / trainings.took
                return took, f"{attack.name:<26} {name:<27} {adversary!s:<14} {usual:<11} {took:>8.2f} {ratio:>13.1f}×"
    return 0.0, f"{attack.name:<26} none of these systems sends what it reads"
