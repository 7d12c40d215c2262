"""Seconds of a communication round at VIMADMM's MNIST setting, beside a straightforward implementation, in one run.

14 clients with two rows each, client MLP 56-120-60, batch 1024, one replica, one thread, tensors preloaded, inputs
standardised. The reference has a module and an optimiser for each client and solves z with scipy, record by record.
Rounds of both alternate, so that other load on the machine affects both alike. Times are thread CPU seconds, the least
of all rounds. "products" is the time of the clients' matrix products alone, with the same BLAS and in the memory order
of the reference, on tensors that stay in the cache. "above" is ours / products, the goal 1.3 for every engine. A round
also gathers its rows and computes the server's products, which "products" leaves out. "gain" is reference / ours.
Accuracies are those after the given rounds.

    python benchmarks/rounds.py [--folder DIR] [--rounds 53] [--only split,vimadmm]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from _reference_training import COMBINATION, REFERENCES, Reference
from _support import arguments, build, one_line, seconds, torch_device

from vflpriv.core.data import VerticalData
from vflpriv.core.wire import Wire
from vflpriv.data import loading as datasets
from vflpriv.training.engine import Engine

__all__: list[str] = []

SETTINGS: dict[str, dict[str, Any]] = {
    "split": {"device_rate": 0.3, "server_rate": 0.3},
    "vafl-tsync": {"device_rate": 0.3, "server_rate": 0.3, "aggregation": "weighted", "combination_rate": COMBINATION},
    "fdml": {"device_rate": 0.1, "server_rate": 0.1, "hidden": (120, 60)},
    "fedbcd": {"device_rate": 0.01, "server_rate": 0.01, "local_steps": 5},
    "vimadmm": {"device_rate": 0.1, "server_rate": 0.1},
    "vimadmm-j": {"device_rate": 0.1, "server_rate": 0.1},
}
GOAL = 1.3
"""The most that a round may take, as a multiple of the clients' matrix products."""


def ours(name: str, data: VerticalData, rounds: int) -> Engine:
    common = {"rounds": rounds, "batch_size": 1024, "hidden": (120,), "embedding": 60, "momentum": 0.9}
    settings = {**common, "server_momentum": 0.0, "weight_decay": 1e-3, **SETTINGS[name]}
    return build(data, name, **settings).train([0])


def reference(name: str, data: VerticalData) -> Reference:
    """The straightforward implementation."""
    features = [block.shape[1] for block in data.blocks]
    rates = {key: SETTINGS[name][f"{key}_rate"] for key in ("device", "server")}
    shape = {"hidden": 120, "embedding": 60, "classes": data.classes}
    return REFERENCES[name](features, **shape, **rates, penalty=SETTINGS[name].get("penalty", 1.0))


def products(name: str, data: VerticalData) -> Callable[[], None]:
    """The matrix products of the clients' passes in a round: per step two forward, and three backward."""
    steps = {"fedbcd": 5, "vimadmm": 20, "vimadmm-j": 20}.get(name, 1)
    x, h, e = torch.randn(1024, data.blocks[0].shape[1]), torch.randn(1024, 120), torch.randn(1024, 60)
    first, second = torch.randn(x.shape[1], 120), torch.randn(120, 60)
    pairs = [(x, first), (h, second), (h.T, e), (e, second.T), (x.T, h)]
    room = [torch.empty(a.shape[0], b.shape[1]) for a, b in pairs]

    def run() -> None:
        for _ in range(data.devices * steps):
            for (a, b), out in zip(pairs, room, strict=True):
                torch.mm(a, b, out=out)

    return run


def compare(name: str, data: VerticalData, rounds: int) -> tuple[list[float], list[float]]:
    """The least seconds of a round of reference, ours and the products; the accuracies of the first two."""
    where = torch_device()
    engine, wire, data = ours(name, data, rounds), Wire(), data.to(where)
    with where:
        model, floor = reference(name, data), products(name, data)
    times: list[tuple[float, float, float]] = []
    for t in range(rounds):
        ids = torch.from_numpy(engine.schedule.batch(t)).to(where)
        labels, rows = data.labels[ids], [block[ids] for block in data.blocks]
        theirs = seconds(partial(model.round, rows, labels, ids))
        times.append((theirs, seconds(partial(engine.round, t, wire)), seconds(floor)))
    right = model.predict(data.test_blocks).argmax(1) == data.test_labels
    return [min(column) for column in zip(*times, strict=True)], [
        float(right.float().mean()),
        float(engine.evaluate().accuracy[0]),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", default=None, help="where MNIST is; `vflpriv data fetch mnist` if it is nowhere")
    parser.add_argument("--rounds", type=int, default=265, help="of first-order engines; ADMM engines take a fifth")
    parser.add_argument("--only", default=",".join(SETTINGS))
    options = arguments(parser)
    torch.set_num_threads(1)
    data = datasets.load("mnist", devices=14, partition="rows", folder=options.folder, train=54_000).standardised()
    heads = ("reference", "ours", "products", "gain", "above", "goal", "accuracy", "ours")
    print(f"{'engine':<12}{'rounds':>7}" + "".join(f"{head:>10}" for head in heads))
    for name in options.only.split(","):
        rounds = max(2, options.rounds // 5) if name.startswith("vimadmm") else options.rounds
        (slow, fast, least), accuracies = compare(name, data, rounds)
        cells = [f"{1e3 * value:.1f} ms" for value in (slow, fast, least)]
        cells += [f"{slow / fast:.2f} x", f"{fast / least:.2f} x", f"{GOAL} x"]
        cells += [f"{100 * value:.1f} %" for value in accuracies]
        print(f"{name:<12}{rounds:>7}" + "".join(f"{cell:>10}" for cell in cells), flush=True)


if __name__ == "__main__":
    one_line(main)
