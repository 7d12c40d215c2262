"""VAFL: vertical asynchronous federated learning (vafl.txt, Algorithm 1)."""

from __future__ import annotations

from vflpriv.registry import register
from vflpriv.training._vafl import VaflEngine
from vflpriv.training._vafl_ledger import VaflSettings

__all__ = ["Vafl"]


@register("engine")
class Vafl(VaflEngine):
    """One device a round, on a batch of its own; the other devices' embeddings are as old as their last visit.

    Theorem 6 claims μ = S·N_m√K/(cN) for a record's features before the server (noise std c, S = 2·`clip`, K rounds of
    the device). Each of these messages carries the record's own row, tagged with its id: nothing is averaged, and the
    rows alone give (S/c)·√n in n rounds of that record. Labels are not covered: gradients are exact.
    """

    name = "vafl"
    summary = "first-order, asynchronous; noised embeddings up, exact per-record gradients down"
    source = "vafl.txt Alg. 1"
    settings_type = VaflSettings
    asynchronous = True
