"""Mutations of who takes part: a record or a device is in more releases than the schedule says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from tests.mutations.case import Mutation, Trained, exact_claim
from tests.mutations.dpzv import Joint, Point, dpzv_case
from tests.mutations.wire import ROWS
from vflpriv.core.engine import Contributions
from vflpriv.core.wire import SERVER, Payload, Wire, device
from vflpriv.training.engines.zoo_vfl import ZooVfl

__all__ = ["MUTATIONS"]


class _TwoBatches(Point):
    """Adds what the batch before contributed."""

    _before: Tensor | None = None

    def noiseless(self, contributions: Contributions) -> Tensor:
        own = super().noiseless(contributions)
        before = torch.zeros_like(own) if self._before is None else self._before
        return own + before

    def release(self, contributions: Contributions, normals: Tensor) -> Tensor:
        released = super().release(contributions, normals)
        self._before = self.mechanism.noiseless(contributions.values)
        return released


class TwoBatches(Joint):
    name = "two-batches"
    point_type = _TwoBatches


class HotRecord(Joint):
    """The first record of the first batch is the first of every batch."""

    name = "hot-record"

    def setup(self) -> None:
        super().setup()
        self._order = self._order.clone()
        self._order[torch.from_numpy(self.schedule.start)] = self._order[int(self.schedule.start[0])].clone()


class _Twice(Point):
    """Draws a second noised value of every round."""

    again: Tensor

    def release(self, contributions: Contributions, normals: Tensor) -> Tensor:
        later = contributions.round + self.engine.schedule.rounds
        self.again = super().release(contributions, self.noise.scalar(later))
        return super().release(contributions, normals)


class TwoReleases(Joint):
    name = "two-releases"
    point_type = _Twice

    def round(self, round_: int, wire: Wire) -> None:
        super().round(round_, wire)
        records = torch.from_numpy(self.schedule.batch(round_))
        for m in self.schedule.members(round_):
            Payload("zo-scalar", {"delta": self.scalar.again}).send(wire, round_, SERVER, device(m), records)


class _Later(Point):
    """Noise of its own for rounds that are run again."""

    offset = 0

    def drawn(self, contributions: Contributions, normals: Tensor) -> Tensor:
        return self.noise.scalar(contributions.round + self.offset)


class SecondEpoch(Joint):
    """All rounds are run once more, within the last one."""

    name = "second-epoch"
    point_type = _Later

    def round(self, round_: int, wire: Wire) -> None:
        super().round(round_, wire)
        if round_ == self.schedule.rounds - 1:
            self.scalar.offset = self.schedule.rounds
            for again in range(self.schedule.rounds):
                super().round(again, wire)


class RoundsAfter(Joint):
    """All rounds are run once more, after the last one."""

    name = "rounds-after"
    point_type = _Later

    def run(self, wire: Wire, *, advance: Callable[[int], None] | None = None) -> None:
        super().run(wire, advance=advance)
        self.scalar.offset = self.schedule.rounds
        for again in range(self.schedule.rounds):
            self.round(again, wire)


class UncountedDevice(ZooVfl):
    """A device that is not active in a round sends its embeddings too."""

    name = "uncounted-device"

    def round(self, round_: int, wire: Wire) -> None:
        super().round(round_, wire)
        records = torch.from_numpy(self.schedule.batch(round_))
        for m in set(range(self.data.devices)) - set(self.schedule.members(round_)):
            self.uplink(round_, m, records).send(wire, round_, device(m), SERVER, records)


def _part(name: str, fault: str, change: str, case: Trained, **fields: Any) -> Mutation:
    return Mutation(
        name=name, family="participation", fault=fault, change=change, case=case, **{"expected": "wire", **fields}
    )


MUTATIONS = (
    _part(
        "two-batches",
        "each release also holds the batch before",
        "+41 %",
        dpzv_case(TwoBatches),
        expected="server-state",
    ),
    _part("hot-record", "one record is in every batch", "+145 % for that record", dpzv_case(HotRecord)),
    _part(
        "two-releases", "two noised values of each round are sent, and one is counted", "+41 %", dpzv_case(TwoReleases)
    ),
    _part("second-epoch", "all rounds are run once more within the last one", "+41 %", dpzv_case(SecondEpoch)),
    _part(
        "rounds-after",
        "all rounds are run once more after the last one",
        "+41 %",
        dpzv_case(RoundsAfter),
        accepted=(1, 3),
    ),
    _part(
        "uncounted-device",
        "devices send noised embeddings in rounds in which they are not active",
        "+41 %",
        Trained(
            engine=UncountedDevice,
            settings=ROWS,
            claims=exact_claim("features", "server"),
            noise_for=(1.0, "features", "server"),
        ),
    ),
)
