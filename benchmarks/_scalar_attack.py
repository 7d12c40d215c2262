"""How many labels DPZV's curious devices learn from one noised scalar per batch."""

from __future__ import annotations

import torch
from _capacity import gain_ceiling
from _support import BATCH, build, leakage_line

from vflpriv.attacks.label.zo_scalar import LabelZoScalar
from vflpriv.audits.scoring.attempts import Attempt
from vflpriv.audits.scoring.trials import Trials
from vflpriv.core.data import VerticalData
from vflpriv.core.views import Adversary
from vflpriv.data import loading as datasets

__all__ = ["batches", "dpzv"]


def dpzv(mnist: VerticalData, quick: bool, *, epochs: int = 10, seeds: int = 3, collude: bool = True) -> None:
    """The published settings on MNIST for some of its 100 epochs; noise for (ε, δ) = (1, 1e-3) over these epochs.

    The curious device holds the middle rows: the first band of a digit is almost empty.
    """
    print(f"DPZV, {epochs} epochs, 7 bands, batch 64, C = 10, λ = 1e-3; known batches, 40 known labels; success, %")
    data = datasets.load("mnist", devices=7, partition="rows", train=2000 if quick else None)
    base = {"embedding": 128, "top_hidden": (64,), "momentum": 0.9, "device_rate": 5e-4, "server_rate": 5e-3}
    base |= {"rounds": epochs * -(-data.records // BATCH), "batch_size": BATCH}
    adversaries = [Adversary.parse(a) for a in ("device(3)", "devices(all)")[: 1 + collude]]
    sound = {"noise": "calibrated", "server_update": "joint", "protect": "devices(all)"}
    for name, changes in (
        ("without noise", {"noise": "given", "noise_std": 0.0}),
        ("claimed ε = 1 (Theorem VI.5)", {"noise": "paper"}),
        ("sound ε = 1 for all devices (joint)", sound),
    ):
        system = build(data, "dpzv", **base, **changes)
        trials = Trials(system=system, seeds=seeds, confidence=0.95)
        training = trials.training([LabelZoScalar()], adversaries)
        noise, accuracy = system.settings.noise_std, 100 * float(training.engine.evaluate().accuracy.mean())
        print(f"  {name}, noise std {noise:.3g}, {system.schedule.rounds} rounds: main accuracy {accuracy:.1f}")
        for adversary, view in training.views(adversaries).items():
            scalars = torch.stack([m.tensors["delta"] for m in view.of_kind("zo-scalar")])
            print(f"    {adversary!s:<13} {_result(trials.run([LabelZoScalar()], [adversary], training=training)[0])}")
            ceiling = "none can be given"
            if noise:
                ceilings = [gain_ceiling(run, noise, data.records, confidence=0.95) for run in scalars.T]
                ceiling = f"{100 * max(ceilings):.1f} points"
            print(
                f"      {len(scalars)} scalars for {data.records} labels; ceiling for any attack: {ceiling}", flush=True
            )


def batches(mnist: VerticalData, quick: bool) -> None:
    """A scalar reveals less the more labels share it: DPZV on digits, every round's scalar seen."""
    print("DPZV on digits, 8 epochs, 4 devices together, 40 known labels: success by batch size and noise, %")
    data = datasets.load("digits", devices=4, partition="rows", train=300 if quick else None)
    rates = {1: (5e-4, 0.01), 4: (5e-4, 0.01), 16: (2e-3, 0.05), 64: (2e-3, 0.05)}
    for size, (device_rate, server_rate) in rates.items():
        for noise in (0.0, 1.0, 20.0):
            system = build(
                data,
                "dpzv",
                embedding=8,
                rounds=8 * -(-data.records // size),
                batch_size=size,
                activation="round-robin",
                device_rate=device_rate,
                server_rate=server_rate,
                noise="given",
                noise_std=noise,
            )
            trials = Trials(system=system, seeds=3 if quick else 5, confidence=0.95)
            result = _result(trials.run([LabelZoScalar()], [Adversary.parse("devices(all)")])[0])
            print(f"  batches of {size:2}, noise std {noise:4.1f}: {result}", flush=True)


def _result(attempt: Attempt) -> str:
    """Success of the scalar attack through a view."""
    return "no guess to score" if attempt.mean is None else leakage_line(attempt.mean)
