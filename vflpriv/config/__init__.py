"""Configurations: what to audit, read from TOML or YAML, with errors that name the field and the value.

`models` has the sections and fields, `claims` the guarantees of a user's own, `loading` reads files, `errors` checks
settings against a model; the `*.toml` files are the embedded configurations.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vflpriv.common.lazy import lazy_names

if TYPE_CHECKING:
    from vflpriv.config.loading import load_config as load_config
    from vflpriv.config.models import Config as Config

__all__ = ["Config", "load_config"]

__getattr__, __dir__ = lazy_names(
    __name__, {"Config": "vflpriv.config.models", "load_config": "vflpriv.config.loading"}
)
