"""Audits the privacy of vertical federated learning: what is claimed, what can be accounted for, what is measured."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vflpriv.common.lazy import lazy_names

if TYPE_CHECKING:
    from vflpriv.api import account as account
    from vflpriv.api import attack as attack
    from vflpriv.api import audit as audit
    from vflpriv.api import frontier as frontier
    from vflpriv.api import reproduce as reproduce
    from vflpriv.api import train as train
    from vflpriv.core.canaries import plant as plant
    from vflpriv.core.canaries import plant_members as plant_members
    from vflpriv.recording.opaque import opaque as opaque
    from vflpriv.recording.recorder import record as record
    from vflpriv.recording.recorder import watch as watch
    from vflpriv.recording.sampling import sample as sample
    from vflpriv.recording.transcripts import read_transcript as read_transcript
    from vflpriv.report.loggers import log as log
    from vflpriv.run.traced.block import trace as trace

__all__ = [
    "__version__",
    "account",
    "attack",
    "audit",
    "frontier",
    "log",
    "opaque",
    "plant",
    "plant_members",
    "read_transcript",
    "record",
    "reproduce",
    "sample",
    "trace",
    "train",
    "watch",
]

__version__ = "0.2.0"

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "account": "vflpriv.api",
        "attack": "vflpriv.api",
        "audit": "vflpriv.api",
        "frontier": "vflpriv.api",
        "log": "vflpriv.report.loggers",
        "opaque": "vflpriv.recording.opaque",
        "plant": "vflpriv.core.canaries",
        "plant_members": "vflpriv.core.canaries",
        "read_transcript": "vflpriv.recording.transcripts",
        "record": "vflpriv.recording.recorder",
        "reproduce": "vflpriv.api",
        "sample": "vflpriv.recording.sampling",
        "trace": "vflpriv.run.traced.block",
        "train": "vflpriv.api",
        "watch": "vflpriv.recording.recorder",
    },
)
