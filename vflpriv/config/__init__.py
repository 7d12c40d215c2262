"""Configurations: what to audit, read from TOML or YAML, with errors that name the field and the value.

`models` has the sections and fields, `claims` the guarantees of a user's own, `loading` reads files, `errors` checks
settings against a model; the `*.toml` files are the embedded configurations.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vflpriv.config.loading import load_config as load_config
    from vflpriv.config.models import Config as Config

__all__ = ["Config", "load_config"]

_FROM = {
    "Config": "vflpriv.config.models",
    "load_config": "vflpriv.config.loading",
}


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> Any:
    """Names are imported when they are first used, so that importing the package costs nothing."""
    if name not in _FROM:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_FROM[name]), name)
