"""What recording a training costs, and what auditing the recording costs: MNIST, 7 devices, width 64, batches of 256.

The training is split learning in plain PyTorch, watched by hooks. Rounds with and without recording alternate in one
process, on copies of the same models, so that other load on the machine affects both alike; times are CPU seconds of
the process, the threads that write included. Goals: recorded at most 1.3 times the training's CPU time; one epoch
audited within two minutes and 1 GB; 100 epochs with a sample of records within 2 GB on disk.

    python benchmarks/recording.py [--rounds 235] [--sample 2000] [--audit]
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import vflpriv
from vflpriv.data import loading as datasets

__all__: list[str] = []

DEVICES, WIDTH, BATCH = 7, 64, 256


class Training:
    """Split learning of MNIST's row bands."""

    def __init__(self, blocks: list[Tensor], labels: Tensor) -> None:
        torch.manual_seed(0)
        self.blocks, self.labels = blocks, labels
        self.bottoms = [nn.Sequential(nn.Linear(b.shape[1], 128), nn.ReLU(), nn.Linear(128, WIDTH)) for b in blocks]
        self.top = nn.Sequential(nn.ReLU(), nn.Linear(len(blocks) * WIDTH, 10))
        parameters = [p for module in (*self.bottoms, self.top) for p in module.parameters()]
        self.optimiser = torch.optim.SGD(parameters, lr=0.1)

    def step(self, records: Tensor) -> None:
        self.optimiser.zero_grad()
        sent = [bottom(block[records]) for bottom, block in zip(self.bottoms, self.blocks, strict=True)]
        cross_entropy(self.top(torch.cat(sent, dim=1)), self.labels[records]).backward()
        self.optimiser.step()


def cpu_seconds(work: Callable[[Tensor], object], records: Tensor) -> float:
    start = time.process_time()
    work(records)
    return time.process_time() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=235, help="235 are one epoch")
    options = parser.parse_args()
    torch.set_num_threads(1)
    data = datasets.load("mnist", devices=DEVICES, partition="rows")
    blocks = [block.flatten(1) for block in data.blocks]
    plain, watched = Training(blocks, data.labels), Training(blocks, data.labels)
    times: dict[str, float] = {"plain": 0.0, "recorded": 0.0}
    generator = torch.Generator().manual_seed(1)
    with tempfile.TemporaryDirectory() as folder:
        head = {"devices": DEVICES, "classes": 10, "records": len(data.labels)}
        with vflpriv.record(Path(folder) / "transcript", **head) as wire:
            wire.labels(data.labels)
            wire.watch(watched.bottoms)
            order = torch.randperm(len(data.labels), generator=generator)
            for round_ in range(options.rounds):
                records = order[round_ * BATCH % len(order) :][:BATCH]
                times["plain"] += cpu_seconds(plain.step, records)
                times["recorded"] += cpu_seconds(lambda ids: watched.step(wire.batch(ids)), records)
        size = sum(path.stat().st_size for path in Path(folder).rglob("*"))
    ratio = times["recorded"] / times["plain"]
    print(
        f"{options.rounds} rounds: {times['plain']:.2f} s, recorded {times['recorded']:.2f} s, {ratio:.2f} x; "
        f"{size / 1e6:.1f} MB"
    )


if __name__ == "__main__":
    main()
