"""Systems built without a configuration file, and attack results as lines of text, for the benchmarks."""

from __future__ import annotations

from typing import Any

from vflpriv.audits.scoring.labels import Leakage
from vflpriv.config.models import Config, SystemConfig
from vflpriv.core.data import VerticalData
from vflpriv.core.systems import System
from vflpriv.run.systems import build_system

__all__ = ["BATCH", "build", "leakage_line", "use_device"]

BATCH = 64
_CHOSEN = {"device": "cpu"}


def use_device(name: str) -> None:
    """Build all further systems on this device."""
    _CHOSEN["device"] = name


def build(data: VerticalData, engine: str, *, seed: int = 0, **settings: Any) -> System:
    """One system on the chosen device, with its noise resolved to a number."""
    section = SystemConfig(key=engine, engine={"name": engine, **settings})
    return build_system(Config(seed=seed, **_CHOSEN, system=(section,)), 0, data)


def leakage_line(result: Leakage) -> str:
    """Success, chance, the adversary without the protocol, and the leakage, in %; intervals are over seeds."""
    return (
        f"success {100 * result.success:.1f} [{100 * result.success_low:.1f}, {100 * result.success_high:.1f}], chance "
        f"{100 * result.chance:.1f}, no signal {100 * (result.blind or 0):.1f}, leakage {100 * result.leakage:+.1f} "
        f"[{100 * result.low:+.1f}, {100 * result.high:+.1f}]"
    )
