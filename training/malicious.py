"""The malicious optimiser of Fu et al. 2022: a device scales its own steps up, so that its model matters more."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

__all__ = ["Amplifier"]

_LARGEST = 5.0
_GUARD = 1e-7


class Amplifier:
    """Makes the step v of every parameter r ⊙ v, r = clamp(1 + γ v/(v_last + 1e-7), 1, 5); the first stays as it is.

    It reads v off the parameters before and after an honest step, whatever optimiser made it. So momentum, which is the
    honest optimiser's, never sees the scale: where it does, the scale of one step enters the next and compounds.
    """

    def __init__(self, gain: float, rate: float) -> None:
        self.gain, self.rate = gain, rate
        self._before: dict[str, Tensor] = {}
        self._last: dict[str, Tensor] = {}

    def before(self, parameters: Mapping[str, Tensor]) -> None:
        """Note where an honest step starts."""
        self._before = {name: value.detach().clone() for name, value in parameters.items()}

    @torch.no_grad()
    def after(self, parameters: Mapping[str, Tensor]) -> None:
        """Lengthen the step that was made."""
        for name, value in parameters.items():
            step = (self._before[name] - value) / self.rate
            if name in self._last:
                ratio = (1 + self.gain * step / (self._last[name] + _GUARD)).clamp(1.0, _LARGEST)
                value.sub_((ratio - 1) * step, alpha=self.rate)
            self._last[name] = step
