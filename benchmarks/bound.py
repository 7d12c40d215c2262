"""A round of R replicas beside the least arithmetic it needs, and beside R trainings one by one, in one run.

The bound is the time of two things that no implementation can avoid. The multiplications and additions of the round's
matrix products, at the rate that this machine reaches in one large product; counted are the fewest products that the
algorithm's equations need, those that two evaluations can share once only. And the normals of the round's directions,
at the cost of the fastest generator that is at hand. Nothing else is counted: no activation, loss, optimiser step,
table, message or memory traffic, and small products are as fast as large ones. All is measured in this run, in turns,
so that other load on the machine meets everything alike; the least of several blocks counts.

A block is some rounds of one training. "loop" is R times the round of a training with one replica. Times are CPU
seconds of one thread; on an accelerator they are wall seconds after it has finished.

    python benchmarks/bound.py [--device cpu] [--replicas N] [--only dpzv-sgd,split] [--quick]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any

import numpy as np
import torch
from _support import BATCH, arguments, build, one_line, seconds, torch_device

from vflpriv.common.random import Stream
from vflpriv.core.data import VerticalData
from vflpriv.core.wire import Wire
from vflpriv.data import loading as datasets
from vflpriv.training.engine import Engine

__all__: list[str] = []

_LARGE = 1024
_NORMALS = 1 << 20
_ROUNDS = 1200
_MOST_ROUNDS = 128
"""Directions are drawn for up to 64 rounds at once."""
_BLOCK = 0.06
"""Seconds, about as long as a large product takes: short enough to fall between other work of the machine."""


@dataclass(frozen=True, kw_only=True)
class Size:
    """One data set with the width of the devices' embeddings, how many replicas advance together, and the goal."""

    name: str
    data: VerticalData
    embedding: int
    replicas: int
    goal: float


@dataclass(frozen=True, kw_only=True)
class Work:
    """What one replica needs in one round: multiplications and additions of matrix products, and normals."""

    flops: float
    normals: int = 0


@dataclass(frozen=True, kw_only=True)
class Case:
    """An engine with its settings, and the work of its round at a size."""

    engine: str
    settings: dict[str, Any]
    work: Callable[[Size], Work]


def _products(size: Size) -> tuple[float, float]:
    """The flops of all devices' passes over a batch, and of the server's pass over their embeddings."""
    data, width = size.data, size.embedding
    features = sum(block[0].numel() for block in data.blocks)
    return 2.0 * BATCH * features * width, 2.0 * BATCH * data.devices * width * data.classes


def _zeroth_order(size: Size, *, joint: bool) -> Work:
    """Two passes of one device. The server's two evaluations at ± differ in w0 as well, or in one device's rows alone.

    In the latter case one pass over all rows serves both, and the forward pass of the server's own gradient.
    """
    devices, (bottoms, top) = size.data.devices, _products(size)
    features = sum(block[0].numel() for block in size.data.blocks) // devices
    normals = (features + 1) * size.embedding
    server = 2 * top if joint else 2 * top + top / devices
    own = (devices * size.embedding + 1) * size.data.classes
    return Work(flops=2 * bottoms / devices + server, normals=normals + (own if joint else 0))


def _split(size: Size) -> Work:
    """Forward and by parameters at every device; the server's step, and then the gradient by its rows."""
    bottoms, top = _products(size)
    return Work(flops=2 * bottoms + 4 * top)


def _vimadmm(size: Size, *, steps: int) -> Work:
    """Local steps: forward, through the head and back, and by parameters; at the server outputs and a step."""
    bottoms, top = _products(size)
    return Work(flops=steps * (2 * bottoms + 2 * top) + 2 * top)


_ZEROTH_ORDER = {"activation": "round-robin", "noise": "given", "noise_std": 1.0}
CASES = {
    "dpzv-sgd": Case(
        engine="dpzv", settings={**_ZEROTH_ORDER, "server_update": "sgd"}, work=partial(_zeroth_order, joint=False)
    ),
    "dpzv-joint": Case(
        engine="dpzv", settings={**_ZEROTH_ORDER, "server_update": "joint"}, work=partial(_zeroth_order, joint=True)
    ),
    "split": Case(engine="split", settings={}, work=_split),
    "vimadmm": Case(engine="vimadmm", settings={"local_steps": 20}, work=partial(_vimadmm, steps=20)),
}


Clock = Callable[[Callable[[], object]], float]


class Rounds:
    """The rounds of one training, timed in blocks."""

    def __init__(self, engine: Engine, clock: Clock) -> None:
        self._engine, self._clock, self._wire, self._next = engine, clock, Wire(), count()
        self._advance(1)
        self._block = min(_MOST_ROUNDS, 1 + int(_BLOCK / clock(partial(self._advance, 2)) * 2))

    def _advance(self, rounds: int) -> None:
        for _ in range(rounds):
            self._engine.round(next(self._next) % self._engine.schedule.rounds, self._wire)

    def seconds(self) -> float:
        """Of one round, the mean of a block."""
        return self._clock(partial(self._advance, self._block)) / self._block


class Machine:
    """What one product's flop and one normal cost here, as far as they were measured."""

    def __init__(self, device: torch.device, clock: Clock) -> None:
        self._clock = clock
        left, right = torch.randn(2, _LARGE, _LARGE, device=device)
        self._product = partial(torch.mm, left, right)
        room, host, rng = torch.empty(_NORMALS, device=device), np.empty(_NORMALS, np.float32), np.random.SFC64(0)
        stream = Stream.of(0, "directions", range(16), device)
        self._generators: dict[str, Callable[[], object]] = {
            "torch": room.normal_,
            "numpy": partial(np.random.Generator(rng).standard_normal, dtype=np.float32, out=host),
            "this package": partial(stream.normal, _NORMALS // 16, 0),
        }
        self.flop = np.inf
        self.normals = dict.fromkeys(self._generators, np.inf)

    def measure(self) -> None:
        """Once more; the least of all counts."""
        self.flop = min(self.flop, self._clock(self._product) / (2 * _LARGE**3))
        for name, draw in self._generators.items():
            self.normals[name] = min(self.normals[name], self._clock(draw) / _NORMALS)

    def seconds(self, work: Work) -> float:
        return float(work.flops * self.flop + work.normals * min(self.normals.values()))

    def __str__(self) -> str:
        drawn = ", ".join(f"{name} {1e9 * cost:.1f}" for name, cost in self.normals.items())
        return f"{1e-9 / self.flop:.0f} GFLOP/s in a product of {_LARGE}x{_LARGE} matrices; ns a normal: {drawn}"


def sizes(folder: str | None, replicas: int | None) -> list[Size]:
    digits = datasets.load("digits", devices=4)
    mnist = datasets.load("mnist", devices=7, partition="rows", folder=folder, train=2048)
    return [
        Size(name="digits", data=digits, embedding=8, replicas=replicas or 256, goal=8),
        Size(name="mnist", data=mnist, embedding=64, replicas=replicas or 32, goal=2.5),
    ]


def compare(case: Case, size: Size, machine: Machine, clock: Clock, options: argparse.Namespace) -> tuple[float, float]:
    """The least seconds of a round of all replicas together, and of a training with one."""
    common = {"rounds": _ROUNDS, "batch_size": BATCH, "embedding": size.embedding}
    system = build(size.data, case.engine, **common, **case.settings)
    together, alone = (Rounds(system.train(range(n)), clock) for n in (size.replicas, 1))
    times = []
    for _ in range(4 if options.quick else 24):
        machine.measure()
        times.append((together.seconds(), alone.seconds()))
    least = [min(column) for column in zip(*times, strict=True)]
    return least[0], least[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replicas", type=int, default=None, help="by default 256 on digits, 32 at MNIST's size")
    parser.add_argument("--folder", default=None, help="where MNIST is; `vflpriv data fetch mnist` if it is nowhere")
    parser.add_argument("--only", default=",".join(CASES))
    parser.add_argument("--quick", action="store_true", help="fewer blocks")
    options = arguments(parser)
    torch.set_num_threads(1)
    clock, machine = seconds, Machine(torch_device(), seconds)
    heads = ("replicas", "ours", "bound", "loop", "ours/bound", "goal", "loop/ours")
    print(f"a round, B = {BATCH}\n{'size':<8}{'engine':<12}" + "".join(f"{head:>12}" for head in heads))
    for size in sizes(options.folder, options.replicas):
        for name in options.only.split(","):
            ours, single = compare(CASES[name], size, machine, clock, options)
            bound, loop = size.replicas * machine.seconds(CASES[name].work(size)), size.replicas * single
            cells = [str(size.replicas), *(f"{1e3 * value:.2f} ms" for value in (ours, bound, loop))]
            cells += [f"{ours / bound:.1f} x", f"{size.goal:g} x", f"{loop / ours:.1f} x"]
            print(f"{size.name:<8}{name:<12}" + "".join(f"{cell:>12}" for cell in cells), flush=True)
    print(machine)


if __name__ == "__main__":
    one_line(main)
