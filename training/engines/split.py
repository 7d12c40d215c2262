"""Split learning: embeddings up, exact gradients down, first-order everywhere.

"Improving Privacy-Preserving Vertical Federated Learning by Efficient Communication with ADMM" (Xie et al., here
VIMADMM), Algorithm 2; equation numbers are that paper's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from vflpriv.common.lazy import no_grad, torch
from vflpriv.common.registry import register
from vflpriv.core.releases import Release
from vflpriv.core.schedules import Schedule
from vflpriv.core.units import Unit
from vflpriv.core.views import DOWNLINK_READERS
from vflpriv.core.wire import Payload
from vflpriv.training.downlink import DownlinkSettings, GradientGuard
from vflpriv.training.engine import Engine
from vflpriv.training.held import HeldOutputs
from vflpriv.training.mechanisms.base import Mechanism, NoNoise
from vflpriv.training.model_factory import server_model
from vflpriv.training.models.bank import Bank
from vflpriv.training.models.base import Model, first_replicas, initialise, loss_gradient
from vflpriv.training.models.layers import join_rows
from vflpriv.training.models.mlp import FusedMlp
from vflpriv.training.models.passes import Pass, Sgd, constant, start
from vflpriv.training.settings import AggregationSettings, SubsetSettings, TopSettings
from vflpriv.training.uplink import UplinkSettings, client_claims, client_noise, uplink_mechanisms, uplink_releases

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["GradientSettings", "Split", "SplitSettings", "gradient_releases", "through"]

Back = Callable[["Mechanism", "Tensor", slice, int, "Tensor"], "Tensor"]
"""Takes the gradient of some models' clipped outputs to the outputs themselves, in one of a device's steps."""
_LABEL_UNITS = frozenset({Unit.LABEL, Unit.RECORD, Unit.ADD_REMOVE})


class SplitSettings(AggregationSettings, UplinkSettings, SubsetSettings, TopSettings):
    """Settings of split learning."""

    aggregation: Literal["concat", "sum"] = Field(
        "concat", description="concatenated embeddings under a server model, or summed logits without one"
    )


class GradientSettings(SplitSettings, DownlinkSettings):
    """Settings of split learning, with a defence of its gradients."""


@register("engine")
class Split(Engine):
    """Synchronous: all devices send, the server updates its model, then sends each the gradient of its embeddings.

    With `aggregation = "sum"` the devices' outputs are logits, summed; there is no server model. With `together` a
    random subset of devices sends and is answered, and the last outputs of the others take their place.
    """

    name = "split"
    summary = "first-order, synchronous; exact per-record gradients on the downlink"
    source = "VIMADMM, Algorithm 2"
    settings_type: ClassVar[type[SplitSettings]] = GradientSettings
    asynchronous = False
    settings: SplitSettings
    top: Model

    mechanisms = staticmethod(uplink_mechanisms)
    claims = staticmethod(client_claims)
    published_noise = staticmethod(client_noise)

    @staticmethod
    def releases(settings: Any, schedule: Schedule) -> tuple[Release, ...]:
        """Embeddings (or logits) up, exact gradients down, and the trained models."""
        sums = settings.aggregation == "sum"
        return gradient_releases(settings, schedule, up="logits" if sums else "embeddings", logits=sums)

    def setup(self) -> None:
        s, devices = self.settings, self.data.devices
        self.sums = s.aggregation == "sum"
        output = self.data.classes if self.sums else self.embedding
        bottoms = self.device_models(output, activate=not self.sums, mlp=FusedMlp)
        self.top = server_model(s, self.data, mlp=FusedMlp)
        init = self.stream("init")
        self.bank = Bank(bottoms, init)
        self.top_parameters = {} if self.sums else initialise(self.top, init, devices)
        self._velocity: dict[str, Tensor] = {}
        kind = "logits" if self.sums else "embeddings"
        self.uplink_point = self.release_point(kind, self.mechanisms(s, self.schedule)["embeddings"])
        self._guard = GradientGuard.of(s, self.stream)
        self._passes: list[Pass] = []
        self._part = self.bank
        self._held = HeldOutputs(self.schedule, replicas=len(self.replicas), width=output, device=self.torch_device)

    @no_grad
    def uplinks(self, round_: int, members: Sequence[int], records: Tensor) -> Mapping[int, Payload]:
        self._part = self.bank.part(members)
        outputs, point = self._embed(records), self.uplink_point
        return {m: Payload(point.kind, point.rows(round_, m, records, {"embedding": outputs[m]})) for m in members}

    def _embed(self, records: Tensor) -> Mapping[int, Tensor]:
        """The outputs of the active devices for this round's rows, clipped as their messages are."""
        part, clip = self._part, self.uplink_point.mechanism.noiseless
        self._passes = part.start(part.inputs(self.data, records))
        outputs = part.split([clip(own.outputs) for own in self._passes])
        return dict(zip(part.members, outputs, strict=True))

    @no_grad
    def serve(self, round_: int, records: Tensor, uplinks: Mapping[int, Mapping[str, Tensor]]) -> Mapping[int, Payload]:
        received = self._held.of(records, {m: sent["embedding"] for m, sent in uplinks.items()})
        if self.sums:
            # Every device's logits have the gradient of their sum.
            shares: Sequence[Tensor] = [self._slope(torch.stack(list(received)).sum(0), records)]
        else:
            shares = self._learn(join_rows(received, 2), records).split(self.embedding, dim=-1)
        if self._guard is not None:
            shares = [self._guard.protect(share, round_, k) for k, share in enumerate(shares)]
        kind = "logit-gradient" if self.sums else "embedding-gradient"
        return {m: Payload(kind, {"gradient": shares[0 if self.sums else m]}) for m in sorted(uplinks)}

    def _learn(self, rows: Tensor, records: Tensor) -> Tensor:
        """The server's own step, eq. (14), and the gradient of the embeddings under the stepped model, eq. (16)."""
        s = self.settings
        sgd = Sgd(rate=s.server_rate, momentum=s.top_momentum, weight_decay=s.weight_decay)
        before = start(self.top, self.top_parameters, rows)
        before.descend(constant(self._slope(before.outputs, records)), self._velocity, sgd)
        after = start(self.top, self.top_parameters, rows, learn=False, fixed=False)
        return after.by_inputs(self._slope(after.outputs, records))

    def _slope(self, logits: Tensor, records: Tensor) -> Tensor:
        """The gradient of the batch's mean loss by the logits."""
        return loss_gradient(logits, self.labels_of(records, lambda: logits), self.schedule.batch_size)

    def updates(self, round_: int, records: Tensor, replies: Mapping[int, Mapping[str, Tensor]]) -> None:
        self._step(self._part.join([replies[m]["gradient"] for m in sorted(replies)]))

    def _step(self, gradients: Sequence[Tensor], steps: int = 1, *, back: Back | None = None) -> None:
        """Steps of every active device down these gradients of its clipped outputs; `back` takes them to its own."""
        s, clip = self.settings, self.uplink_point.mechanism
        sgd = Sgd(rate=s.device_rate, momentum=s.momentum, weight_decay=s.weight_decay)
        slopes = [partial(back or through, clip, gradient) for gradient in gradients]
        self._part.descend(self._passes, slopes, sgd, steps=steps)  # eq. (17)

    def predict(self, blocks: Sequence[Tensor], replicas: int) -> Tensor:
        embeddings = self.outputs_read(blocks, replicas)
        if self.sums:
            return torch.stack(embeddings).sum(0)
        return self.top.apply(first_replicas(self.top_parameters, replicas), torch.cat(embeddings, dim=-1))


def through(mechanism: Mechanism, gradient: Tensor, models: slice, step: int, outputs: Tensor) -> Tensor:
    """The gradient of some models' clipped outputs, back through the clip."""
    return mechanism.pulled_back(outputs, gradient[models])


def gradient_releases(
    settings: UplinkSettings,
    schedule: Schedule,
    *,
    up: str,
    logits: bool,
    sent: NDArray[np.bool_] | None = None,
) -> tuple[Release, ...]:
    """The releases of an engine with embeddings up and exact gradients down; `sent` says who sends, if not `active`.

    A gradient reads the other devices' features through their uplinks alone: where those are noised it is
    post-processing of them, otherwise it is exact in the features too. A device's own model read its raw features.
    """
    uplinks = uplink_releases(settings, schedule, kind=up, sent=schedule.active if sent is None else sent)
    down = NoNoise(depends_on=_LABEL_UNITS if settings.noise_std else frozenset(Unit)).describe(
        kind="logit-gradient" if logits else "embedding-gradient",
        what="exact per-record gradients, server to device",
        rounds=schedule.every_round,
        seen_by=DOWNLINK_READERS,
    )
    model = NoNoise(depends_on=frozenset(Unit)).describe_models("exact gradients", schedule)
    return (*uplinks, down, model)
