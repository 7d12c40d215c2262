"""DPZV: zeroth-order training whose downlink is one clipped, noised scalar (dpzv-journal.txt, Algorithm 1)."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from vflpriv.canaries import Canaries, Canary
from vflpriv.registry import register
from vflpriv.training import _dpzv_ledger
from vflpriv.training._directions import Direction, Directions, Shifted
from vflpriv.training._dpzv_settings import DpzvSettings
from vflpriv.training._mechanisms import ScalarMean
from vflpriv.training._noise import NoiseSource
from vflpriv.training._payload import Payload
from vflpriv.training._zo_base import ZoEngine
from vflpriv.training._zo_server import SERVER_UPDATES, Losses
from vflpriv.wire import Shift

__all__ = ["Dpzv"]


@register("engine")
class Dpzv(ZoEngine):
    """Asynchronous two-point zeroth-order VFL with scalar noise; the server's table of the others' embeddings is stale.

    The finite difference divides by λ as the paper's eq. (7) does, not by 2λ as its estimator (3); the factor two is
    part of C and of the devices' rate. The two embeddings of a pair refresh the table by their mean.
    """

    name = "dpzv"
    summary = "zeroth-order, asynchronous; one clipped and noised scalar on the downlink"
    source = "dpzv-journal.txt Alg. 1"
    settings_type = DpzvSettings
    asynchronous = True
    many_canaries = True
    settings: DpzvSettings

    mechanisms = staticmethod(_dpzv_ledger.mechanisms)
    releases = staticmethod(_dpzv_ledger.releases)
    claims = staticmethod(_dpzv_ledger.claims)
    published_noise = staticmethod(_dpzv_ledger.published_noise)

    def setup(self) -> None:
        super().setup()
        s, models = self.settings, [*self.bank.models, self.top]
        self.directions = Directions(self.stream("directions"), models, self.schedule.turns, lean=s.lean)
        self.noise = NoiseSource(self.stream("noise"), secure=s.secure_noise)
        self.server_noise = NoiseSource(self.stream("server-noise"), secure=s.secure_noise)
        mechanisms = self.mechanisms(s, self.schedule)
        mechanism = mechanisms["zo-scalar"]
        assert isinstance(mechanism, ScalarMean)
        self.mechanism = mechanism
        self.server_mechanism = mechanisms.get("server-update")
        self.server_update = SERVER_UPDATES[s.server_update]
        self._direction: Direction | None = None

    @torch.no_grad()
    def uplink(self, round_: int, m: int, records: Tensor) -> Payload:
        assert self.directions is not None
        self._direction = self.directions.at(round_, m)
        features, model = self.inputs(m, records), self.bank.models[m]
        pair = {
            sign: model.apply(Shifted(self.bottom_parameters[m], self._direction, step), features)
            for sign, step in (("plus", self.settings.smoothing), ("minus", -self.settings.smoothing))
        }
        return Payload("embedding-pair", pair)

    @torch.no_grad()
    def serve(self, round_: int, records: Tensor, uplinks: Mapping[int, Mapping[str, Tensor]]) -> Mapping[int, Payload]:
        ((m, pair),) = uplinks.items()
        rows = self.refresh(m, records, (pair["plus"] + pair["minus"]) / 2)
        step, columns = self.server_step(round_, records, rows), self.columns(m)
        plus, minus = self.server_update.weights(step)
        losses = (
            step.losses(plus, step.replaced(columns, pair["plus"])),
            step.losses(minus, step.replaced(columns, pair["minus"])),
        )
        differences = (losses[0].of(step.labels) - losses[1].of(step.labels)) / self.settings.smoothing  # eq. (7)
        worlds = self._meet_canary(round_, differences, losses)
        shifts = self._meet_canaries(round_, differences, losses)
        noiseless = self.mechanism.noiseless(differences) + self._in_secret(round_)
        delta = self.mechanism.release(noiseless, self.noise.scalar(round_))  # eq. (8)
        self.server_update.apply(step, delta)
        return {m: Payload("zo-scalar", {"delta": delta}, worlds, shifts)}

    def _meet_canary(self, round_: int, differences: Tensor, losses: tuple[Losses, Losses]) -> dict[str, Tensor]:
        """Put the canary's contribution in its place, and return the noiseless scalar in either world, (R, 2)."""
        place = self.canary_position(round_)
        if not isinstance(self.canary, Canary):
            return {}
        clip = self.mechanism.clip
        if self.canary.rate is not None:
            if place is not None:
                differences[:, place] = 0.0  # coins decide, not the schedule
            edge = torch.tensor([[clip, -clip]], device=differences.device) / self.mechanism.batch_size
            return {"delta": self.mechanism.noiseless(differences).unsqueeze(1) + edge}
        if place is None:
            return {}
        labels = self.canary.labels
        if self.canary.at_clip:
            differences[:, place] = clip * self.canary.sign().to(differences.device)
            either = torch.tensor([[clip, -clip]], device=differences.device)
        else:
            either = (losses[0].at(place, labels) - losses[1].at(place, labels)) / self.settings.smoothing
        contributions = self.mechanism.contributions
        change = contributions(either) - contributions(differences[:, place, None])
        return {"delta": self.mechanism.noiseless(differences).unsqueeze(1) + change / self.mechanism.batch_size}

    def _in_secret(self, round_: int) -> Tensor | float:
        """What a canary adds whose batches nobody knows: (R,), each replica with a coin of its own."""
        if not isinstance(self.canary, Canary) or self.canary.rate is None:
            return 0.0
        coin = self.stream("canary").uniform(1, round_)[:, 0] <= self.canary.rate
        return coin * self.canary.sign().to(coin.device) * (self.mechanism.clip / self.mechanism.batch_size)

    def _meet_canaries(self, round_: int, differences: Tensor, losses: tuple[Losses, Losses]) -> dict[str, Shift]:
        """How each canary of the batch moves the noiseless scalar: half its distance between the worlds, either way."""
        found = self.canary_positions(round_)
        if not isinstance(self.canary, Canaries) or found is None:
            return {}
        places, numbers = found
        labels = self.canary.labels.to(differences.device).index_select(0, numbers)
        either = (losses[0].at_places(places, labels) - losses[1].at_places(places, labels)) / self.settings.smoothing
        either, size = self.mechanism.contributions(either), self.mechanism.batch_size
        own = self.mechanism.contributions(differences.index_select(1, places))
        centre = self.mechanism.noiseless(differences) + (either.mean(-1) - own).sum(1) / size
        return {"delta": Shift(canaries=numbers, centre=centre, halves=(either[..., 0] - either[..., 1]) / (2 * size))}

    @torch.no_grad()
    def update(self, round_: int, m: int, records: Tensor, reply: Mapping[str, Tensor]) -> None:
        assert self._direction is not None
        self.move(round_, m, self._direction, reply["delta"])  # eq. (9)
