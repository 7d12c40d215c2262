"""Test accuracy on real MNIST beside the papers' tables, with the rounds and megabytes it took. One seed each.

Learning rates and rounds were chosen by looking at test accuracy, without a validation split: these are not held-out
figures, and somewhat optimistic. VIMADMM's tables, with 14 clients, are `vflpriv reproduce vimadmm-table-3`, whose
settings validation records choose.

    python benchmarks/accuracy.py [--folder DIR] [--only split,cascaded]
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from _support import arguments, build, one_line

from vflpriv.core.data import VerticalData
from vflpriv.core.wire import Wire
from vflpriv.data import loading as datasets

__all__: list[str] = []


@dataclass(frozen=True)
class Row:
    """One engine at one paper's setting. `setting` is a key of SETTINGS."""

    engine: str
    setting: str
    paper: float
    goal: float
    rounds: int
    settings: dict[str, Any]


SETTINGS: dict[str, dict[str, Any]] = {
    "4 slices": {"batch_size": 64, "embedding": 128, "top_hidden": (128,)},
    "7 bands": {"batch_size": 64, "embedding": 128, "top_hidden": (64,), "momentum": 0.9},
}
ROWS = [
    Row("split", "4 slices", 97.7, 97.0, 14_070, {"device_rate": 0.1, "server_rate": 0.1}),
    Row("vafl", "4 slices", 97.7, 97.0, 14_070, {"device_rate": 0.1, "server_rate": 0.1}),
    Row("cascaded", "4 slices", 96.4, 95.5, 28_140, {"device_rate": 0.005, "server_rate": 0.02}),
    Row("czofo", "4 slices", math.nan, math.nan, 7_504, {"device_rate": 0.02, "server_rate": 0.02}),
    Row("zoo-vfl", "4 slices", 89.0, 87.0, 46_900, {"device_rate": 0.001, "server_rate": 0.0005}),
    Row("syn-zoo-vfl", "4 slices", 87.4, math.nan, 28_140, {"device_rate": 0.001, "server_rate": 0.0005}),
    Row("dpzv", "7 bands", math.nan, 93.0, 9_380, {"device_rate": 5e-4, "server_rate": 5e-3}),
]
QUIET = {"dpzv": {"noise": "given", "noise_std": 0.0}}


def load(setting: str, folder: str | None) -> VerticalData:
    devices, how = setting.split()
    partition = "rows" if how == "bands" else how
    return datasets.load("mnist", devices=int(devices), partition=partition, folder=folder)


@dataclass(frozen=True)
class Outcome:
    """Test accuracy after the last round, and MiB on the wire by then, in both directions and of all devices."""

    accuracy: float
    size: float
    seconds: float


def train(row: Row, data: VerticalData) -> Outcome:
    settings = {"rounds": row.rounds, **SETTINGS[row.setting], **QUIET.get(row.engine, {}), **row.settings}
    engine, wire, start = build(data, row.engine, **settings).train([0]), Wire(), time.perf_counter()
    for t in range(row.rounds):
        engine.round(t, wire)
    accuracy = float(engine.evaluate().accuracy[0])
    return Outcome(accuracy, wire.traffic.total / 2**20, time.perf_counter() - start)


def rankings(rows: Sequence[tuple[Row, float]]) -> Iterator[str]:
    """For each setting the engines from the best to the worst, as the paper has them and as ours came out."""
    for setting in dict.fromkeys(row.setting for row, _ in rows):
        same = [(row, ours) for row, ours in rows if row.setting == setting and not math.isnan(row.paper)]
        if len(same) > 1:
            by_paper, by_ours = (sorted(same, key=key) for key in (lambda pair: -pair[0].paper, lambda pair: -pair[1]))
            yield f"{setting}, paper: {' > '.join(row.engine for row, _ in by_paper)}"
            yield f"{setting}, ours:  {' > '.join(row.engine for row, _ in by_ours)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", default=None, help="where MNIST is; `vflpriv data fetch mnist` if it is nowhere")
    parser.add_argument("--only", default=",".join(row.engine for row in ROWS))
    options = arguments(parser)
    torch.set_num_threads(1)
    heads = ("paper", "goal", "ours", "rounds", "epochs", "MiB", "seconds")
    print(f"{'engine':<13}{'setting':<10}" + "".join(f"{head:>10}" for head in heads))
    loaded: dict[str, VerticalData] = {}
    done: list[tuple[Row, float]] = []
    for row in ROWS:
        if row.engine not in options.only.split(","):
            continue
        data = loaded.setdefault(row.setting, load(row.setting, options.folder))
        outcome = train(row, data)
        done.append((row, outcome.accuracy))
        epochs = row.rounds * SETTINGS[row.setting]["batch_size"] / data.records
        cells = [f"{row.paper:.2f}", f"{row.goal:.1f}", f"{100 * outcome.accuracy:.2f}", f"{row.rounds}"]
        cells += [f"{epochs:.1f}", f"{outcome.size:.0f}", f"{outcome.seconds:.0f}"]
        print(f"{row.engine:<13}{row.setting:<10}" + "".join(f"{cell:>10}" for cell in cells), flush=True)
    print("", *rankings(done), sep="\n")


if __name__ == "__main__":
    one_line(main)
