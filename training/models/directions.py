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
from vflpriv.training.models.base import Model, descend, size_of

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
        blocks = 0
        for name, shape in model.shapes.items():
            self.first[name] = blocks
            blocks += -(-math.prod(shape) // 4)
        self.length = 4 * blocks


class Direction(Mapping[str, "Tensor"]):
    """One direction u per replica: √d · g/‖g‖, g/‖g‖ or g, with g standard normal over all d parameters of a party.

    Indexing by a parameter's name gives its part of u, (R, *shape). `factor` is φ(d) of VFL-Cascaded eq. (2), for which
    E[φ(d) u uᵀ] is the identity: d on the unit sphere, else 1.

    With `flat` (R, length) the normals are kept in memory; without it a part is drawn again whenever it is indexed (as
    in MeZO, Malladi et al. 2023), so that a step needs additional memory for one parameter, not for the whole model.
    """

    def __init__(self, layout: _Layout, stream: Stream, path: tuple[int, int], flat: Tensor | None, law: Law) -> None:
        self._layout, self._stream, self._path, self._flat = layout, stream, path, flat
        self.factor = float(layout.size) if law == "sphere" else 1.0
        self._scale: Tensor | None = None
        if law != "gaussian":
            norms = [torch.linalg.vector_norm(self._normal(name), dim=1) for name in layout.shapes]
            radius = 1.0 if law == "sphere" else math.sqrt(layout.size)
            self._scale = radius * torch.rsqrt(torch.stack(norms).square().sum(0))

    def _normal(self, name: str) -> Tensor:
        count, first = math.prod(self._layout.shapes[name]), self._layout.first[name]
        if self._flat is not None:
            return self._flat[:, 4 * first : 4 * first + count]
        return self._stream.normal(count, *self._path, first=first)

    def __getitem__(self, name: str) -> Tensor:
        part = self._normal(name)
        if self._scale is not None:
            scale = self._scale.unsqueeze(1)
            part = part * scale if self.held else part.mul_(scale)
        return part.reshape(-1, *self._layout.shapes[name])

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
        value, part = self._parameters[name], self._direction[name]
        if self._direction.held:
            return torch.add(value, part, alpha=self._step)
        return part.mul_(self._step).add_(value)

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
        self._held: dict[bool, tuple[int, Tensor]] = {}

    def at(self, round_: int, party: int) -> Direction:
        """The direction of one party in one round; the server's number is the number of devices."""
        layout = self._layouts[party]
        flat = None if self._lean else self._flat(round_, party)
        return Direction(layout, self._stream, (round_, party), flat, self._law)

    def _flat(self, round_: int, party: int) -> Tensor:
        """(R, length or more): all normals of a party in a round."""
        if self._chunk == 1:
            return self._stream.normal(self._layouts[party].length, round_, party)
        server = party == len(self._layouts) - 1
        begin = round_ - round_ % self._chunk
        if self._held.get(server, (-1,))[0] != begin:
            rounds = range(begin, min(begin + self._chunk, len(self._turns)))
            parties = [party if server else self._turns[t] for t in rounds]
            length = max(self._layouts[p].length for p in parties)
            numbers = torch.tensor([list(rounds), parties], dtype=torch.int64).to(self._stream.keys.device)
            self._held[server] = (begin, self._stream.normal(length, numbers[0], numbers[1]))
        return self._held[server][1][:, round_ - begin]


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
    for name, value in parameters.items():
        part = direction[name]
        factor = scalar.reshape(-1, *(1 for _ in part.shape[1:]))
        step = {name: part * factor if direction.held else part.mul_(factor)}
        descend({name: value}, step, rate=rate, momentum=momentum, velocity=velocity)
