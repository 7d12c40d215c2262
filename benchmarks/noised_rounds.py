"""What noise costs a round: rounds of engines without it, with float noise and on the grid, in turns, by one thread.

Float noise is single-precision normals, added in single precision, as one would write it: its last bits tell the
noiseless value. The last column is what a round on the grid takes of one with float noise.

Devices and server have MLPs with one hidden layer of 32 units, and a round takes 64 of scikit-learn's digits. With
`--wide` it is as large as MNIST at 14 devices: 56 numbers a device, 120 hidden units and embeddings of 60, and 1,024
records a round. Times are CPU seconds of the thread, the median of all rounds. `--key` draws noise under a secret key,
as a real training does, and not from a seed. `benchmarks/random_numbers.py` says what of it are the numbers alone.

    python benchmarks/noised_rounds.py [--rounds 300] [--wide] [--key] [--only dpzv,vafl-rows]
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from _support import arguments, build, one_line, seconds

from vflpriv.core.data import VerticalData
from vflpriv.core.law import Draws
from vflpriv.core.wire import Wire
from vflpriv.data import loading as datasets
from vflpriv.laws import Gaussian
from vflpriv.training.engine import Engine

__all__: list[str] = []

Settings = dict[str, Any]
ROWS: Settings = {"protection": "embedding", "noise_std": 0.1}
CLIENT: Settings = {"protection": "client", "clip": 10.0, "noise_std": 0.1}
SCALARS: Settings = {"noise": "given", "noise_std": 0.1}
CASES: Mapping[str, tuple[str, Settings, Settings]] = {
    "dpzv": ("dpzv", {**SCALARS, "server_update": "joint", "noise_std": 0.0}, SCALARS),
    "zoo-vfl-rows": ("zoo-vfl", {**ROWS, "noise_std": 0.0}, ROWS),
    "split-rows": ("split", {**ROWS, "noise_std": 0.0}, ROWS),
    "split-client": ("split", {**CLIENT, "noise_std": 0.0}, CLIENT),
    "split-guard": ("split", {"gradient_clip": 0.1}, {"gradient_noise_std": 0.001}),
    "vafl-rows": ("vafl", {**ROWS, "noise_std": 0.0}, ROWS),
    "fedbcd-client": ("fedbcd", {**CLIENT, "noise_std": 0.0}, CLIENT),
    "vimadmm-client": ("vimadmm", {**CLIENT, "noise_std": 0.0}, CLIENT),
}
"""Engine, its settings, and those that differ with noise; clips are there without it, too."""
SMALL: Settings = {"batch_size": 64, "hidden": (32,), "embedding": 32, "top_hidden": (32,)}
WIDE: Settings = {"batch_size": 1024, "hidden": (120,), "embedding": 60, "top_hidden": (120,)}


def wide_data() -> VerticalData:
    """Random numbers in the shape of MNIST's images at 14 devices."""
    generator = torch.Generator().manual_seed(0)
    train, test = (torch.randn(14, count, 56, generator=generator) for count in (8192, 256))
    labels, test_labels = (torch.randint(10, (count,), generator=generator) for count in (8192, 256))
    return VerticalData(
        name="random",
        classes=10,
        blocks=train.unbind(),
        labels=labels,
        test_blocks=test.unbind(),
        test_labels=test_labels,
    )


def float_noise() -> AbstractContextManager[object]:
    """Gaussian noise as it is usually added."""

    def draw(law: Gaussian, source: Draws, count: int, *path: int) -> torch.Tensor:
        return source.normal(count, *path)

    def release(law: Gaussian, noiseless: torch.Tensor, draws: torch.Tensor) -> torch.Tensor:
        return noiseless + law.std * draws

    return patch.multiple(Gaussian, draw=draw, release=release)


def compare(case: str, data: VerticalData, shared: Settings, rounds: int) -> tuple[float, float, float]:
    """The median seconds of a round without noise, with float noise, and with noise on the grid."""
    name, plain, noised = CASES[case]
    noises = (nullcontext, float_noise, nullcontext)
    engines: list[Engine] = [
        build(data, name, **{**shared, "rounds": rounds, **settings}).train([0])
        for settings in (plain, plain | noised, plain | noised)
    ]
    times: list[list[float]] = [[], [], []]
    for round_ in range(rounds):
        for engine, noise, taken in zip(engines, noises, times, strict=True):
            with noise():
                taken.append(seconds(partial(engine.round, round_, Wire())))
    without, by_floats, on_grid = (float(np.median(taken)) for taken in times)
    return without, by_floats, on_grid


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--wide", action="store_true", help="as large as MNIST; without it 64 digits and 32 units")
    parser.add_argument("--key", action="store_true", help="noise under a secret key")
    parser.add_argument("--only", default=",".join(CASES))
    options = arguments(parser)
    torch.set_num_threads(1)
    data = wide_data() if options.wide else datasets.load("digits", devices=2)
    shared = {**(WIDE if options.wide else SMALL), "secure_noise": options.key}
    print(f"{'case':<16}{'none':>12}{'float':>12}{'grid':>12}{'ratio':>8}")
    for case in options.only.split(","):
        times = compare(case, data, shared, options.rounds)
        shown = "".join(f"{1e6 * taken:>9.0f} µs" for taken in times)
        print(f"{case:<16}{shown}{times[2] / times[1]:>8.3f}", flush=True)


if __name__ == "__main__":
    one_line(main)
