"""Training engines, one a file, and the noise mechanisms they are given.

The names below are for engines of other packages, which are found by the entry point `vflpriv.engines`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vflpriv.training._bank import Bank as Bank
    from vflpriv.training._base import Engine as Engine
    from vflpriv.training._mechanisms import NoNoise as NoNoise
    from vflpriv.training._payload import Payload as Payload
    from vflpriv.training._settings import EngineSettings as EngineSettings

__all__ = ["Bank", "Engine", "EngineSettings", "NoNoise", "Payload"]

_FROM = {
    "Bank": "_bank",
    "Engine": "_base",
    "EngineSettings": "_settings",
    "NoNoise": "_mechanisms",
    "Payload": "_payload",
}


def __getattr__(name: str) -> Any:
    """Imported when they are first used."""
    if name not in _FROM:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_FROM[name]}"), name)
