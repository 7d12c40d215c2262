"""VFL-CZOFO: a zeroth-order estimate of the embedding's gradient, back-propagated (dpzv-journal.txt §VII)."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from vflpriv.common.registry import register
from vflpriv.core.wire import Payload
from vflpriv.training.engines.zeroth_order import CzofoSettings, ZoEngine, czofo_releases, no_claims
from vflpriv.training.mechanisms.noise import NoiseSource
from vflpriv.training.mechanisms.release import let_out
from vflpriv.training.mechanisms.uplink import uplink_mechanisms
from vflpriv.training.models.base import descend

__all__ = ["Czofo"]


@register("engine")
class Czofo(ZoEngine):
    """The device sends h and n perturbations h + μu_k; the server replies n loss differences a record.

    dpzv-journal.txt §VII says that it "computes the intermediate gradient via ZOO, while keeping the back propagation
    on both server and device", with n = 5 perturbations. Read here as: each record has its own u_k over the E entries
    of its embedding and its own n differences δ_k = ℓ(h + μu_k) - ℓ(h), for a batch's mean loss would tell nothing of
    one record's gradient. The estimate φ(E)/(nμ) Σ δ_k u_k takes the place of ∂ℓ/∂h. Without a claim of its own.
    """

    name = "czofo"
    summary = "zeroth-order gradient of the embedding, back-propagated; per-record loss differences on the downlink"
    source = "dpzv-journal.txt §VII"
    settings_type = CzofoSettings
    asynchronous = True
    settings: CzofoSettings

    mechanisms = staticmethod(uplink_mechanisms)
    releases = staticmethod(czofo_releases)
    claims = staticmethod(no_claims)

    def setup(self) -> None:
        super().setup()
        self.mechanism = self.mechanisms(self.settings, self.schedule)["embeddings"]
        self.noise = NoiseSource(self.stream("noise"), secure=self.settings.secure_noise)
        self._stream = self.stream("directions")
        self._leaves: dict[str, Tensor] = {}
        self._output = self._directions = torch.empty(0)

    def uplink(self, round_: int, m: int, records: Tensor) -> Payload:
        self._leaves = {name: value.detach().requires_grad_() for name, value in self.bottom_parameters[m].items()}
        self._output = self.mechanism.noiseless(self.bank.models[m].apply(self._leaves, self.inputs(m, records)))
        out = let_out(
            self, "logits" if self.sums else "embeddings", round_, m, records, {"embedding": self._output.detach()}
        )
        sent = out.tensors["embedding"]
        self._directions = self.embedding_directions(round_, m, len(records))
        perturbed = torch.add(sent.unsqueeze(1), self._directions, alpha=self.settings.smoothing)
        return Payload(out.kind, {"embedding": sent, "perturbed": perturbed}, out.worlds)

    def embedding_directions(self, round_: int, m: int, batch: int) -> Tensor:
        """(R, n, B, E): for each record n directions over its embedding."""
        s, width = self.settings, self.width
        shape = (s.perturbations, batch, width)
        normals = self._stream.normal(s.perturbations * batch * width, round_, m).unflatten(1, shape)
        return normals if s.direction == "gaussian" else torch.nn.functional.normalize(normals, dim=-1)

    @torch.no_grad()
    def serve(self, round_: int, records: Tensor, uplinks: Mapping[int, Mapping[str, Tensor]]) -> Mapping[int, Payload]:
        ((m, sent),) = uplinks.items()
        step = self.server_step(round_, records, self.refresh(m, records, sent["embedding"]))
        columns, perturbed = self.columns(m), sent["perturbed"]
        several = [step.losses(step.parameters, step.replaced(columns, h)).of(step.labels) for h in perturbed.unbind(1)]
        differences = torch.stack(several, dim=1) - step.plain.unsqueeze(1)
        self.learn("sgd", step)
        return {m: Payload("loss-differences", {"differences": differences})}

    def update(self, round_: int, m: int, records: Tensor, reply: Mapping[str, Tensor]) -> None:
        s = self.settings
        factor = self.width if s.direction == "sphere" else 1
        scale = factor / (s.perturbations * s.smoothing * self.schedule.batch_size)
        estimate = torch.einsum("rnb,rnbe->rbe", reply["differences"], self._directions) * scale
        gradient = torch.autograd.grad(self._output, list(self._leaves.values()), estimate)
        descend(
            self.bottom_parameters[m],
            dict(zip(self._leaves, gradient, strict=True)),
            rate=s.device_rate * s.fade(round_),
            momentum=s.momentum,
            velocity=self._velocity.setdefault(m, {}),
            weight_decay=s.weight_decay,
        )
