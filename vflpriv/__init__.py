"""Audits the privacy of vertical federated learning: what is claimed, what can be accounted for, what is measured."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vflpriv.library import account as account
    from vflpriv.library import attack as attack
    from vflpriv.library import audit as audit
    from vflpriv.library import train as train
    from vflpriv.planting import plant as plant
    from vflpriv.recorder import record as record
    from vflpriv.transcripts import read_transcript as read_transcript

__all__ = ["__version__", "account", "attack", "audit", "plant", "read_transcript", "record", "train"]

__version__ = "0.1.0"

_FROM = {
    **dict.fromkeys(("account", "attack", "audit", "train"), "vflpriv.library"),
    "plant": "vflpriv.planting",
    "read_transcript": "vflpriv.transcripts",
    "record": "vflpriv.recorder",
}


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> Any:
    """Names that bring torch along are imported when they are first used."""
    if name not in _FROM:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_FROM[name]), name)
