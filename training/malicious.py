"""The malicious local optimiser of "Label Inference Attacks Against Vertical Federated Learning" (Fu et al. 2022).

A device enlarges its own steps, so that the joint model relies more on its bottom model, which then reveals more about
the labels.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from vflpriv.common.lazy import no_grad

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Amplifier"]

_LARGEST_RATIO = 5.0
_GUARD = 1e-7


class Amplifier:
    """Replaces each parameter's step v by r ⊙ v, r = clamp(1 + γ v/(v_last + 1e-7), 1, 5), from the second step on.

    v is the difference of the parameters before and after an honest step, divided by the learning rate, whatever
    optimiser made that step. The momentum of the honest optimiser therefore stays free of r; otherwise the r of one
    step would be part of the next v, and compound.
    """

    def __init__(self, gain: float, rate: float) -> None:
        self.gain, self.rate = gain, rate
        self._before: dict[str, Tensor] = {}
        self._last: dict[str, Tensor] = {}

    def before(self, parameters: Mapping[str, Tensor]) -> None:
        """Store the parameters as they are before an honest step."""
        self._before = {name: value.detach().clone() for name, value in parameters.items()}

    @no_grad
    def after(self, parameters: Mapping[str, Tensor]) -> None:
        """Enlarge, in place, the honest step that was made since `before`."""
        for name, value in parameters.items():
            step = (self._before[name] - value) / self.rate
            if name in self._last:
                ratio = (1 + self.gain * step / (self._last[name] + _GUARD)).clamp(1.0, _LARGEST_RATIO)
                value.sub_((ratio - 1) * step, alpha=self.rate)
            self._last[name] = step
