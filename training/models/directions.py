"""Random directions for zeroth-order steps, over all parameters of a party at once, regenerated from a seed.

Equations of VFL-Cascaded are those of "Secure and Fast Asynchronous Vertical Federated Learning via Cascaded Hybrid
Optimization" (Wang et al.).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import EllipsisType
from typing import TYPE_CHECKING, Literal

from vflpriv.common.lazy import torch
from vflpriv.common.random import Stream
from vflpriv.training.models.base import Model, size_of

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Direction", "Directions", "Law", "Rows", "Shifted", "Velocity", "move_along", "steps_remembered"]

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
        rows, *rest = self._layout.shapes[name]
        # The same pieces however many replicas there are: sums over them must not depend on that. Four rows are whole
        # blocks of the random sequence.
        together = max(4, _PIECE // max(1, math.prod(rest)) // 4 * 4)
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
