"""How time and memory of an audit's trainings grow, and what audits beyond this machine would cost.

Each point of a sweep is a program of its own: CPU time of one thread for a replica's round (the least of three spans of
rounds), and the peak of its memory above that of the same program before the training. The sweeps change one size and
keep the others. Workers are timed on one set of tasks, by the clock: a machine with other work to do shows less gain.
The projection times one forward pass here, draws random numbers here, and counts operations, which become hours of an
accelerator whose speed is assumed and printed. The results go to SCALING.md beside this file.

    python benchmarks/scaling.py [--quick] [--gpu-tflops 19.5] [--gpu-share 0.2]
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import platform
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from _support import arguments, build, one_line
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from vflpriv.common.random import Stream
from vflpriv.common.tasks import Executor, NoProgress, Tasks, Worker
from vflpriv.core.canaries import FULL_TRIALS
from vflpriv.core.systems import System
from vflpriv.core.wire import Wire
from vflpriv.data import loading as datasets
from vflpriv.run.executors.table import executor_of
from vflpriv.training.models.architectures import ResNet18
from vflpriv.training.models.transformer import EncoderRest, EncoderShape, TokenEmbeddings

__all__: list[str] = []

PAGE = Path(__file__).with_name("SCALING.md")
BASE = {"records": 6000, "devices": 7, "rounds": 120, "replicas": 32}
SWEEPS: dict[str, tuple[int, ...]] = {
    "records": (1000, 6000, 20_000, 60_000),
    "devices": (2, 4, 7, 14, 28),
    "rounds": (60, 120, 240, 480),
    "replicas": (1, 4, 16, 64, 256),
}
ENGINES: dict[str, dict[str, Any]] = {
    "dpzv": {"server_update": "joint", "noise": "given", "noise_std": 1.0, "activation": "round-robin"},
    "split": {},
}
BATCH, EMBEDDING, TRIALS = 64, 32, 10_000
SPANS = 3
DISTILBERT = EncoderShape(
    vocabulary=30_522, positions=512, kinds=0, width=768, inner=3072, heads=12, layers=6, epsilon=1e-12
)


# One point ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Point:
    """CPU microseconds of one replica's round, and MiB of all replicas together."""

    microseconds: float
    mebibytes: float


def system_of(engine: str, sizes: dict[str, int]) -> System:
    """An MNIST system of this size."""
    data = datasets.load("mnist", devices=sizes["devices"], partition="rows", train=sizes["records"])
    common = {"rounds": sizes["rounds"], "batch_size": BATCH, "embedding": EMBEDDING, "top_hidden": ()}
    return build(data, engine, **common, **ENGINES[engine])


def resident() -> int:
    """The most bytes of memory that this process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def measure_here(engine: str, sizes: dict[str, int]) -> Point:
    """Train in this process; its memory must not have been larger before."""
    torch.set_num_threads(1)
    system, wire = system_of(engine, sizes), Wire()
    before = resident()
    training, rounds = system.train(range(sizes["replicas"])), sizes["rounds"]
    training.round(0, wire)
    spans = []
    for span in range(SPANS):
        start, first, last = (
            time.thread_time(),
            1 + span * (rounds - 1) // SPANS,
            1 + (span + 1) * (rounds - 1) // SPANS,
        )
        for round_ in range(first, last):
            training.round(round_, wire)
        spans.append((time.thread_time() - start) / (last - first))
    return Point(microseconds=1e6 * min(spans) / sizes["replicas"], mebibytes=(resident() - before) / 2**20)


def measure(engine: str, **sizes: int) -> Point:
    """Train in a program of its own."""
    question = json.dumps([engine, BASE | sizes])
    command = [sys.executable, __file__, "--point", question]
    answer = subprocess.run(
        command, capture_output=True, text=True, check=True, env=os.environ | {"OMP_NUM_THREADS": "1"}
    )
    return Point(**json.loads(answer.stdout))


def sweep(axis: str, values: Sequence[int]) -> list[list[str]]:
    """One row per value: microseconds and MiB of each engine."""
    rows = []
    for value in values:
        points = [measure(engine, **{axis: value}) for engine in ENGINES]
        rows.append([f"{value:,}", *(f"{p.microseconds:.1f}" for p in points), *(f"{p.mebibytes:.0f}" for p in points)])
        print(f"{axis} {rows[-1]}", file=sys.stderr, flush=True)
    return rows


# Workers -----------------------------------------------------------------------------------------------------------


def shards(common: System, replicas: range, worker: Worker) -> int:
    """One task: train replicas, as a shard of trials does."""
    common.train(replicas).run(Wire(), advance=worker.progress.advance)
    return len(replicas)


def on_workers(system: System, count: int, executor: AbstractContextManager[Executor]) -> float:
    """Seconds by the clock for so many tasks of 64 replicas, workers that are started already."""
    ranges = [range(64 * place, 64 * (place + 1)) for place in range(count)]
    tasks = Tasks(function=shards, common=system, items=ranges, names=[str(r.start) for r in ranges])
    with executor as running:
        running.run(replace(tasks, items=ranges[:2], names=tasks.names[:2]), progress=NoProgress())
        start = time.perf_counter()
        running.run(tasks, progress=NoProgress())
        return time.perf_counter() - start


def workers(quick: bool) -> list[list[str]]:
    """Seconds of the same tasks on 1 and 2 local workers, and on Ray clusters of one and of two nodes."""
    system, count = system_of("dpzv", BASE), 4 if quick else 12
    rows = [("1 local worker", on_workers(system, count, executor_of(1)))]
    rows.append(("2 local workers", on_workers(system, count, executor_of(2))))
    if importlib.util.find_spec("ray") is not None:
        from ray.cluster_utils import Cluster

        for nodes in (1, 2):
            cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
            for _ in range(nodes):
                cluster.add_node(num_cpus=1)
            os.environ["RAY_ADDRESS"] = cluster.address
            name = f"Ray, {nodes} node{'s' if nodes > 1 else ''} of one core"
            rows.append((name, on_workers(system, count, executor_of("ray"))))
            cluster.shutdown()
    alone = rows[0][1]
    return [[name, f"{seconds:.1f}", f"{alone / seconds:.2f} ×"] for name, seconds in rows]


# Projection --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Pass:
    """One forward pass of a model for a batch."""

    model: nn.Module
    inputs: Tensor

    @property
    def parameters(self) -> int:
        return sum(parameter.numel() for parameter in self.model.parameters())

    def operations(self) -> int:
        """Floating-point operations of its matrix products and convolutions."""
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            self.model(self.inputs)
        return int(counter.get_total_flops())

    def seconds(self) -> float:
        """CPU seconds, the least of three."""
        spans = []
        for _ in range(3):
            start = time.thread_time()
            with torch.no_grad():
                self.model(self.inputs)
            spans.append(time.thread_time() - start)
        return min(spans)


@dataclass(frozen=True, kw_only=True)
class Projected:
    """An audit by trials of two-point zeroth-order training: two passes of a device's model and of the server's."""

    name: str
    device: Pass
    server: Pass
    rounds: int
    devices: int
    records: int
    width: int
    """Of one device's embedding, of which the server keeps the last one of each record."""

    def row(self, normal: float, gpu: float) -> list[str]:
        """Hours of a CPU core and of an accelerator, for all trials in full and for those that audits train in full.

        `normal` are the seconds of a random normal here, `gpu` the operations a second of the accelerator.
        """
        operations = 2 * (self.device.operations() + self.server.operations())
        seconds = 2 * (self.device.seconds() + self.server.seconds()) + normal * (
            self.device.parameters + self.server.parameters
        )
        trained = [self.rounds * TRIALS, self.rounds * 2 * FULL_TRIALS]
        parameters = self.devices * self.device.parameters + self.server.parameters
        state = 4 * (parameters + self.records * self.devices * self.width) / 2**20
        cells = [f"{1e-9 * operations:.3g}", f"{state:,.0f}", f"{self.rounds:,}"]
        cells += [f"{seconds * rounds / 3600:,.0f}" for rounds in trained]
        return [self.name, *cells, *(f"{operations * rounds / gpu / 3600:,.1f}" for rounds in trained)]


def projected() -> list[Projected]:
    """Audits that this machine cannot run in a day."""
    generator = torch.Generator().manual_seed(0)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    tabular = Pass(model=nn.Sequential(nn.Linear(8, EMBEDDING), nn.ReLU()), inputs=draw(4096, 8))
    wide = Pass(model=nn.Linear(100 * EMBEDDING, 10), inputs=draw(4096, 100 * EMBEDDING))
    image = Pass(model=ResNet18((3, 16, 16), 128, width=64, activate=True), inputs=draw(64, 3 * 16 * 16))
    head = Pass(model=nn.Linear(4 * 128, 10), inputs=draw(64, 4 * 128))
    tokens = Pass(model=TokenEmbeddings(DISTILBERT), inputs=torch.randint(1, 30_000, (16, 128), generator=generator))
    text = Pass(model=EncoderRest(DISTILBERT, 2), inputs=draw(16, 128 * DISTILBERT.width))
    return [
        Projected(
            name="10⁶ records × 100 devices, MLP, batches of 4096",
            device=tabular,
            server=wide,
            rounds=100 * (10**6 // 4096),
            devices=100,
            records=10**6,
            width=EMBEDDING,
        ),
        Projected(
            name="ResNet-18 on 4 image patches, 50 000 records, batches of 64",
            device=image,
            server=head,
            rounds=4 * (50_000 // 64),
            devices=4,
            records=50_000,
            width=128,
        ),
        Projected(
            name="DistilBERT behind its embedding layer, 25 000 texts of 128 tokens, batches of 16",
            device=tokens,
            server=text,
            rounds=25_000 // 16,
            devices=1,
            records=25_000,
            width=128 * DISTILBERT.width,
        ),
    ]


def normal_seconds() -> float:
    """CPU seconds of one random normal in a long draw."""
    stream = Stream.of(0, "directions", range(32), torch.device("cpu"))
    spans = []
    for place in range(3):
        start = time.thread_time()
        stream.normal(1 << 15, place)
        spans.append((time.thread_time() - start) / (32 << 15))
    return min(spans)


# The page ----------------------------------------------------------------------------------------------------------


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table whose first column is text."""
    lines = [heads, [":--", *("--:" for _ in heads[1:])], *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


_HEADS = ("audit", "GFLOP a round", "MiB a replica", "rounds")
_HOURS = ("core-hours, all", "core-hours", "GPU-hours, all", "GPU-hours")


def page(quick: bool, tflops: float, share: float) -> str:
    """All measurements, as Markdown."""
    columns = [f"{name}, {unit}" for unit in ("µs", "MiB") for name in ENGINES]
    chosen = {axis: (values[0], values[-1]) if quick else values for axis, values in SWEEPS.items()}
    sections = [f"## {axis.capitalize()}\n{table([axis, *columns], sweep(axis, v))}" for axis, v in chosen.items()]
    normal = normal_seconds()
    rows = [audit.row(normal, tflops * 1e12 * share) for audit in projected()]
    parts = [
        "# How trainings scale",
        _setting(),
        *sections,
        f"## Workers\n{table(['where', 'seconds', 'gain'], workers(quick))}",
        "## Beyond this machine",
        _assumptions(normal, tflops, share),
        table([*_HEADS, *_HOURS], rows),
    ]
    return "\n\n".join(parts) + "\n"


def _setting() -> str:
    base = ", ".join(f"{value:,} {name}" for name, value in BASE.items())
    versions = f"Python {platform.python_version()}, torch {torch.__version__}"
    return (
        f"Written by `python benchmarks/scaling.py`. MNIST row bands, embeddings of {EMBEDDING}, batches of {BATCH}; "
        f"unless a column says otherwise {base}. µs are CPU time of one thread for one replica's round; MiB are those "
        f"of all replicas together. Measured on {platform.machine()} with {os.cpu_count()} cores, {versions}."
    )


def _assumptions(normal: float, tflops: float, share: float) -> str:
    return (
        f"{TRIALS:,} trials of one epoch of every device, zeroth-order with two passes a round. *All* trains every "
        f"trial; the column beside it trains 2 × {FULL_TRIALS} in full and replays the releases for the others, as "
        "audits do with worst-case canaries. MiB are parameters and the server's table of last embeddings, which "
        "decides how many replicas fit. Core-hours: passes timed here on one thread, and "
        f"{1e9 * normal:.1f} ns for each random number. GPU-hours: the same operations at an **assumed** "
        f"{100 * share:g} % of {tflops:g} TFLOP/s (the single-precision peak of an A100). Nothing was measured on a "
        "GPU, and random numbers and messages are not part of it."
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="the ends of each sweep, printed and not written")
    parser.add_argument("--gpu-tflops", type=float, default=19.5)
    parser.add_argument("--gpu-share", type=float, default=0.2, help="of that speed which trainings reach")
    parser.add_argument("--point", help=argparse.SUPPRESS)
    options = arguments(parser)
    if options.point:
        print(json.dumps(asdict(measure_here(*json.loads(options.point)))))
        return
    torch.set_num_threads(1)
    text = page(options.quick, options.gpu_tflops, options.gpu_share)
    print(text)
    if not options.quick:
        PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    one_line(main)
