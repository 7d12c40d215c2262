"""Model completion by a device whose malicious optimiser is that of its authors' code (Fu et al. 2022).

Fu et al., "Label Inference Attacks Against Vertical Federated Learning", USENIX Security 2022. In the authors' code
gradient and momentum buffer share memory, with another effect in PyTorch 2.0 than before; `label_completion_active`
follows the paper's formula.
"""

from __future__ import annotations

from vflpriv.attacks.label.trained.completion import LabelCompletionPassive
from vflpriv.common.registry import register
from vflpriv.core.attack import Conduct

__all__ = ["LabelCompletionCompounding", "LabelCompletionPublished"]


@register("attack")
class LabelCompletionCompounding(LabelCompletionPassive):
    """Passive completion by a device that trained with the authors' optimiser as it runs in PyTorch 2.0, γ = 1.

    Scaled steps enter the momentum, so that the scale compounds. With a momentum of 0.5 (published for Criteo) the
    attacker's bottom then holds more of the labels than by the formula, and the other devices' less
    (tests/attacks/label/trained/test_completion_code.py); with one of 0.9 (published for CIFAR-10) steps grow until all
    numbers overflow, and the attack finds nothing.
    """

    name = "label_completion_compounding"
    summary = "completes the bottom of a device whose scaled steps enter its momentum"
    conduct = Conduct(name="compounding-optimiser", gain=1.0, momentum="compounding")
    heavy = True


@register("attack")
class LabelCompletionPublished(LabelCompletionPassive):
    """Passive completion by a device that trained with the authors' optimiser as it ran in PyTorch 1.7, γ = 1.

    That is the version which the authors name, and in PyTorch 2.0 their code cannot train with a momentum of 0.9: the
    published figures, such as 84.8 % of the training labels of CIFAR-10 against 80.2 % by the passive attack, are of
    this optimiser. It has no momentum m, but steps that are 2 m times as long. At a momentum of 0.5 its bottom holds
    more of the labels than an honest device's, and less than by the formula
    (tests/attacks/label/trained/test_completion_code.py).
    """

    name = "label_completion_published"
    summary = "completes the bottom of a device that scaled its own steps up as the authors' code did"
    conduct = Conduct(name="published-optimiser", gain=1.0, momentum="lost")
    heavy = True
