"""`Watch`, a callback for Hugging Face's Trainer that records a training."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__all__ = ["Watch"]

if TYPE_CHECKING:
    Watch: Any


def __getattr__(name: str) -> Any:
    if name != "Watch":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from vflpriv.recording.adapters.huggingface import watch_class

    return globals().setdefault(name, watch_class())
