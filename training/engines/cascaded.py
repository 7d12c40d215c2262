"""VFL-Cascaded: zeroth-order devices below a first-order server (vfl-cascaded.txt, Algorithm 1)."""

from __future__ import annotations

from vflpriv.common.registry import register
from vflpriv.training.engines.zoo_vfl import ZooVfl

__all__ = ["Cascaded"]


@register("engine")
class Cascaded(ZooVfl):
    """ZOO-VFL whose server does a first-order step on its own loss (eq. 4), after the losses were computed.

    What passes over the wire is what ZOO-VFL sends; so are the ledger and the absence of an ε in Theorem V.1.
    """

    name = "cascaded"
    summary = "zeroth-order devices, first-order server, asynchronous; two exact losses on the downlink"
    source = "vfl-cascaded.txt Alg. 1"
    server_update = "sgd"
