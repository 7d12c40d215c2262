"""Passive and active model completion on one system, what a linear probe reads off the models, and its settings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from _support import BATCH, build, leakage_line, seconds

from vflpriv.attacks._estimators import standardised
from vflpriv.attacks.label.trained.completion import QUICK, Completion, LabelCompletionActive, LabelCompletionPassive
from vflpriv.audits.scoring.attempts import Attempt
from vflpriv.audits.scoring.labels import draw_auxiliary, label_score
from vflpriv.audits.scoring.score import Score, mean_score
from vflpriv.audits.scoring.trainings import Training
from vflpriv.audits.scoring.trials import Trials
from vflpriv.core.attack import Auxiliary, Guess
from vflpriv.core.data import VerticalData
from vflpriv.core.systems import System
from vflpriv.core.views import Adversary, Belongings, View
from vflpriv.core.wire import Wire
from vflpriv.data import loading as datasets

__all__ = ["completed", "probe", "settings"]

_LONG = Completion(epochs=5, iterations=200)
"""A thousand published steps."""
_DEVICE = Adversary.parse("device(0)")


def completed(system: System, *, seeds: int, settings: Completion) -> list[list[Score]]:
    """Scores of the passive and of the active attack by device 0, one per seed; both have the same baseline guesses."""
    data, results = system.data.to(system.torch_device), []
    baseline: Sequence[Guess | None] = []
    known: list[Auxiliary] = [
        draw_auxiliary(data.labels, data.classes, per_class=4, seed=system.seed, replica=r) for r in range(seeds)
    ]
    LabelCompletionPassive.completion = settings
    for attack in (LabelCompletionPassive(), LabelCompletionActive()):
        engine: Any = system.train(range(seeds), conducts={0: attack.conduct} if attack.conduct else {})
        engine.run(Wire())
        own = [[engine.belongings(m).replica(r) for r in range(seeds)] for m in range(data.devices)]
        view = View(_DEVICE, (), data.classes, {0: engine.belongings(0)})
        baseline = baseline or attack.blind_together(view.silent(), known)
        tried = zip(attack.run_together(view, known), known, baseline, strict=True)
        scores = [label_score(guess, data.labels, auxiliary=k, blind=b) for guess, k, b in tried]
        probes = [100 * float(np.mean([probe(o, data) for o in device])) for device in own]
        accuracy = 100 * float(engine.evaluate().accuracy.mean())
        print(f"  {data.name}, {data.records} records, {attack.name}: main accuracy {accuracy:.1f}")
        print(f"    {leakage_line(mean_score(scores, confidence=0.95))}")
        print(f"    probes of embeddings: attacker's {probes[0]:.1f}, other device's {probes[1]:.1f}", flush=True)
        results.append(scores)
    return results


def probe(own: Belongings, data: VerticalData) -> float:
    """Share of labels that least squares, fitted to all of them, reads off a bottom's outputs."""
    rows = own.apply(own.trained, own.features)[0].detach()
    rows = torch.cat([standardised(rows), rows.new_ones(len(rows), 1)], dim=1)
    targets = torch.nn.functional.one_hot(data.labels, data.classes).to(rows.dtype)
    gram = rows.T @ rows + 1e-4 * len(rows) * torch.eye(rows.shape[1], device=rows.device)
    fit = rows @ torch.linalg.solve(gram, rows.T @ targets)
    return float((fit.argmax(-1) == data.labels).to(torch.float64).mean())


def settings(_: VerticalData, quick: bool) -> None:
    """The default settings of completion beside a thousand published steps, on seeds that neither was chosen on."""
    print("Model completion by device 0, 4 labels of each class: the default settings beside 1000 published steps, %")
    seeds = 2 if quick else 5
    deep = {"hidden": (32,), "top_hidden": (32,), "momentum": 0.9, "weight_decay": 5e-4}
    slow, fast = {"device_rate": 0.005, "server_rate": 0.005}, {"device_rate": 0.5, "server_rate": 0.5}
    digits, cancer = (datasets.load(name, devices=2) for name in ("digits", "breast-cancer"))
    few = datasets.load("mnist", devices=2, partition="slices", train=3000)
    systems = {
        "digits, linear": build(digits, "split", seed=7, batch_size=BATCH, rounds=115, **fast),
        "digits": build(digits, "split", seed=7, batch_size=32, rounds=900, **deep, **slow),
        "breast cancer, linear": build(cancer, "split", seed=7, batch_size=BATCH, rounds=60, **fast),
        "breast cancer": build(cancer, "split", seed=7, batch_size=32, rounds=280, **deep, **slow),
        "3000 of MNIST": build(few, "split", seed=7, batch_size=32, rounds=1800, **deep, **slow),
    }
    for name, system in systems.items():
        trials = Trials(system=system, seeds=seeds, confidence=0.95)
        training = trials.training([LabelCompletionPassive()], [_DEVICE])
        for what, chosen in (("default", QUICK), ("1000 steps", _LONG)):
            took, result = _timed(trials, training, chosen)
            print(f"  {name}, {what}, {took:.2f} s: {leakage_line(result)}", flush=True)


def _timed(trials: Trials, training: Training, chosen: Completion) -> tuple[float, Score]:
    """The seconds of passive completion with these settings, and what it reaches."""
    attack = type("Chosen", (LabelCompletionPassive,), {"completion": chosen})()
    results: list[Attempt] = []
    took = seconds(lambda: results.extend(trials.run([attack], [_DEVICE], training=training)))
    assert results[0].mean is not None
    return took, results[0].mean
