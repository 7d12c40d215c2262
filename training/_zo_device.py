"""The device of ZOO-VFL and its relatives: two embeddings of a batch up, a one-sided step along its direction."""

from __future__ import annotations

import torch
from torch import Tensor

from vflpriv.training._directions import Direction, Directions, Shifted
from vflpriv.training._noise import NoiseSource
from vflpriv.training._outlet import let_out
from vflpriv.training._payload import Payload
from vflpriv.training._uplinks import uplink_mechanisms
from vflpriv.training._zo_base import ZoEngine
from vflpriv.training._zo_ledger import SynZooSettings, loss_claims, no_claims, pair_kind

__all__ = ["OneSidedEngine"]


class OneSidedEngine(ZoEngine):
    """h(w) and h(w + μu) up; w -= η φ(d)/μ [f(w + μu) - f(w)] u (vfl-cascaded eq. 3). Subclasses say how losses arise.

    u is one direction a round and device, over all of its parameters, uniform on the unit sphere with φ(d) = d or
    standard normal with φ(d) = 1: the same step up to scale.
    """

    settings: SynZooSettings
    mechanisms = staticmethod(uplink_mechanisms)
    claims = staticmethod(no_claims)
    success_claims = staticmethod(loss_claims)

    def setup(self) -> None:
        super().setup()
        s, models = self.settings, [*self.bank.models, self.top]
        self.directions = Directions(self.stream("directions"), models, self.schedule.turns, law=s.direction)
        self.mechanism = self.mechanisms(s, self.schedule)["embeddings"]
        self.noise = NoiseSource(self.stream("noise"), secure=s.secure_noise)
        self._direction: dict[int, Direction] = {}

    @torch.no_grad()
    def uplink(self, round_: int, m: int, records: Tensor) -> Payload:
        assert self.directions is not None
        self._direction[m] = self.directions.at(round_, m)
        features, model, weights = self.inputs(m, records), self.bank.models[m], self.bottom_parameters[m]
        shifted = Shifted(weights, self._direction[m], self.settings.smoothing)
        either = {"embedding": weights, "perturbed": shifted}
        pair = {name: self.mechanism.noiseless(model.apply(w, features)) for name, w in either.items()}
        return let_out(self, pair_kind(self.settings), round_, m, records, pair)

    def step_device(self, round_: int, m: int, difference: Tensor) -> None:
        """Eq. (3), given f(w + μu) - f(w), (R,)."""
        direction = self._direction.pop(m)
        self.move(round_, m, direction, difference * (direction.factor / self.settings.smoothing))
