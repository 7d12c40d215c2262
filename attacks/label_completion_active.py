"""Active model completion (Fu et al. 2022): the device scales its steps up, so that its bottom learns more of them."""

from __future__ import annotations

from vflpriv.attacks.label_completion_passive import LabelCompletionPassive
from vflpriv.conducts import Conduct
from vflpriv.registry import register

__all__ = ["LabelCompletionActive"]


@register("attack")
class LabelCompletionActive(LabelCompletionPassive):
    """Passive completion by a device that trained with the malicious optimiser, γ = 1.

    The server then leans on that device's embedding more than on the others', and more of the labels moves into it.
    """

    name = "label_completion_active"
    summary = "completes the bottom of a device that scaled its own steps up"
    conduct = Conduct(name="malicious-optimiser", gain=1.0)
