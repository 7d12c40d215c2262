"""Systems for benchmarks, without a configuration file."""

from __future__ import annotations

from typing import Any

from vflpriv.config.models import Config, SystemConfig
from vflpriv.core.data import VerticalData
from vflpriv.core.systems import System
from vflpriv.run.systems import build_system

__all__ = ["BATCH", "system"]

BATCH = 64


def system(data: VerticalData, engine: str, *, seed: int = 0, **settings: Any) -> System:
    """One system on the CPU, its noise a number."""
    section = SystemConfig(key=engine, engine={"name": engine, **settings})
    return build_system(Config(seed=seed, device="cpu", system=(section,)), 0, data)
