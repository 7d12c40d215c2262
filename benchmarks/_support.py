"""Systems built without a configuration file, the device and the clock, and attack results as lines of text."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from typing import Any

import torch

from vflpriv.audits.scoring.score import Score
from vflpriv.common.devices import check_device, pick_device
from vflpriv.config.models import Config, SystemConfig
from vflpriv.core.data import VerticalData
from vflpriv.core.systems import System
from vflpriv.errors import VflprivError
from vflpriv.run.systems import build_system

__all__ = ["BATCH", "arguments", "build", "leakage_line", "one_line", "seconds", "synchronise", "torch_device"]

BATCH = 64
_chosen = ["cpu"]


def arguments(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """The parsed arguments of a benchmark, `--device` among them, on which `build` puts its systems from now on."""
    parser.add_argument("--device", default="cpu", help="cpu, cuda, mps or auto")
    parsed = parser.parse_args()
    check_device(parsed.device)
    _chosen[0] = parsed.device
    return parsed


def one_line(main: Callable[[], object]) -> None:
    """Run a benchmark; what it lacks, such as a data set, is one line and exit code 2, as for the program."""
    try:
        main()
    except VflprivError as error:
        print(error, file=sys.stderr)
        raise SystemExit(error.exit_code) from None


def torch_device() -> torch.device:
    """The device that was chosen on the command line."""
    return pick_device(_chosen[0])


def build(data: VerticalData, engine: str, *, seed: int = 0, device: str | None = None, **settings: Any) -> System:
    """One system on the chosen device, with its noise resolved to a number."""
    section = SystemConfig(key=engine, engine={"name": engine, **settings})
    return build_system(Config(seed=seed, device=device or _chosen[0], system=(section,)), 0, data)


def seconds(work: Callable[[], object]) -> float:
    """CPU time of this thread for some work; on an accelerator elapsed time, with the device idle before and after."""
    device = torch_device()
    clock = time.thread_time if device.type == "cpu" else time.perf_counter
    synchronise(device)
    start = clock()
    work()
    synchronise(device)
    return clock() - start


def synchronise(device: torch.device) -> None:
    """Wait until the device has nothing to do."""
    if device.type != "cpu":
        torch.accelerator.synchronize(device)


def leakage_line(result: Score) -> str:
    """Success, chance, the adversary without the protocol, and the leakage, in %; intervals are over seeds."""
    return (
        f"success {100 * result.value:.1f} [{100 * result.low:.1f}, {100 * result.high:.1f}], chance "
        f"{100 * result.chance:.1f}, no signal {100 * (result.blind or 0):.1f}, leakage "
        f"{100 * result.leakage.value:+.1f} [{100 * result.leakage.low:+.1f}, {100 * result.leakage.high:+.1f}]"
    )
