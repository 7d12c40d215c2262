"""Seconds of a communication round at VIMADMM's MNIST setting, beside a straightforward implementation, in one run.

14 clients with two rows each, client MLP 56-120-60, batch 1024, one replica, one thread, tensors preloaded, inputs
standardised. The reference has a module and an optimiser for each client and solves z with scipy, record by record.
Times are thread CPU seconds, the least of all rounds; accuracies are after the rounds given, for both.

    python benchmarks/rounds.py [--folder DIR] [--rounds 53] [--only split,vimadmm]
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from typing import Any

import torch
from _reference import REFERENCES

from vflpriv import datasets
from vflpriv.data import VerticalData
from vflpriv.registry import find
from vflpriv.systems import System
from vflpriv.wire import Wire

__all__: list[str] = []

SETTINGS: dict[str, dict[str, Any]] = {
    "split": {"device_rate": 0.3, "server_rate": 0.3},
    "vafl-tsync": {"device_rate": 0.3, "server_rate": 0.3, "aggregation": "weighted", "combination_rate": 0.01},
    "fdml": {"device_rate": 0.1, "server_rate": 0.1, "hidden": (120, 60)},
    "fedbcd": {"device_rate": 0.01, "server_rate": 0.01, "local_steps": 5},
    "vimadmm": {"device_rate": 0.03, "server_rate": 0.001},
    "vimadmm-j": {"device_rate": 0.015, "server_rate": 0.001, "penalty": 0.5},
}
GOALS = {"split": 2, "vafl-tsync": 2, "fdml": 2, "fedbcd": 3, "vimadmm": 4, "vimadmm-j": 4}


def standardised(data: VerticalData) -> VerticalData:
    """Mean 0 and deviation 1 over all pixels, as the published code has it."""
    pixels = torch.cat([block.flatten() for block in data.blocks])
    mean, deviation = pixels.mean(), pixels.std()

    def scale(blocks: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        return tuple((block - mean) / deviation for block in blocks)

    return replace(data, blocks=scale(data.blocks), test_blocks=scale(data.test_blocks))


def ours(name: str, data: VerticalData, rounds: int) -> tuple[float, float]:
    """The least seconds of a round, and the test accuracy behind the last."""
    engine_type = find("engine", name)
    common = {"rounds": rounds, "batch_size": 1024, "hidden": (120,), "embedding": 60, "momentum": 0.9}
    raw = {**common, "server_momentum": 0.0, "weight_decay": 1e-3, **SETTINGS[name]}
    settings = engine_type.settings_type.model_validate(raw)
    schedule = engine_type.draw_schedule(settings, records=data.records, devices=data.devices, seed=0)
    system = System(
        key=name,
        engine=engine_type,
        settings=settings,
        data=data,
        schedule=schedule,
        seed=0,
        torch_device=torch.device("cpu"),
    )
    engine, wire, times = system.train([0]), Wire(), []
    for t in range(rounds):
        start = time.thread_time()
        engine.round(t, wire)
        times.append(time.thread_time() - start)
    return min(times), float(engine.evaluate().accuracy[0])


def reference(name: str, data: VerticalData, rounds: int) -> tuple[float, float]:
    """The same of the straightforward implementation."""
    features = [block.shape[1] for block in data.blocks]
    rates = {key: SETTINGS[name][f"{key}_rate"] for key in ("device", "server")}
    shape = {"hidden": 120, "embedding": 60, "classes": data.classes}
    model = REFERENCES[name](features, **shape, **rates, penalty=SETTINGS[name].get("penalty", 1.0))
    generator, times = torch.Generator().manual_seed(0), []
    order = torch.empty(0, dtype=torch.int64)
    for _ in range(rounds):
        if len(order) < 1024:
            order = torch.randperm(data.records, generator=generator)
        ids, order = order[:1024], order[1024:]
        start = time.thread_time()
        model.round([block[ids] for block in data.blocks], data.labels[ids], ids)
        times.append(time.thread_time() - start)
    right = model.predict(data.test_blocks).argmax(1) == data.test_labels
    return min(times), float(right.float().mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", default=None, help="where MNIST is; `vflpriv data fetch mnist` if it is nowhere")
    parser.add_argument("--rounds", type=int, default=53, help="of first-order engines; ADMM engines take a fifth")
    parser.add_argument("--only", default=",".join(SETTINGS))
    options = parser.parse_args()
    torch.set_num_threads(1)
    data = standardised(datasets.load("mnist", devices=14, partition="rows", folder=options.folder, train=54_000))
    heads = ("reference", "ours", "ratio", "goal", "accuracy", "ours")
    print(f"{'engine':<12}{'rounds':>7}" + "".join(f"{head:>10}" for head in heads))
    for name in options.only.split(","):
        rounds = max(2, options.rounds // 5) if name.startswith("vimadmm") else options.rounds
        (slow, theirs), (fast, mine) = reference(name, data, rounds), ours(name, data, rounds)
        cells = (f"{1e3 * slow:.1f} ms", f"{1e3 * fast:.1f} ms", f"{slow / fast:.2f} x", f"{GOALS[name]} x")
        both = (f"{100 * theirs:.1f} %", f"{100 * mine:.1f} %")
        print(f"{name:<12}{rounds:>7}" + "".join(f"{cell:>10}" for cell in (*cells, *both)), flush=True)


if __name__ == "__main__":
    main()
