"""Random directions for zeroth-order steps, over all parameters of a party at once, regenerated from a seed.

Equations of VFL-Cascaded are those of "Secure and Fast Asynchronous Vertical Federated Learning via Cascaded Hybrid
Optimization" (Wang et al.).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from vflpriv.common.lazy import torch
from vflpriv.common.random import Stream
from vflpriv.training.models.base import Model, size_of

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Direction", "Directions", "Law", "Shifted", "move_along"]

Law = Literal["root-sphere", "sphere", "gaussian"]
"""The distribution of a direction: uniform on the sphere of radius √d, on the unit sphere, or standard normal."""

_PREFETCH = 1 << 18
"""Normals that are drawn ahead, at most, for all replicas together."""
_PREFETCH_ROUNDS = 64


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

    With `flat` (R, length) the normals are kept in memory; without it a part is drawn again whenever it is indexed (as
    in MeZO, Malladi et al. 2023), so that a step needs additional memory for one parameter, not for the whole model.
    `norms` are the (R,) norms of g where they are known.
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
        parts = [torch.linalg.vector_norm(self.normals(name).flatten(1), dim=1) for name in self._layout.shapes]
        return torch.stack(parts).square().sum(0).sqrt()

    def normals(self, name: str) -> Tensor:
        """A parameter's part of g, (R, *shape): to be overwritten only if it is not held."""
        shape = self._layout.shapes[name]
        if self._flat is not None:
            part = self._flat[:, self._layout.places[name]]
        else:
            part = self._stream.normal(math.prod(shape), *self._path, first=self._layout.first[name])
        return part.reshape(-1, *shape)

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

    `models` are those of the devices and, last, of the server. With `lean` a parameter's part is drawn whenever it is
    needed, and nothing is kept; otherwise the normals of a few rounds are drawn together and kept. The numbers are the
    same. `turns` is the one active device of each round, None if several are active.
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


def move_along(
    parameters: Mapping[str, Tensor],
    direction: Direction,
    scalar: Tensor,
    *,
    rate: float,
    momentum: float,
    velocity: dict[str, Tensor],
) -> None:
    """w -= rate · scalar · u in place, with heavy-ball momentum if it is not zero; `scalar` is (R,)."""
    factors = direction.factors(scalar)
    for name, value in parameters.items():
        part = direction.normals(name)
        by = _beside(factors, part)
        if not momentum:
            value.addcmul_(part, by, value=-rate)
            continue
        if name not in velocity:
            velocity[name] = torch.zeros_like(value)
        value.sub_(velocity[name].mul_(momentum).addcmul_(part, by), alpha=rate)


def _beside(factors: Tensor, part: Tensor) -> Tensor:
    """Factors (R,) that multiply a part (R, *shape)."""
    return factors.reshape(-1, *(1,) * (part.dim() - 1))
