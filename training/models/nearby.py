"""A model's outputs at its parameters and inputs and at points near them: what finite differences are made of.

Layout: outputs are records last, (R, width, B), and those of narrow layers lie so in memory (`affine`): products whose
last axis is the batch, and sums over classes before it, are several times faster than with a narrow last axis. What is
handed in and sent has the records' axis before the width, (R, B, width), as everywhere else; either is a transposed
view of the other.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from vflpriv.common.lazy import torch
from vflpriv.training.models.base import Mlp, Model, Parameters, affine, is_narrow, product
from vflpriv.training.models.directions import Direction, Shifted

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Change", "Nearby", "Shift", "nearby"]


class Shift(NamedTuple):
    """Parameters that move from w to w + step · u."""

    direction: Direction
    step: float

    def back(self) -> Shift:
        return Shift(self.direction, -self.step)


class Change(NamedTuple):
    """Inputs some of whose columns move by `by`, (R, B, columns)."""

    columns: slice
    by: Tensor

    def back(self) -> Change:
        return Change(self.columns, -self.by)

    def of(self, inputs: Tensor) -> Tensor:
        """The inputs where they have moved, in new memory."""
        moved = inputs.clone()
        moved[..., self.columns] += self.by
        return moved

    def product(self, weights: Tensor) -> Tensor:
        """(R, k, B) what it adds to the inputs' product with weights (R, n, k)."""
        return product(weights[:, self.columns], self.by.transpose(1, 2))


class Nearby(ABC):
    """The outputs of one model for one batch, at its parameters and inputs, and where either or both have moved.

    Along a direction that is not held the parameters themselves are moved, in place and back again, as in MeZO: a point
    needs no memory beside the model and its activations. What is then left of w is w up to rounding.
    """

    def __init__(self, model: Model, parameters: Parameters, inputs: Tensor) -> None:
        self._model, self._parameters, self._inputs = model, parameters, inputs

    @abstractmethod
    def here(self) -> Tensor:
        """Where nothing has moved; not to be overwritten."""

    def ahead(self, shift: Shift | None = None, change: Change | None = None) -> Tensor:
        """Where the parameters have moved by the shift, and the inputs by the change."""
        if shift is None or shift.direction.held:
            return self._ahead(shift, change)
        return self._visited((shift, change))[0]

    def either_side(self, shift: Shift | None = None, change: Change | None = None) -> tuple[Tensor, Tensor]:
        """Where both have moved ahead, and where both have moved back."""
        if shift is None or shift.direction.held:
            return self._either_side(shift, change)
        plus, minus = self._visited((shift, change), (shift.back(), None if change is None else change.back()))
        return plus, minus

    @abstractmethod
    def _ahead(self, shift: Shift | None, change: Change | None) -> Tensor: ...

    @abstractmethod
    def _either_side(self, shift: Shift | None, change: Change | None) -> tuple[Tensor, Tensor]: ...

    def _visited(self, *points: tuple[Shift, Change | None]) -> list[Tensor]:
        """Outputs at points along one direction, to each of which the parameters are moved in turn, and back."""
        outputs, at, direction = [], 0.0, points[0][0].direction
        for shift, change in points:
            direction.add_to(self._parameters, shift.step - at)
            at = shift.step
            inputs = self._inputs if change is None else change.of(self._inputs)
            outputs.append(self._model.apply_sparingly(self._parameters, inputs).transpose(1, 2))
        direction.add_to(self._parameters, -at)
        return outputs

    @abstractmethod
    def gradient(self, slope: Callable[[Tensor], Tensor]) -> dict[str, Tensor]:
        """The gradient by each parameter of a function of the outputs, whose gradient by them is `slope`."""


def nearby(model: Model, parameters: Parameters, inputs: Tensor) -> Nearby:
    """The outputs of a model for inputs (R, B, n), or (B, n) that all replicas share, and those near them."""
    # A model derived from Mlp may compute something else.
    if type(model) is Mlp:
        return _OfMlp(model, parameters, inputs)
    return _OfAny(model, parameters, inputs)


class _OfMlp(Nearby):
    """An MLP's first layer is linear in its weights and inputs: points around one share most of its products.

    (W ± λU)(x ± d) = (W x + λ U d) ± (W d + λ U x): the sums on either side are even ± odd. Where only a few columns
    change, d is narrow, and W x is computed once for all points. A direction enters as its normals, and is scaled where
    its product is.
    """

    _model: Mlp

    def __init__(self, model: Mlp, parameters: Parameters, inputs: Tensor) -> None:
        replicas = parameters["weight0"].shape[0]
        own = inputs if inputs.dim() == 3 else inputs.expand(replicas, *inputs.shape)
        super().__init__(model, parameters, own)
        self._rows = own.transpose(1, 2)
        self._here: Tensor | None = None

    def here(self) -> Tensor:
        return self._model.after_first(self._parameters, self._centre())

    def _ahead(self, shift: Shift | None, change: Change | None) -> Tensor:
        even, odd = self._even_and_odd(shift, change)
        return self._beyond(shift, odd.add_(even))

    def _either_side(self, shift: Shift | None, change: Change | None) -> tuple[Tensor, Tensor]:
        even, odd = self._even_and_odd(shift, change)
        back = None if shift is None else shift.back()
        # Minus first: plus takes the memory of odd.
        behind = self._beyond(back, even - odd)
        return self._beyond(shift, odd.add_(even)), behind

    def gradient(self, slope: Callable[[Tensor], Tensor]) -> dict[str, Tensor]:
        upstream, further = self._back_to_first(slope)
        by_weight = torch.bmm(upstream, self._rows.transpose(1, 2)).transpose(1, 2)
        return {"weight0": by_weight, "bias0": upstream.sum(2), **further}

    def _back_to_first(self, slope: Callable[[Tensor], Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        """The gradient by the first layer's sums, and by the parameters that follow it."""
        if len(self._parameters) == 2 and not self._model.activate:
            return slope(self._centre()), {}
        further = [name for name in self._parameters if name not in ("weight0", "bias0")]
        with torch.enable_grad():
            leaves = {name: self._parameters[name].detach().requires_grad_() for name in further}
            sums = self._centre().detach().requires_grad_()
            outputs = self._model.after_first(leaves, sums)
        upstream, *by_leaf = torch.autograd.grad(outputs, [sums, *leaves.values()], slope(outputs.detach()))
        return upstream, dict(zip(leaves, by_leaf, strict=True))

    def _centre(self) -> Tensor:
        """W x + b."""
        if self._here is None:
            self._here = affine(self._parameters["weight0"], self._parameters["bias0"], self._rows)
        return self._here

    def _even_and_odd(self, shift: Shift | None, change: Change | None) -> tuple[Tensor, Tensor]:
        """Of the first layer's sums; odd may be overwritten."""
        if shift is None and change is None:
            raise ValueError("Expected a shift of the parameters or a change of the inputs, found neither.")
        if shift is None:
            assert change is not None
            return self._centre(), change.product(self._parameters["weight0"])
        factor = shift.direction.factors(shift.step).reshape(-1, 1, 1)
        if change is None:
            slope = affine(shift.direction.normals("weight0"), shift.direction.normals("bias0"), self._rows)
            return self._centre(), slope.mul_(factor)
        centre, slope, across, second = self._four_products(shift.direction, change)
        return torch.addcmul(centre, second, factor), torch.addcmul(across, slope, factor)

    def _four_products(self, direction: Direction, change: Change) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """W x, U x, W d and U d, biases with x, and U without its scale."""
        own = self._parameters["weight0"], self._parameters["bias0"]
        normals = direction.normals("weight0"), direction.normals("bias0")
        if not is_narrow(own[0]):
            across, second = change.product(own[0]), change.product(normals[0])
            return self._centre(), affine(*normals, self._rows), across, second
        # Side by side, so that the rows are read once.
        weights, biases = (torch.cat(pair, dim=-1) for pair in zip(own, normals, strict=True))
        return *_halves(affine(weights, biases, self._rows)), *_halves(change.product(weights))

    def _beyond(self, shift: Shift | None, sums: Tensor) -> Tensor:
        """Outputs given the first layer's sums, which are overwritten."""
        parameters = self._parameters if shift is None else Shifted(self._parameters, *shift)
        return self._model.after_first(parameters, sums, overwrite=True)


class _OfAny(Nearby):
    """Any model, one pass for each point."""

    def here(self) -> Tensor:
        return self._outputs(self._parameters, self._inputs)

    def _ahead(self, shift: Shift | None, change: Change | None) -> Tensor:
        parameters = self._parameters if shift is None else Shifted(self._parameters, *shift)
        return self._outputs(parameters, self._inputs if change is None else change.of(self._inputs))

    def _either_side(self, shift: Shift | None, change: Change | None) -> tuple[Tensor, Tensor]:
        back = None if shift is None else shift.back(), None if change is None else change.back()
        return self._ahead(shift, change), self._ahead(*back)

    def gradient(self, slope: Callable[[Tensor], Tensor]) -> dict[str, Tensor]:
        with torch.enable_grad():
            leaves = {name: value.detach().requires_grad_() for name, value in self._parameters.items()}
            outputs = self._outputs(leaves, self._inputs)
        gradients = torch.autograd.grad(outputs, list(leaves.values()), slope(outputs.detach()))
        return dict(zip(leaves, gradients, strict=True))

    def _outputs(self, parameters: Parameters, inputs: Tensor) -> Tensor:
        return self._model.apply(parameters, inputs).transpose(1, 2)


def _halves(outputs: Tensor) -> tuple[Tensor, Tensor]:
    """(R, k, B) each, of (R, 2k, B)."""
    width = outputs.shape[1] // 2
    return outputs[:, :width], outputs[:, width:]
