"""What finite differences are made of: random directions, a model's outputs at points along them, the step along one.

A direction is over all parameters of a party at once, and is regenerated from a seed. Equations of VFL-Cascaded are
those of "Secure and Fast Asynchronous Vertical Federated Learning via Cascaded Hybrid Optimization" (Wang et al.).

Layout: outputs are records last, (R, width, B), and those of narrow layers lie so in memory (`affine`): products whose
last axis is the batch, and sums over classes before it, are several times faster than with a narrow last axis. What is
handed in and sent has the records' axis before the width, (R, B, width), as everywhere else; either is a transposed
view of the other.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import EllipsisType
from typing import TYPE_CHECKING, Literal, NamedTuple

from vflpriv.common.lazy import gradients_along, torch
from vflpriv.common.random import Stream
from vflpriv.training.models.base import Mlp, Model, Parameters, affine, is_narrow, product, size_of

if TYPE_CHECKING:
    from torch import Tensor

__all__ = [
    "Change",
    "Direction",
    "Directions",
    "Law",
    "Nearby",
    "Rows",
    "Shift",
    "Shifted",
    "Velocity",
    "move_along",
    "nearby",
    "steps_remembered",
]

Law = Literal["root-sphere", "sphere", "gaussian"]
"""The distribution of a direction: uniform on the sphere of radius √d, on the unit sphere, or standard normal."""

Rows = slice | EllipsisType
"""Some rows of a parameter's first axis, or all of it."""

_PREFETCH = 1 << 18
"""Normals that are drawn ahead, at most, for all replicas together."""
_PREFETCH_ROUNDS = 64
_PIECE = 1 << 16
"""Normals of one replica, about, that are in memory at once where a direction is not held."""
_NEGLIGIBLE = 2.0**-24
"""The share of a sum below which float32 rounds away what is left out of it."""


class _Layout:
    """The place of each parameter in a party's random sequence: each starts at a block of four numbers."""

    def __init__(self, model: Model) -> None:
        self.shapes = model.shapes
        self.size = size_of(model)
        self.first: dict[str, int] = {}
        self.places: dict[str, slice] = {}
        self._gaps: list[slice] = []
        blocks = 0
        for name, shape in model.shapes.items():
            begin, count = 4 * blocks, math.prod(shape)
            self.first[name], self.places[name] = blocks, slice(begin, begin + count)
            blocks += -(-count // 4)
            if 4 * blocks > begin + count:
                self._gaps.append(slice(begin + count, 4 * blocks))
        self.length = 4 * blocks

    def gaps_up_to(self, length: int) -> list[slice]:
        """Those of the first numbers of the sequence that belong to no parameter."""
        return [*self._gaps, slice(self.length, length)] if length > self.length else self._gaps


class Direction(Mapping[str, "Tensor"]):
    """One direction u per replica: √d · g/‖g‖, g/‖g‖ or g, with g standard normal over all d parameters of a party.

    Indexing by a parameter's name gives its part of u, (R, *shape). `factor` is φ(d) of VFL-Cascaded eq. (2), for which
    E[φ(d) u uᵀ] is the identity: d on the unit sphere, else 1.

    With `flat` (R, length) the normals are kept in memory; without it they are drawn again whenever they are needed (as
    in MeZO, Malladi et al. 2023), and in pieces, so that a step needs next to no memory beside the model. `norms` are
    the (R,) norms of g where they are known.
    """

    def __init__(
        self,
        layout: _Layout,
        stream: Stream,
        path: tuple[int, int],
        flat: Tensor | None,
        law: Law,
        norms: Tensor | None = None,
    ) -> None:
        self._layout, self._stream, self._path, self._flat = layout, stream, path, flat
        self.factor = float(layout.size) if law == "sphere" else 1.0
        self._scale: Tensor | None = None
        if law != "gaussian":
            radius = 1.0 if law == "sphere" else math.sqrt(layout.size)
            self._scale = radius / (self._norms() if norms is None else norms)

    def _norms(self) -> Tensor:
        pieces = (self.normals(name, rows) for name in self for rows in self.rows(name))
        parts = [torch.linalg.vector_norm(piece.flatten(1), dim=1) for piece in pieces]
        return torch.stack(parts).square().sum(0).sqrt()

    def rows(self, name: str) -> Iterator[Rows]:
        """Places along a parameter's first axis that are few enough to be drawn at once: all of them if held."""
        if self.held:
            yield ...
            return
        rows, *width = self._layout.shapes[name]
        # The same pieces however many replicas there are: sums over them must not depend on that. Four rows are whole
        # blocks of the random sequence.
        together = max(4, _PIECE // max(1, math.prod(width)) // 4 * 4)
        for begin in range(0, rows, together):
            yield slice(begin, min(begin + together, rows))

    def normals(self, name: str, rows: Rows = ...) -> Tensor:
        """A parameter's part of g, (R, *shape), or those of its rows: to be overwritten only if it is not held."""
        shape = self._layout.shapes[name]
        if self._flat is not None:
            return self._flat[:, self._layout.places[name]].reshape(-1, *shape)[:, rows]
        first = self._layout.first[name]
        if isinstance(rows, slice):
            first += rows.start * math.prod(shape[1:]) // 4
            shape = (rows.stop - rows.start, *shape[1:])
        return self._stream.normal(math.prod(shape), *self._path, first=first).reshape(-1, *shape)

    def add_to(self, parameters: Mapping[str, Tensor], scalar: Tensor | float, times: float = 1.0) -> None:
        """w += times · scalar · u, in place; there and back again is the same up to rounding, not in every bit."""
        factors = self.factors(scalar)
        for name, value in parameters.items():
            for rows in self.rows(name):
                piece = self.normals(name, rows)
                value[:, rows].addcmul_(piece, _beside(factors, piece), value=times)

    def factors(self, scalar: Tensor | float) -> Tensor:
        """(R,) what g is multiplied by in scalar · u."""
        if self._scale is not None:
            return self._scale * scalar
        keys = self._stream.keys
        return scalar if isinstance(scalar, torch.Tensor) else torch.full((len(keys),), scalar, device=keys.device)

    def __getitem__(self, name: str) -> Tensor:
        part = self.normals(name)
        if self._scale is not None:
            scale = _beside(self._scale, part)
            part = part * scale if self.held else part.mul_(scale)
        return part

    @property
    def held(self) -> bool:
        """Whether the normals are kept in memory; if not, what indexing returns is new and may be overwritten."""
        return self._flat is not None

    def __iter__(self) -> Iterator[str]:
        return iter(self._layout.shapes)

    def __len__(self) -> int:
        return len(self._layout.shapes)


class Shifted(Mapping[str, "Tensor"]):
    """parameters + step · direction as a mapping; a parameter is computed, in new memory, when it is indexed."""

    def __init__(self, parameters: Mapping[str, Tensor], direction: Direction, step: float) -> None:
        self._parameters, self._direction, self._step = parameters, direction, step

    def __getitem__(self, name: str) -> Tensor:
        value, part = self._parameters[name], self._direction.normals(name)
        factors = _beside(self._direction.factors(self._step), part)
        return torch.addcmul(value, part, factors) if self._direction.held else part.mul_(factors).add_(value)

    def __iter__(self) -> Iterator[str]:
        return iter(self._parameters)

    def __len__(self) -> int:
        return len(self._parameters)


class Directions:
    """The directions of all parties and rounds, a pure function of (seed, replica, party, round).

    `models` are those of the devices and, last, of the server. With `lean` normals are drawn whenever they are needed,
    and nothing is kept; otherwise those of a few rounds are drawn together and kept. The numbers are the same. `turns`
    is the one active device of each round, None if several are active.
    """

    def __init__(
        self,
        stream: Stream,
        models: Sequence[Model],
        turns: Sequence[int] | None,
        *,
        lean: bool = False,
        law: Law = "root-sphere",
    ) -> None:
        self._stream, self._lean, self._law = stream, lean, law
        self._layouts = [_Layout(model) for model in models]
        self._turns = turns or ()
        longest = max(layout.length for layout in self._layouts)
        room = _PREFETCH // max(1, longest * len(stream.keys))
        self._chunk = max(1, min(_PREFETCH_ROUNDS, room)) if turns else 1
        self._held: dict[bool, tuple[int, Tensor, Tensor]] = {}

    def at(self, round_: int, party: int) -> Direction:
        """The direction of one party in one round; the server's number is the number of devices."""
        layout, path = self._layouts[party], (round_, party)
        if self._lean:
            return Direction(layout, self._stream, path, None, self._law)
        if self._chunk == 1:
            return Direction(layout, self._stream, path, self._stream.normal(layout.length, *path), self._law)
        begin, normals, norms = self._several(round_, party)
        place = round_ - begin
        return Direction(layout, self._stream, path, normals[:, place], self._law, norms[:, place])

    def _several(self, round_: int, party: int) -> tuple[int, Tensor, Tensor]:
        """The first of a few rounds, all normals of a party in them, (R, rounds, length or more), and their norms."""
        server = party == len(self._layouts) - 1
        begin = round_ - round_ % self._chunk
        if server not in self._held or self._held[server][0] != begin:
            rounds = range(begin, min(begin + self._chunk, len(self._turns)))
            parties = [party if server else self._turns[t] for t in rounds]
            length = max(self._layouts[p].length for p in parties)
            numbers = torch.tensor([list(rounds), parties], dtype=torch.int64).to(self._stream.keys.device)
            normals = self._stream.normal(length, numbers[0], numbers[1])
            for place, p in enumerate(parties):
                for gap in self._layouts[p].gaps_up_to(length):
                    normals[:, place, gap] = 0.0
            self._held[server] = (begin, normals, torch.linalg.vector_norm(normals, dim=-1))
        return self._held[server]


@dataclass(frozen=True, eq=False, kw_only=True)
class Velocity:
    """What heavy-ball momentum remembers of one party's steps.

    `buffers` are tensors of the parameters' sizes. Where directions are not held there are none: the velocity is the
    sum of the party's past `steps`, each a direction and its (R,) factors, and the directions are drawn again.
    """

    buffers: dict[str, Tensor] = field(default_factory=dict)
    steps: deque[tuple[Direction, Tensor]] = field(default_factory=deque)


def steps_remembered(momentum: float) -> int:
    """The number K of last steps beyond which momentumᴷ is less than the rounding of float32.

    >>> steps_remembered(0.0), steps_remembered(0.9)
    (1, 158)
    """
    return max(1, math.ceil(math.log(_NEGLIGIBLE) / math.log(momentum))) if momentum else 1


def move_along(
    parameters: Mapping[str, Tensor],
    direction: Direction,
    scalar: Tensor,
    *,
    rate: float,
    momentum: float,
    velocity: Velocity,
) -> None:
    """w -= rate · scalar · u in place, with heavy-ball momentum if it is not zero; `scalar` is (R,)."""
    if momentum and not direction.held:
        velocity.steps.appendleft((direction, direction.factors(scalar)))
        if len(velocity.steps) > steps_remembered(momentum):
            velocity.steps.pop()
        _move_along_all(parameters, velocity.steps, rate=rate, momentum=momentum)
        return
    if not momentum:
        direction.add_to(parameters, scalar, times=-rate)
        return
    factors = direction.factors(scalar)
    for name, value in parameters.items():
        part = direction.normals(name)
        if name not in velocity.buffers:
            velocity.buffers[name] = torch.zeros_like(value)
        speed = velocity.buffers[name].mul_(momentum).addcmul_(part, _beside(factors, part))
        value.sub_(speed, alpha=rate)


def _move_along_all(
    parameters: Mapping[str, Tensor], steps: Sequence[tuple[Direction, Tensor]], *, rate: float, momentum: float
) -> None:
    """w -= rate · Σₖ momentumᵏ · factorsₖ · gₖ over the last steps, the newest first: heavy-ball without a buffer."""
    for name, value in parameters.items():
        for rows in steps[0][0].rows(name):
            speed = torch.zeros_like(value[:, rows])
            for age, (past, factors) in enumerate(steps):
                piece = past.normals(name, rows)
                speed.addcmul_(piece, _beside(factors, piece), value=momentum**age)
            value[:, rows].sub_(speed, alpha=rate)


def _beside(factors: Tensor, part: Tensor) -> Tensor:
    """Factors (R,) that multiply a part (R, *shape)."""
    return factors.reshape(-1, *(1,) * (part.dim() - 1))


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
        sums, active = [self._centre()], []
        for layer in range(1, len(self._parameters) // 2):
            active.append(torch.relu(sums[-1]))
            sums.append(affine(self._parameters[f"weight{layer}"], self._parameters[f"bias{layer}"], active[-1]))
        upstream = slope(torch.relu(sums[-1]) if self._model.activate else sums[-1])
        upstream = torch.where(sums[-1] > 0, upstream, 0.0) if self._model.activate else upstream
        further: dict[str, Tensor] = {}
        for layer in range(len(sums) - 1, 0, -1):
            further[f"weight{layer}"] = torch.bmm(upstream, active[layer - 1].transpose(1, 2)).transpose(1, 2)
            further[f"bias{layer}"] = upstream.sum(2)
            upstream = torch.bmm(self._parameters[f"weight{layer}"], upstream)
            upstream = torch.where(sums[layer - 1] > 0, upstream, 0.0)
        return upstream, further

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
        gradients = gradients_along(outputs, list(leaves.values()), slope(outputs.detach()))
        return dict(zip(leaves, gradients, strict=True))

    def _outputs(self, parameters: Parameters, inputs: Tensor) -> Tensor:
        return self._model.apply(parameters, inputs).transpose(1, 2)


def _halves(outputs: Tensor) -> tuple[Tensor, Tensor]:
    """(R, k, B) each, of (R, 2k, B)."""
    width = outputs.shape[1] // 2
    return outputs[:, :width], outputs[:, width:]
