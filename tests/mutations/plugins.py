"""Mutations that come from other packages by an entry point, and trainings of users' own, run as users run them."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from tests.mutations.case import DELTA, TRIALS, Mutation, Outcome
from tests.seams.plugins import Plugin
from vflpriv.core.budgets import epsilon_of
from vflpriv.report.audit import read_report
from vflpriv.testing import Train, assert_training_epsilon

__all__ = ["CONTROLS", "MUTATIONS", "OwnTraining", "PlugIn"]

_ENGINES = Path(__file__).with_name("plugin_engines.py")


@dataclass(frozen=True, kw_only=True)
class PlugIn:
    """An engine of another package, audited by the command line; its noise is calibrated for what it claims."""

    engine: str
    target: str
    trials: int = TRIALS

    def outcome(self, folder: Path, *, seed: int, trials: int | None = None) -> Outcome:
        number = self.trials if trials is None else trials
        plugin = Plugin(folder / "package", "vflpriv.engines", self.target, _ENGINES.read_text("utf-8"))
        engine = {"name": self.engine, "rounds": 12, "batch_size": 10, "embedding": 3, "server_update": "joint"}
        noise = {"noise": "calibrated", "epsilon": 1.0, "delta": DELTA, "protect": "devices(all)", "clip": 0.5}
        config = {
            "seed": seed,
            "data": {"name": "digits", "devices": 2, "train": 60},
            "engine": {**engine, **noise},
            "audit": {"trials": number, "attacks": []},
        }
        # YAML reads JSON.
        (plugin.folder / "audit.yaml").write_text(json.dumps(config), encoding="utf-8")
        done = plugin.command("audit", "audit.yaml", "--quiet", "--out", "out", "--format", "json")
        if done.returncode not in (0, 1, 3):
            raise RuntimeError(done.stderr)
        outcome = Outcome.of(read_report(plugin.folder / "out" / "report.json"), number)
        if outcome.exit_code != done.returncode:
            raise RuntimeError(f"the report says {outcome.exit_code}, the command {done.returncode}")
        return outcome


@dataclass(frozen=True, kw_only=True)
class OwnTraining:
    """A user's function that trains once, tested by `vflpriv.testing`; exit code 1 stands for a failed assertion."""

    train: Train
    epsilon: float
    view: str = "eavesdropper"
    trials: int = TRIALS

    def outcome(self, folder: Path, *, seed: int, trials: int | None = None) -> Outcome:
        number = max(100, self.trials if trials is None else trials)
        sizes: dict[str, Any] = {"devices": 2, "classes": 2, "records": 4, "view": self.view}
        code, by = 0, ()
        try:
            assert_training_epsilon(self.train, self.epsilon, DELTA, trials=number, seed=seed, **sizes)
        except AssertionError:
            code, by = 1, ("testing: assert_training_epsilon",)
        except ValueError:
            code = 2  # the worlds' values cannot be compared, which says nothing about the claim
        return Outcome(exit_code=code, caught_by=by, trials=number, verdicts=())


def _noisy(std: float, beside: Callable[[Any, int, int], None] | None = None) -> Train:
    """Three rounds with the first record's label under noise: μ = √3/std."""

    def train(wire: Any, world: int, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        for t in range(3):
            wire.down(t, 0, "answer", {"x": world + std * torch.randn(1, generator=generator)}, [0])
            if beside is not None:
                beside(wire, t, world)

    return train


def _order(wire: Any, t: int, world: int) -> None:
    for m in (0, 1) if world else (1, 0):
        wire.down(t, m, "clock", {"round": float(t)}, [0])


def _more(wire: Any, t: int, world: int) -> None:
    for _ in range(world):
        wire.down(t, 1, "clock", {"round": float(t)}, [0])


def _far_round(wire: Any, t: int, world: int) -> None:
    if t == 2:
        wire.down(3 + world, 1, "clock", {"round": 0.0}, [0])


def _sent(name: str, fault: str, change: str, case: Any, **fields: Any) -> Mutation:
    return Mutation(name=name, family="plug-in", fault=fault, change=change, case=case, **fields)


MU = 0.3
EPSILON = epsilon_of(MU, DELTA)
_STD = math.sqrt(3) / MU

MUTATIONS = (
    _sent(
        "plug-in-own-noise",
        "an engine of another package adds a fifth of the noise, at no release point",
        "+400 %",
        PlugIn(engine="own-noise", target="OwnNoise"),
        expected="flow, two-world",
        accepted=(1, 3),
    ),
    _sent(
        "plug-in-noisy-leak",
        "labels under noise that no seed decides, in a kind that is declared public",
        "+100 %",
        PlugIn(engine="noisy-leak", target="NoisyLeak"),
        expected="two-world",
    ),
    _sent(
        "own-training-less-noise",
        "a function that trains with a tenth of its noise",
        "+900 %",
        OwnTraining(train=_noisy(_STD / 10), epsilon=EPSILON),
        expected="testing",
    ),
    _sent(
        "own-training-order",
        "the order in which devices are answered tells the label",
        "total leak",
        OwnTraining(train=_noisy(_STD, _order), epsilon=EPSILON),
        expected="testing",
    ),
    _sent(
        "own-training-message",
        "one more message where the label is 1",
        "total leak",
        OwnTraining(train=_noisy(_STD, _more), epsilon=EPSILON),
        expected="testing",
    ),
    _sent(
        "own-training-round",
        "the number of a message's round tells the label",
        "total leak",
        OwnTraining(train=_noisy(_STD, _far_round), epsilon=EPSILON),
        expected="testing",
    ),
)


def _control(name: str, fault: str, case: Any) -> Mutation:
    fields: dict[str, Any] = {"change": "none", "expected": "none", "accepted": (0, 3), "seeds": 5}
    return Mutation(name=name, family="control", fault=fault, case=case, **fields)


CONTROLS = (
    _control("sound-plug-in", "an engine of another package", PlugIn(engine="plain", target="Plain")),
    _control(
        "sound-padding",
        "the same that sends random numbers which no seed decides",
        PlugIn(engine="padded", target="Padded"),
    ),
    _control("sound-own-training", "a function that trains", OwnTraining(train=_noisy(_STD), epsilon=EPSILON)),
)
