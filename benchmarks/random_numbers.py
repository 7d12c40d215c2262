"""Speed of random numbers: C, tensor operations and one kernel by `torch.compile`, beside torch's own generator.

All ways but the last draw the same numbers, from named streams with a replica axis. `torch.randn` is the floor: it has
one state for all replicas and nothing can be drawn again. Times are the least of several alternating runs: CPU time of
one thread on the CPU, elapsed time with the device idle before and after elsewhere.

    python benchmarks/random_numbers.py [--device cpu] [--no-compile]
"""

from __future__ import annotations

import argparse
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from unittest.mock import patch

import torch
from _support import arguments, one_line, synchronise, torch_device

from vflpriv.common import philox
from vflpriv.common.random import Stream

__all__: list[str] = []

_RUNS = 5


@dataclass(frozen=True)
class Case:
    """Draws of `count` normals for each of R replicas, in one or K sequences at once; `repeats` are timed together."""

    replicas: int
    count: int
    repeats: int
    sequences: int | None = None

    @property
    def numbers(self) -> int:
        return self.replicas * self.count * (self.sequences or 1)

    def __str__(self) -> str:
        sequences = "" if self.sequences is None else f" × {self.sequences}"
        return f"{self.replicas}{sequences} × {self.count}"


LONG = (Case(1, 1 << 20, 1), Case(32, 1 << 15, 1), Case(1024, 1000, 1), Case(32, 2560, 1, sequences=16))
SMALL = (Case(2, 4, 30), Case(32, 4, 30), Case(256, 4, 30), Case(16, 500, 10))


@contextmanager
def by(native: object, way: Callable[..., object]) -> Iterator[None]:
    """Draw by this extension, or without one by this function, on all devices."""
    every = dict.fromkeys(("cpu", "cuda", "mps", "xpu"), way)
    with patch.object(philox, "extension", native), patch.object(philox, "_WAYS", every):
        yield


def seconds(draw: Callable[[], object], repeats: int, device: torch.device) -> float:
    """Time of one draw."""
    clock = time.thread_time if device.type == "cpu" else time.perf_counter
    synchronise(device)
    start = clock()
    for _ in range(repeats):
        draw()
    synchronise(device)
    return (clock() - start) / repeats


def measure(
    case: Case, ways: dict[str, tuple[object, Callable[..., object]]], device: torch.device
) -> dict[str, float]:
    """The least time of one draw for each way, in seconds."""
    stream = Stream.of(0, "directions", range(case.replicas), device)
    path = (3,) if case.sequences is None else (torch.arange(case.sequences, device=device),)
    best = dict.fromkeys((*ways, "torch.randn"), float("inf"))
    for run in range(1 + _RUNS):
        for name, way in ways.items():
            with by(*way):
                spent = seconds(lambda: stream.normal(case.count, *path), case.repeats, device)
            best[name] = min(best[name], spent) if run else best[name]
        spent = seconds(lambda: torch.randn(case.numbers, device=device), case.repeats, device)
        best["torch.randn"] = min(best["torch.randn"], spent)
    return best


def ways_on(device: torch.device, compile_: bool) -> dict[str, tuple[object, Callable[..., object]]]:
    """What draws on this device."""
    ways: dict[str, tuple[object, Callable[..., object]]] = {"tensor operations": (None, philox.units)}
    if device.type == "cpu" and philox.compiled():
        ways = {"C": (philox.extension, philox.units)} | ways
    if compile_ and (device.type != "cpu" or shutil.which("c++")):
        ways["torch.compile"] = (None, philox.Fused())
    return ways


def table(title: str, unit: str, rows: dict[str, dict[str, float]]) -> None:
    """One line for each case: the value of each way, and in brackets its multiple of the floor."""
    names = list(next(iter(rows.values())))
    print(f"\n{title}, {unit} (multiple of torch.randn)")
    print(f"{'replicas × numbers':<22}" + "".join(f"{name:>24}" for name in names))
    for case, values in rows.items():
        cells = (f"{value:.2f} ({value / values['torch.randn']:.1f} ×)" for value in values.values())
        print(f"{case:<22}" + "".join(f"{cell:>24}" for cell in cells))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--no-compile", action="store_true", help="leave out torch.compile, which takes a minute")
    options, device = arguments(parser), torch_device()
    torch.set_num_threads(1)
    print(f"device {device}; the C extension is {'' if philox.compiled() else 'not '}installed")
    ways = ways_on(device, not options.no_compile)
    rows: dict[str, dict[str, float]] = {}
    for case in LONG:
        best = measure(case, ways, device)
        rows[str(case)] = {name: 1e9 * value / case.numbers for name, value in best.items()}
    table("Long draws", "ns a normal", rows)
    rows = {str(case): {name: 1e6 * value for name, value in measure(case, ways, device).items()} for case in SMALL}
    table("Small draws", "µs a draw", rows)


if __name__ == "__main__":
    one_line(main)
