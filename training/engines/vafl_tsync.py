"""VAFL, t-synchronous: the server waits for t devices (vafl.txt, Algorithm 2)."""

from __future__ import annotations

from vflpriv.common.registry import register
from vflpriv.training.engines.vafl import TsyncSettings, VaflEngine

__all__ = ["VaflTsync"]


@register("engine")
class VaflTsync(VaflEngine):
    """The first t devices to ring send embeddings of the same batch; t = M is the synchronous baseline.

    With `aggregation = "weighted"` and all devices it is the VAFL that vimadmm.txt §VI compares with.
    """

    name = "vafl-tsync"
    summary = "VAFL whose server waits for t devices; all of them is the synchronous baseline"
    source = "vafl.txt Alg. 2"
    settings_type = TsyncSettings
    asynchronous = True
