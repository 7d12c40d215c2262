"""What recording a training costs, and what auditing the recording costs: MNIST, 7 devices, width 64, batches of 256.

The training is split learning in plain PyTorch, watched by hooks. Rounds with and without recording alternate in one
process, on copies of the same models, so that other load on the machine affects both alike. Times are CPU seconds; the
thread that writes counts towards the recorded rounds, whenever it works. The recording of one epoch is then audited by
the command line in a process of its own: all attacks that need no name, the noise tests of both kinds of messages, and
the coins of 200 canaries. At last 100 epochs are recorded with a sample of 2000 records, and audited. These have random
values in the place of a training's, since a transcript is as large whatever is in it.

    python benchmarks/recording.py            # about 5 minutes
    python benchmarks/recording.py --quick    # seconds: 8 rounds of a small part of the data
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from _support import one_line
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import vflpriv
from vflpriv.data import loading as datasets

__all__: list[str] = []

DEVICES, WIDTH, BATCH, SAMPLE = 7, 64, 256, 2000
MOST_RATIO, MOST_SECONDS, MOST_MEMORY, MOST_BYTES, MOST_FIXED = 1.3, 120.0, 1e9, 2e9, 4.0
_LEDGER = """
[[release]]
kind = "embeddings"
noise = "gaussian"
scale = 1e-6
independent_of = ["label"]

[[release]]
kind = "embedding-gradient"
noise = "gaussian"
scale = 1e-9

[[claim]]
key = "labels"
statement = "no device learns a label"
unit = "label"
view = "device"
epsilon = 1.0
delta = 1e-5
"""


_AUDIT = """
import atexit, re, sys
from pathlib import Path
from vflpriv.cli.main import main
# The peak of this program alone: that of a child's resource usage includes the parent's before the program began.
peak = lambda: re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]
atexit.register(lambda: print(peak(), file=sys.stderr))
main()
"""


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


@dataclass(frozen=True)
class Audit:
    """What the audit of a recording cost: CPU and wall seconds, and the most memory in bytes."""

    cpu: float
    wall: float
    memory: float


def cpu_seconds(work: Callable[[], object]) -> float:
    """The CPU seconds of this thread that a piece of work takes."""
    start = time.thread_time()
    work()
    return time.thread_time() - start


def record_epoch(folder: Path, blocks: list[Tensor], labels: Tensor) -> tuple[float, float]:
    """Train one epoch twice, once recorded; the CPU seconds of both, in this order: plain, recorded."""
    trained_on, canaries = vflpriv.plant(labels, classes=10, canaries=min(200, len(labels) // 4), seed=1)
    plain, watched = Training(blocks, trained_on), Training(blocks, trained_on)
    alone = recorded = 0.0
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(1))
    others = time.process_time() - time.thread_time()
    with vflpriv.record(folder, devices=DEVICES, classes=10, records=len(labels)) as wire:
        wire.labels(trained_on, canaries=canaries)
        wire.watch(watched.bottoms)
        for records in order.split(BATCH):
            alone += cpu_seconds(lambda ids=records: plain.step(ids))
            recorded += cpu_seconds(lambda ids=records: watched.step(wire.batch(ids)))
        recorded += cpu_seconds(wire.finish)
    # All that other threads have done is writing: torch computes in this one.
    return alone, recorded + time.process_time() - time.thread_time() - others


def record_sample(folder: Path, labels: Tensor, epochs: int) -> None:
    """Messages of the shapes of so many epochs, with a sample of the records; values are random."""
    generator, trained_on = torch.Generator().manual_seed(2), labels
    values = torch.randn(64, BATCH, WIDTH, generator=generator)
    keep = vflpriv.sample(records=SAMPLE)
    with vflpriv.record(folder, devices=DEVICES, classes=10, records=len(labels), keep=keep) as wire:
        wire.labels(trained_on)
        round_ = 0
        for _ in range(epochs):
            for records in torch.randperm(len(labels), generator=generator).split(BATCH):
                for m in range(DEVICES):
                    sent, received = (values[(round_ * 14 + 2 * m + k) % 64][: len(records)] for k in range(2))
                    wire.up(round_, m, "embeddings", {"embedding": sent}, records)
                    wire.down(round_, m, "embedding-gradient", {"gradient": received}, records)
                round_ += 1


def record_little(folder: Path) -> None:
    """A recording of a few rounds: what its audit costs is what every audit of a recording costs."""
    labels = torch.arange(64) % 10
    with vflpriv.record(folder, devices=2, classes=10, records=64, labels=labels) as wire:
        for round_ in range(4):
            records = torch.arange(16) + 16 * round_
            for m in range(2):
                wire.up(round_, m, "embeddings", {"embedding": torch.randn(16, 4)}, records)
                wire.down(round_, m, "embedding-gradient", {"gradient": torch.randn(16, 4)}, records)


def audited(folder: Path) -> Audit:
    """Audit a recording from the command line."""
    ledger = folder.parent / "ledger.toml"
    ledger.write_text(_LEDGER, encoding="utf-8")
    out = folder.with_name(f"{folder.name}-report")
    command = [sys.executable, "-c", _AUDIT, "audit", "--transcript", str(folder), "--ledger", str(ledger)]
    start, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([*command, "--out", str(out), "--quiet"], capture_output=True, text=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode not in (0, 1, 3):
        raise SystemExit(f"the audit failed with exit code {done.returncode}: {done.stderr}")
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Audit(cpu, time.monotonic() - start, 1024.0 * int(done.stderr.splitlines()[-1]))


def size(folder: Path) -> int:
    """The bytes of all files in a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def line(what: str, value: float, most: float | None = None, unit: str = "", scale: float = 1.0) -> str:
    """One measurement, with its bar beside it if there is one."""
    text = f"{what:52} {value / scale:8.2f} {unit}"
    return text if most is None else f"{text:66} at most {most / scale:g}: {'yes' if value <= most else 'NO'}"


def audit_lines(audit: Audit, *, bars: bool) -> list[str]:
    return [
        line("  audit, CPU time", audit.cpu, unit="s"),
        line("  audit, wall time", audit.wall, MOST_SECONDS if bars else None, "s"),
        line("  audit, peak memory", audit.memory, MOST_MEMORY, "MB", 1e6),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a few rounds, to see that it runs")
    options = parser.parse_args()
    torch.set_num_threads(1)
    data = datasets.load("mnist", devices=DEVICES, partition="rows")
    records, epochs = (8 * BATCH, 2) if options.quick else (len(data.labels), 100)
    blocks, labels = [block.flatten(1)[:records] for block in data.blocks], data.labels[:records]
    with tempfile.TemporaryDirectory() as folder:
        little, whole, sampled = (Path(folder) / name for name in ("little", "epoch", "sampled"))
        record_little(little)
        print(line("Audit of a few rounds, CPU time", audited(little).cpu, MOST_FIXED, "s"), flush=True)
        alone, recorded = record_epoch(whole, blocks, labels)
        print(f"One epoch: {records} records, {DEVICES} devices, width {WIDTH}, batches of {BATCH}", flush=True)
        print(line("  CPU time of the training, without recording", alone, unit="s"))
        print(line("  the same recorded, as a multiple", recorded / alone, MOST_RATIO, "x"))
        print(line("  on disk", size(whole), unit="MB", scale=1e6), flush=True)
        print("\n".join(audit_lines(audited(whole), bars=True)), flush=True)
        record_sample(sampled, labels, epochs)
        print(f"{epochs} epochs, rows of {SAMPLE} records kept, ids of all")
        print(line("  on disk", size(sampled), MOST_BYTES, "MB", 1e6), flush=True)
        print("\n".join(audit_lines(audited(sampled), bars=False)))


if __name__ == "__main__":
    one_line(main)
