"""The malicious local optimiser of "Label Inference Attacks Against Vertical Federated Learning" (Fu et al. 2022).

A device enlarges its own steps, so that the joint model relies more on its bottom model, which then reveals more about
the labels. `Amplifier` follows the paper's formula, the others the authors' code, which does something else in PyTorch
2.0 than in the versions before it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from vflpriv.common.lazy import no_grad, torch
from vflpriv.core.attack import Conduct

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Amplifier", "CompoundingAmplifier", "MomentumLosingAmplifier", "amplifier_of"]

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
            value.sub_(self._added(name, step), alpha=self.rate)

    def _added(self, name: str, step: Tensor) -> Tensor:
        """What is added to this honest step of one parameter."""
        added = (self._ratio(name, step) - 1) * step
        self._last[name] = step
        return added

    def _ratio(self, name: str, step: Tensor) -> Tensor:
        """r; 1 in the first step."""
        if name not in self._last:
            return torch.ones_like(step)
        return (1 + self.gain * step / (self._last[name] + _GUARD)).clamp(1.0, _LARGEST_RATIO)


class CompoundingAmplifier(Amplifier):
    """The authors' code, in which gradient and momentum buffer share memory: r ⊙ v becomes the buffer, and v_last.

    v_t = m ṽ_{t-1} + g_t and ṽ_t = r_t ⊙ v_t, where m is the momentum. The honest optimiser, whose buffer is h, has
    made the step h_t = m h_{t-1} + g_t, so that v_t = h_t + m (ṽ_{t-1} - h_{t-1}): the excess of the last step is
    carried on: 1, 5.5, 12.4, 24.1 with m = 0.9 and gradients of one. A buffer that is large against the gradients is
    multiplied by m (1 + γ m) in each step. With γ = 1 and m above 0.618 that is more than one: whatever the gradients
    are, steps grow until they overflow, with m = 0.9 within 170 steps.
    """

    def __init__(self, gain: float, rate: float, momentum: float) -> None:
        super().__init__(gain, rate)
        self.momentum = momentum
        self._excess: dict[str, Tensor] = {}

    def _added(self, name: str, step: Tensor) -> Tensor:
        carried = self.momentum * self._excess[name] if name in self._excess else torch.zeros_like(step)
        v = step + carried
        self._excess[name] = carried + (self._ratio(name, v) - 1) * v
        self._last[name] = step + self._excess[name]
        return self._excess[name]


class MomentumLosingAmplifier(Amplifier):
    """The authors' code before PyTorch 2.0, for which it was written.

    `zero_grad` wrote zeros into the old gradient, and so into the buffer that shares its memory; the new gradient was
    then in both of them when m times the buffer was added. From the second step on v_t = 2 m g_t, without a memory of
    earlier gradients but v_last, which is the scaled step. Without momentum there is no buffer, and v_t = g_t.
    """

    def __init__(self, gain: float, rate: float, momentum: float) -> None:
        super().__init__(gain, rate)
        self.momentum = momentum
        self._honest: dict[str, Tensor] = {}

    def _added(self, name: str, step: Tensor) -> Tensor:
        v = step
        if self.momentum and name in self._honest:
            v = 2 * self.momentum * (step - self.momentum * self._honest[name])
        taken = self._ratio(name, v) * v
        self._honest[name], self._last[name] = step, taken
        return taken - step


def amplifier_of(conduct: Conduct, rate: float, momentum: float) -> Amplifier:
    """The optimiser of a device with this conduct, whose honest one has this learning rate and momentum."""
    if conduct.momentum == "compounding":
        return CompoundingAmplifier(conduct.gain, rate, momentum)
    if conduct.momentum == "lost":
        return MomentumLosingAmplifier(conduct.gain, rate, momentum)
    return Amplifier(conduct.gain, rate)
