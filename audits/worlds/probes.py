"""Taps: they listen where a mechanism adds its noise, and follow what leaves onto the wire."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from vflpriv.core.wire import Message, Wire
from vflpriv.training.mechanisms.base import Mechanism

__all__ = ["Leaving", "Tap"]

_OUTLETS = ("mechanism", "server_mechanism")


@dataclass(eq=False, kw_only=True)
class Leaving:
    """One value as it left: before and after the noise, and the message that carried it (None if none did)."""

    outlet: str
    std: float
    noiseless: Tensor
    released: Tensor
    message: Message | None = None


class Tap:
    """Listens to both mechanisms of an engine, its uplink's or scalar's and its server's own, round by round.

    With `twins` the replicas come in pairs, and what leaves the first of a pair leaves the second too: the two then
    differ by nothing but what their own private data has moved without noise. With a `leader`, another engine's tap
    whose round is run first, every replica lets out what the same replica there let out: equal replicas then compute
    the same bits, which two replicas of one engine need not.
    """

    def __init__(self, engine: Any, *, twins: bool = False, leader: Tap | None = None) -> None:
        self.engine, self.twins, self.leader = engine, twins, leader
        self._left: list[Leaving] = []
        for outlet in _OUTLETS:
            mechanism = getattr(engine, outlet, None)
            if mechanism is not None and mechanism.noise_std > 0:
                setattr(engine, outlet, self._tapped(outlet, mechanism))

    def _tapped(self, outlet: str, mechanism: Mechanism) -> Mechanism:
        def release(noiseless: Tensor, normals: Tensor) -> Tensor:
            released = mechanism.release(noiseless, normals)
            if self.twins:
                released = released[0::2].repeat_interleave(2, 0)
            if self.leader is not None:
                released = self.leader._left[len(self._left)].released.clone()
            std = mechanism.noise_std
            self._left.append(Leaving(outlet=outlet, std=std, noiseless=noiseless, released=released))
            return released

        listening = copy.copy(mechanism)
        object.__setattr__(listening, "release", release)
        return listening

    def round(self, round_: int, *recorders: Any) -> list[Leaving]:
        """Run one round; what left in it, in order."""
        self._left = []
        self.engine.round(round_, Wire(self, *recorders))
        return self._left

    def record(self, message: Message) -> None:
        """Note which message carries a value; only the very tensor that the mechanism let out counts."""
        for tensor in message.tensors.values():
            for one in self._left:
                if one.released is tensor:
                    one.message = message
