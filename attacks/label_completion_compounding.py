"""Model completion by a device whose malicious optimiser is that of its authors' code (Fu et al. 2022)."""

from __future__ import annotations

from vflpriv.attacks.label_completion import LabelCompletionPassive
from vflpriv.common.registry import register
from vflpriv.core.attack import Conduct

__all__ = ["LabelCompletionCompounding"]


@register("attack")
class LabelCompletionCompounding(LabelCompletionPassive):
    """Passive completion by a device that trained with the malicious optimiser as published in code, γ = 1.

    In the authors' code of "Label Inference Attacks Against Vertical Federated Learning" (USENIX Security 2022) gradient
    and momentum buffer share memory, so that scaled steps enter the momentum and the scale compounds;
    `label_completion_active` follows the paper's formula, in which they do not. The paper's figures for the active
    attack, 84.8 % of the training labels of CIFAR-10 against 80.2 % of the passive one, were published with that code,
    written for PyTorch 1.7, in which it has no momentum instead (see `vflpriv.training.malicious`). Without
    normalisation in the bottom the compounding steps may make training diverge: the attack then does worse.
    """

    name = "label_completion_compounding"
    summary = "completes the bottom of a device whose scaled steps enter its momentum"
    conduct = Conduct(name="compounding-optimiser", gain=1.0, compounding=True)
    heavy = True
