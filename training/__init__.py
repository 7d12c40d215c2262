"""Training engines, the noise mechanisms they are given, and the models they train.

The names below are for engines of other packages, which are found by the entry point `vflpriv.engines`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vflpriv.common.lazy import lazy_names

if TYPE_CHECKING:
    from vflpriv.core.wire import Payload as Payload
    from vflpriv.training.engine import Engine as Engine
    from vflpriv.training.mechanisms.base import NoNoise as NoNoise
    from vflpriv.training.models.bank import Bank as Bank
    from vflpriv.training.models.layers import Sgd as Sgd
    from vflpriv.training.models.passes import constant as constant
    from vflpriv.training.settings import EngineSettings as EngineSettings

__all__ = ["Bank", "Engine", "EngineSettings", "NoNoise", "Payload", "Sgd", "constant"]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "Bank": "vflpriv.training.models.bank",
        "Engine": "vflpriv.training.engine",
        "EngineSettings": "vflpriv.training.settings",
        "NoNoise": "vflpriv.training.mechanisms.base",
        "Payload": "vflpriv.core.wire",
        "Sgd": "vflpriv.training.models.layers",
        "constant": "vflpriv.training.models.passes",
    },
)
