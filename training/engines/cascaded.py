"""VFL-Cascaded: zeroth-order devices below a first-order server.

"Secure and Fast Asynchronous Vertical Federated Learning via Cascaded Hybrid Optimization" (Wang et al.), Algorithm 1.
"""

from __future__ import annotations

from vflpriv.common.registry import register
from vflpriv.training.engines.zoo_vfl import OneSidedEngine, ZooVfl

__all__ = ["Cascaded"]


@register("engine")
class Cascaded(ZooVfl):
    """ZOO-VFL whose server takes a first-order step on its own loss (eq. 4), after the losses were computed.

    Messages and ledger are those of ZOO-VFL, as are the claims about attacks.
    """

    name = "cascaded"
    summary = "zeroth-order devices, first-order server, asynchronous; two exact losses on the downlink"
    source = "VFL-Cascaded, Algorithm 1"
    server_update = "sgd"

    # DPZV gives its baselines VAFL's noise, and this one is not among them.
    published_noise = staticmethod(OneSidedEngine.published_noise)
    claims = staticmethod(OneSidedEngine.claims)
