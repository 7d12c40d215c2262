"""VFL-CZOFO: a zeroth-order estimate of the embedding's gradient, back-propagated (as DPZV describes it in §VII)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from pydantic import Field

from vflpriv.common.lazy import gradients_along, no_grad, torch
from vflpriv.common.registry import register
from vflpriv.core.releases import Release
from vflpriv.core.schedules import Schedule
from vflpriv.core.units import Unit
from vflpriv.core.views import UPLINK_READERS
from vflpriv.core.wire import Payload
from vflpriv.training.engines.zeroth_order import Losses, ZoEngine, losses_and_models
from vflpriv.training.engines.zoo_vfl import LABEL_UNITS, OneSidedSettings, compared_claims
from vflpriv.training.mechanisms.base import NoNoise
from vflpriv.training.models.base import descend
from vflpriv.training.models.finite_differences import Change
from vflpriv.training.settings import AsyncSettings
from vflpriv.training.uplink import row_noise, uplink_mechanisms, uplink_releases

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Czofo", "CzofoSettings"]


class CzofoSettings(AsyncSettings, OneSidedSettings):
    """Settings of VFL-CZOFO; n = 5 is that of the DPZV paper."""

    perturbations: int = Field(5, ge=1, le=100_000, description="n, perturbed embeddings per record and round")


def _perturbed(kind: str, schedule: Schedule) -> Release:
    """The perturbations of noised embeddings: post-processing of them."""
    what = "noised embeddings moved along public directions: they tell nothing more"
    exact = NoNoise(depends_on=frozenset()).describe(
        kind=kind, what=what, rounds=schedule.every_round, seen_by=UPLINK_READERS
    )
    return replace(exact, tensors=frozenset({"perturbed"}))


@register("engine")
class Czofo(ZoEngine):
    """The device sends h and n perturbations h + μu_k; the server replies n loss differences per record.

    DPZV §VII says that it "computes the intermediate gradient via ZOO, while keeping the back propagation
    on both server and device", with n = 5 perturbations. Read here as: each record has its own u_k over the E entries
    of its embedding and its own n differences δ_k = ℓ(h + μu_k) - ℓ(h), for a batch's mean loss would tell nothing of
    one record's gradient. The estimate φ(E)/(nμ) Σ δ_k u_k takes the place of ∂ℓ/∂h. No guarantee is claimed for
    it but the one that DPZV's comparison takes for granted.
    """

    name = "czofo"
    summary = "zeroth-order gradient of the embedding, back-propagated; per-record loss differences on the downlink"
    source = "DPZV, §VII"
    settings_type = CzofoSettings
    asynchronous = True
    settings: CzofoSettings

    mechanisms = staticmethod(uplink_mechanisms)
    published_noise = staticmethod(row_noise)
    claims = staticmethod(compared_claims)

    @staticmethod
    def releases(settings: CzofoSettings, schedule: Schedule) -> tuple[Release, ...]:
        """Embeddings and their perturbations up, per-record loss differences down, and the trained models.

        The perturbations are added to the embedding that leaves, noise included: they tell nothing more.
        Back-propagation reads raw features, so a device's model carries a record without noise into the rows of all
        later batches.
        """
        kind = "logits" if settings.aggregation == "sum" else "embeddings"
        uplinks = uplink_releases(settings, schedule, kind=kind, sent=schedule.active)
        if settings.noise_std > 0:
            uplinks = (*(replace(r, tensors=frozenset({"embedding"})) for r in uplinks), _perturbed(kind, schedule))
        read = LABEL_UNITS if settings.noise_std > 0 else frozenset(Unit)
        what = "loss differences of each record"
        return *uplinks, *losses_and_models(schedule, "loss-differences", what, read, frozenset(Unit))

    def setup(self) -> None:
        super().setup()
        mechanism = self.mechanisms(self.settings, self.schedule)["embeddings"]
        self.uplink_point = self.release_point("logits" if self.sums else "embeddings", mechanism)
        self._stream = self.stream("directions")
        self._leaves: dict[str, Tensor] = {}
        self._output = self._directions = torch.empty(0)

    def uplink(self, round_: int, m: int, records: Tensor) -> Payload:
        self._leaves = {name: value.detach().requires_grad_() for name, value in self.bottom_parameters[m].items()}
        output = self.bank.models[m].apply(self._leaves, self.inputs(m, records))
        self._output = self.uplink_point.mechanism.noiseless(output)
        sent = self.uplink_point.rows(round_, m, records, {"embedding": self._output.detach()})["embedding"]
        self._directions = self.embedding_directions(round_, m, len(records))
        perturbed = torch.add(sent.unsqueeze(1), self._directions, alpha=self.settings.smoothing)
        return Payload(self.uplink_point.kind, {"embedding": sent, "perturbed": perturbed})

    def embedding_directions(self, round_: int, m: int, batch: int) -> Tensor:
        """(R, n, B, E): for each record n directions over its embedding."""
        s, width = self.settings, self.width
        shape = (s.perturbations, batch, width)
        normals = self._stream.normal(s.perturbations * batch * width, round_, m).unflatten(1, shape)
        return normals if s.direction == "gaussian" else torch.nn.functional.normalize(normals, dim=-1)

    @no_grad
    def serve(self, round_: int, records: Tensor, uplinks: Mapping[int, Mapping[str, Tensor]]) -> Mapping[int, Payload]:
        ((m, sent),) = uplinks.items()
        step = self.server_step(round_, records, self.refresh(m, records, sent["embedding"]))
        changes = [Change(self.columns(m), h - sent["embedding"]) for h in sent["perturbed"].unbind(1)]
        several = [Losses(step.outputs.ahead(change=change)).of(step.labels) for change in changes]
        differences = torch.stack(several, dim=1) - step.plain.unsqueeze(1)
        self.learn("sgd", step)
        return {m: Payload("loss-differences", {"differences": differences})}

    def update(self, round_: int, m: int, records: Tensor, reply: Mapping[str, Tensor]) -> None:
        s = self.settings
        factor = self.width if s.direction == "sphere" else 1
        scale = factor / (s.perturbations * s.smoothing * self.schedule.batch_size)
        estimate = torch.einsum("rnb,rnbe->rbe", reply["differences"], self._directions) * scale
        gradient = gradients_along(self._output, list(self._leaves.values()), estimate)
        descend(
            self.bottom_parameters[m],
            dict(zip(self._leaves, gradient, strict=True)),
            rate=s.device_rate * s.fade(round_),
            momentum=s.momentum,
            velocity=self._velocity[m].buffers,
            weight_decay=s.weight_decay,
        )
