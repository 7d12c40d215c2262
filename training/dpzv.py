"""DPZV: zeroth-order training whose downlink is one clipped, noised scalar (dpzv-journal.txt, Algorithm 1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from vflpriv.data import VerticalData
from vflpriv.registry import register
from vflpriv.training import _dpzv_ledger
from vflpriv.training._base import Engine, Payload
from vflpriv.training._directions import Direction, Directions, Shifted, move_along
from vflpriv.training._dpzv_settings import DpzvSettings
from vflpriv.training._mechanisms import ScalarMean
from vflpriv.training._models import Mlp, first_replicas, initialise
from vflpriv.training._noise import NoiseSource
from vflpriv.training._zo_server import SERVER_UPDATES, Losses, ServerStep

__all__ = ["Dpzv"]


@register("engine")
class Dpzv(Engine):
    """Asynchronous two-point zeroth-order VFL with scalar noise; the server's table of the others' embeddings is stale.

    The finite difference divides by λ as the paper's eq. (7) does, not by 2λ as its estimator (3); the factor two is
    part of C and of the devices' rate. The two embeddings of a pair refresh the table by their mean.
    """

    name = "dpzv"
    summary = "zeroth-order, asynchronous; one clipped and noised scalar on the downlink"
    source = "dpzv-journal.txt Alg. 1"
    settings_type = DpzvSettings
    asynchronous = True
    settings: DpzvSettings

    mechanisms = staticmethod(_dpzv_ledger.mechanisms)
    releases = staticmethod(_dpzv_ledger.releases)
    claims = staticmethod(_dpzv_ledger.claims)
    published_noise = staticmethod(_dpzv_ledger.published_noise)

    @classmethod
    def state_bytes(cls, settings: DpzvSettings, data: VerticalData) -> int:
        return super().state_bytes(settings, data) + 4 * data.records * data.devices * settings.embedding

    def setup(self) -> None:
        s, devices = self.settings, self.data.devices
        inputs = [block.flatten(1).shape[1] for block in self.data.blocks]
        self.bottoms = [Mlp([n, *s.hidden, s.embedding], activate=True) for n in inputs]
        self.top = Mlp([devices * s.embedding, *s.top_hidden, self.data.classes], activate=False)
        init = self.stream("init")
        self.bottom_parameters = [initialise(model, init, m) for m, model in enumerate(self.bottoms)]
        self.top_parameters = initialise(self.top, init, devices)
        self._velocity: dict[int, dict[str, Tensor]] = {}
        # Record first: one record's rows of all replicas lie together, so that a batch is a few block copies.
        shape = (self.data.records, len(self.replicas), devices * s.embedding)
        self.table = torch.zeros(shape, device=self.torch_device)
        self.directions = Directions(
            self.stream("directions"), [*self.bottoms, self.top], self.schedule.turns, lean=s.lean
        )
        self.noise = NoiseSource(self.stream("noise"), secure=s.secure_noise)
        self.server_noise = NoiseSource(self.stream("server-noise"), secure=s.secure_noise)
        mechanism = self.mechanisms(s, self.schedule)["zo-scalar"]
        assert isinstance(mechanism, ScalarMean)
        self.mechanism = mechanism
        self.server_update = SERVER_UPDATES[s.server_update]
        self._direction: Direction | None = None

    @torch.no_grad()
    def uplink(self, round_: int, m: int, records: Tensor) -> Payload:
        features = self.data.features(m, records)
        features = features.flatten(features.dim() - self.data.blocks[m].dim() + 1)
        self._direction = self.directions.at(round_, m)
        pair = {
            sign: self.bottoms[m].apply(Shifted(self.bottom_parameters[m], self._direction, step), features)
            for sign, step in (("plus", self.settings.smoothing), ("minus", -self.settings.smoothing))
        }
        return Payload("embedding-pair", pair)

    @torch.no_grad()
    def serve(self, round_: int, records: Tensor, uplinks: Mapping[int, Mapping[str, Tensor]]) -> Mapping[int, Payload]:
        ((m, pair),) = uplinks.items()
        step = self._server_step(round_, m, records, pair)
        plus, minus = self.server_update.weights(step)
        losses = step.losses(plus, pair["plus"]), step.losses(minus, pair["minus"])
        differences = (losses[0].of(step.labels) - losses[1].of(step.labels)) / self.settings.smoothing  # eq. (7)
        worlds = self._meet_canary(round_, differences, losses)
        delta = self.mechanism.release(self.mechanism.noiseless(differences), self.noise.scalar(round_))  # eq. (8)
        self.table[:, :, step.columns].index_copy_(0, records, step.mean.transpose(0, 1))
        self.server_update.apply(step, delta)
        return {m: Payload("zo-scalar", {"delta": delta}, worlds)}

    def _meet_canary(self, round_: int, differences: Tensor, losses: tuple[Losses, Losses]) -> dict[str, Tensor]:
        """Put the canary's contribution in its place, and return the noiseless scalar in either world, (R, 2)."""
        place = self.canary_position(round_)
        if self.canary is None or place is None:
            return {}
        clip, labels = self.mechanism.clip, self.canary.labels
        if self.canary.at_clip:
            differences[:, place] = clip * self.canary.sign().to(differences.device)
            either = torch.tensor([[clip, -clip]], device=differences.device)
        else:
            either = (losses[0].at(place, labels) - losses[1].at(place, labels)) / self.settings.smoothing
        contributions = self.mechanism.contributions
        change = contributions(either) - contributions(differences[:, place, None])
        return {"delta": self.mechanism.noiseless(differences).unsqueeze(1) + change / self.mechanism.batch_size}

    def _server_step(self, round_: int, m: int, records: Tensor, pair: Mapping[str, Tensor]) -> ServerStep:
        width = self.settings.embedding
        return ServerStep(
            settings=self.settings,
            model=self.top,
            parameters=self.top_parameters,
            velocity=self._velocity.setdefault(self.data.devices, {}),
            rows=self.table.index_select(0, records).transpose(0, 1),
            columns=slice(m * width, (m + 1) * width),
            mean=(pair["plus"] + pair["minus"]) / 2,
            labels=self.data.labels_of(records).expand(len(self.replicas), -1),
            batch_size=self.schedule.batch_size,
            round=round_,
            party=self.data.devices,
            directions=self.directions,
            noise=self.server_noise,
        )

    @torch.no_grad()
    def update(self, round_: int, m: int, records: Tensor, reply: Mapping[str, Tensor]) -> None:
        assert self._direction is not None
        move_along(
            self.bottom_parameters[m],
            self._direction,
            reply["delta"],
            rate=self.settings.device_rate,
            momentum=self.settings.momentum,
            velocity=self._velocity.setdefault(m, {}),
        )  # eq. (9)

    def predict(self, blocks: Sequence[Tensor], replicas: int) -> Tensor:
        embeddings = [
            model.apply(first_replicas(parameters, replicas), block.flatten(1))
            for model, parameters, block in zip(self.bottoms, self.bottom_parameters, blocks, strict=True)
        ]
        return self.top.apply(first_replicas(self.top_parameters, replicas), torch.cat(embeddings, dim=-1))
