"""The memory that a replica is said to need is what a training takes, for MLPs, ResNet-18 and transformers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support import ENGINES, make_system
from tests.training.models import encoders
from tests.tree import ROOT
from vflpriv.core.data import VerticalData
from vflpriv.core.systems import System
from vflpriv.training import memory
from vflpriv.training.memory import replica_bytes

SHAPES: dict[str, tuple[tuple[int, ...], dict[str, Any]]] = {
    "mlp": ((784,), {"embedding": 64, "hidden": (256,), "batch_size": 16}),
    "resnet18": ((3, 16, 16), {"bottom": "resnet18", "hidden": (16,)}),
    "transformer": ((24,), {"bottom": "transformer"}),
}
REPLICAS = 4


def records(shape: tuple[int, ...], *, tokens: bool) -> VerticalData:
    generator = torch.Generator().manual_seed(0)
    draw = (
        (lambda n: torch.randint(500, (n, *shape), generator=generator))
        if tokens
        else (lambda n: torch.rand(n, *shape))
    )
    return VerticalData(
        name="made up",
        classes=2,
        blocks=(draw(24), draw(24)),
        labels=torch.arange(24) % 2,
        test_blocks=(draw(4), draw(4)),
        test_labels=torch.arange(4) % 2,
        vocabulary=500 if tokens else None,
    )


def large(kind: str, engine: str, folder: Path) -> System:
    """Models of which a few replicas outweigh everything else in a process."""
    shape, settings = SHAPES[kind]
    if kind == "transformer":
        encoders.WIDTH, encoders.INNER, encoders.WORDS, encoders.LAYERS = 64, 256, 500, 4
        encoders.checkpoint(folder, positions=32)
        settings = {**settings, "encoder": str(folder)}
    return make_system(engine, data=records(shape, tokens=kind == "transformer"), rounds=2, **settings)


CASES = [("mlp", "split-concat"), ("mlp", "dpzv-joint"), ("resnet18", "split-concat"), ("transformer", "split-concat")]

MEASURED = """
import sys
from pathlib import Path
from tests.training.test_memory import CASES, REPLICAS, large
from vflpriv.common.machine import single_threaded
from vflpriv.core.wire import Wire
def memory(name):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(name))
with single_threaded():
    for kind, engine in CASES:
        system = large(kind, engine, Path(sys.argv[1]))
        system.train([0]).run(Wire())
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
        before = memory("VmRSS:")
        system.train(range(REPLICAS)).run(Wire())
        print((memory("VmHWM:") - before) / REPLICAS)
"""


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], float]:
    """The bytes of one more replica by the peaks of a process whose allocator gives back what is freed."""
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, str(tmp_path_factory.mktemp("encoder"))],
        cwd=ROOT,
        env=os.environ | {"MALLOC_MMAP_THRESHOLD_": "65536"},
        capture_output=True,
        text=True,
        check=True,
    )
    return dict(zip(CASES, map(float, done.stdout.split()), strict=True))


@pytest.mark.skipif(sys.platform != "linux", reason="reads the peak memory of a process as Linux counts it")
@pytest.mark.parametrize(("kind", "engine"), CASES)
def test_it_is_what_a_training_takes(
    kind: str, engine: str, measured: dict[tuple[str, str], float], monkeypatch: Any, tmp_path: Path
) -> None:
    """Margin: what one training takes varies by a few per cent between runs, and a factor is asked."""
    for name in ("WIDTH", "INNER", "WORDS", "LAYERS"):
        monkeypatch.setattr(encoders, name, getattr(encoders, name))
    monkeypatch.setattr(memory, "_LITTLE", 0)
    estimate = replica_bytes(large(kind, engine, tmp_path))
    # A rehearsal draws random numbers by tensor operations, which take more memory than the C extension does.
    assert 1 / 1.5 < estimate / measured[kind, engine] < (2.5 if engine.startswith("dpzv") else 1.5)


@pytest.mark.parametrize("variant", ["dpzv-sgd", "split-sum", "vafl-weighted", "vimadmm", "linear-admm"])
def test_more_records_in_a_batch_need_more(variant: str, monkeypatch: Any) -> None:
    monkeypatch.setattr(memory, "_LITTLE", 0)
    few, many = (replica_bytes(make_system(variant, batch_size=size)) for size in (4, 40))
    assert few < many
    assert variant in ENGINES


@pytest.mark.parametrize("variant", ["dpzv-lean", "zoo-vfl", "vimadmm"])
def test_a_loose_bound_is_above_the_exact_number(variant: str) -> None:
    """Of all rounds in earnest: a rehearsal draws by tensor operations, which take more than the C extension does."""
    loose, system, cpu = replica_bytes(make_system(variant)), make_system(variant), torch.device("cpu")
    one, two = (memory._rehearsed(system, replicas, range(system.schedule.rounds), cpu) for replicas in (1, 2))
    assert two - one < loose <= 4 << 20


def test_what_needs_much_is_not_trained_to_find_that_out(monkeypatch: Any) -> None:
    rounds = []
    system = make_system("split-sum")
    kind = type("Watched", (system.engine,), {})
    kind.round = lambda self, round_, wire: rounds.append((self.torch_device.type, torch.empty(1 << 22)))
    assert replica_bytes(System(**{**vars(system), "engine": kind})) > 0
    assert {device for device, _ in rounds} == {"meta"}, "a round in earnest was stopped by its first allocation"


def test_an_engine_that_needs_values_is_rehearsed_in_earnest(monkeypatch: Any) -> None:
    system = make_system("split-sum")
    kind = type("Curious", (system.engine,), {})
    serve = kind.serve

    def curious(self: Any, round_: int, records: Any, uplinks: Any) -> Any:
        float(records.sum())
        return serve(self, round_, records, uplinks)

    kind.serve = curious
    assert replica_bytes(System(**{**vars(system), "engine": kind})) > 0
