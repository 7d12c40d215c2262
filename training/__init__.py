"""Training engines, the noise mechanisms they are given, and the models they train.

The names below are for engines of other packages, which are found by the entry point `vflpriv.engines`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vflpriv.core.wire import Payload as Payload
    from vflpriv.training.engine import Engine as Engine
    from vflpriv.training.mechanisms.base import NoNoise as NoNoise
    from vflpriv.training.models.bank import Bank as Bank
    from vflpriv.training.settings import EngineSettings as EngineSettings

__all__ = ["Bank", "Engine", "EngineSettings", "NoNoise", "Payload"]

_FROM = {
    "Bank": "vflpriv.training.models.bank",
    "Engine": "vflpriv.training.engine",
    "EngineSettings": "vflpriv.training.settings",
    "NoNoise": "vflpriv.training.mechanisms.base",
    "Payload": "vflpriv.training.engine",
}


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> Any:
    """Names are imported when they are first used, so that importing the package costs nothing."""
    if name not in _FROM:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_FROM[name]), name)
