"""VAFL: the server keeps every device's last embeddings; asynchronous, and the base of the t-synchronous variant.

"VAFL: a Method of Vertical Asynchronous Federated Learning" (Chen et al. 2020), Algorithm 1; equation and theorem
numbers are that paper's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, ValidationInfo, field_validator

from vflpriv.common.lazy import no_grad, torch
from vflpriv.common.registry import register
from vflpriv.core.claims import Claim
from vflpriv.core.releases import Release
from vflpriv.core.schedules import Schedule
from vflpriv.core.units import Unit
from vflpriv.core.views import DOWNLINK_READERS, UPLINK_READERS, Belongings
from vflpriv.core.wire import Payload
from vflpriv.training.downlink import DownlinkSettings, GradientGuard
from vflpriv.training.engine import Engine
from vflpriv.training.engines.split import gradient_releases, through
from vflpriv.training.held import table_of_outputs
from vflpriv.training.mechanisms.base import NoNoise
from vflpriv.training.mechanisms.uplink import Emptied
from vflpriv.training.model_factory import device_models, output_width, server_model
from vflpriv.training.models.bank import Bank
from vflpriv.training.models.base import Model, Parameters, first_replicas, initialise, loss_gradient
from vflpriv.training.models.layers import join_rows
from vflpriv.training.models.mlp import FusedMlp, NoisyMlp, RandomNeurons
from vflpriv.training.models.passes import Pass, Sgd, start
from vflpriv.training.settings import AggregationSettings, AsyncSettings, TopSettings
from vflpriv.training.uplink import UplinkSettings, client_claims, client_noise, row_noise, uplink_mechanisms

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Refreshes", "Vafl", "VaflEngine", "VaflSettings", "VaflSharedSettings", "senders", "stale_positions"]

_INSIDE = "pre-activations"
"""Releases that are noised inside the activation; no message carries them, only what the activation makes of them."""
Positions = Mapping[int, NDArray[np.int64]]
"""Positions in a round's batch, by device."""


class VaflSharedSettings(AggregationSettings, UplinkSettings, DownlinkSettings, TopSettings):
    """Settings of both variants.

    VAFL's random neurons are `hidden_noise` and `noise_std`, as published with `protection = "unclipped"` and
    `noise_place = "activation"`; with `protection = "embedding"` what they are added to is bounded.
    """

    aggregation: Literal["concat", "sum", "weighted"] = Field(
        "concat",
        description="concatenated embeddings, summed logits without a server model, or a learned linear combination",
    )
    combination_rate: float | None = Field(
        None, gt=0, description="learning rate of the combination's weights; the server's if not given"
    )
    regulariser: float = Field(0.0, ge=0, description="ℓ2 regulariser of the devices; 0.001 in the logistic runs")
    noise_place: Literal["output", "activation"] = Field(
        "output",
        description="where the uplink is clipped and noised: the embedding that is sent, or inside the activation of "
        "the last layer, eq. (10)",
    )
    hidden_noise: float | tuple[float, ...] = Field(
        0.0,
        description="c_l, std of the uniform noise inside the activations of hidden layers, eq. (11b), of an MLP or "
        "of the convolutions of cnn2 and cnn4: one number for all of them, or one for each",
    )
    max_delay: int | None = Field(
        None, ge=1, description="D, rounds after which a stored embedding is asked for anew; unbounded if not given"
    )

    @field_validator("hidden_noise", mode="before")
    @classmethod
    def _not_negative(cls, value: object) -> object:
        numbers = value if isinstance(value, list | tuple) else (value,)
        if not all(isinstance(n, int | float) and not isinstance(n, bool) and n >= 0 for n in numbers):
            raise ValueError("a number >= 0, or a list with one for each hidden layer")
        return value if numbers == (value,) else tuple(float(n) for n in numbers)

    @field_validator("hidden_noise")
    @classmethod
    def _at_hidden_layers(cls, value: float | tuple[float, ...], info: ValidationInfo) -> float | tuple[float, ...]:
        bottom, hidden = info.data.get("bottom"), info.data.get("hidden", ())
        layers = {"mlp": len(hidden), "cnn2": 2, "cnn4": 4}.get(str(bottom))
        if value and layers is None:
            raise ValueError(f"nothing with bottom = {bottom!r}: only mlp, cnn2 and cnn4 have hidden layers with noise")
        if isinstance(value, tuple) and len(value) != layers:
            raise ValueError(f"one number, or {layers}, one for each hidden layer")
        return value

    @field_validator("noise_place")
    @classmethod
    def _in_an_activation(cls, value: str, info: ValidationInfo) -> str:
        if value == "output":
            return value
        if info.data.get("aggregation") == "sum":
            raise ValueError("output where logits are summed, which have no activation")
        if info.data.get("bottom") in ("resnet18-stem", "transformer-embedding"):
            raise ValueError(f"output with bottom = {info.data['bottom']!r}, which has no activation")
        if info.data.get("protection") == "none":
            raise ValueError("output with protection = 'none': there is neither clip nor noise to place")
        return value

    @property
    def emptied(self) -> Emptied:
        return Emptied.ANYTHING if self.noise_place == "activation" else super().emptied

    @property
    def assumes_bound(self) -> bool:
        return True  # Theorem 6 is about embeddings of a bounded range


class VaflSettings(VaflSharedSettings, AsyncSettings):
    """Settings of asynchronous VAFL."""


class VaflEngine(Engine):
    """Devices send (noised) embeddings, are sent the gradient of these, and go down it by the chain rule.

    Both gradients are taken at the server's model θ0 of the round, as eqs (2a) and (2b) have it. The embeddings of
    devices that are not active are those they sent last, zero before their first; with `max_delay` too old ones are
    asked for anew. All devices of a round work on the same batch, so that its mean gradient is the mean over them.
    """

    settings: VaflSharedSettings
    top: Model

    mechanisms = staticmethod(uplink_mechanisms)

    @staticmethod
    def releases(settings: VaflSharedSettings, schedule: Schedule) -> tuple[Release, ...]:
        """Embeddings (or logits) up, active or asked; exact gradients down; and the trained models.

        A refreshed batch counts with all its records, although only those that are too old are asked for.
        """
        sent = senders(schedule, settings.max_delay)
        exchanged = gradient_releases(
            settings, schedule, up=_released_kind(settings), logits=settings.aggregation == "sum", sent=sent
        )
        if _released_kind(settings) == _INSIDE:
            activated = NoNoise(depends_on=frozenset()).describe(
                kind="embeddings",
                what="embeddings, device to server: the activation of the noised sums, and of nothing else",
                rounds=np.asarray(sent.any(axis=1)),
                seen_by=UPLINK_READERS,
            )
            sums = [replace(r, sent_as="embeddings") if r.kind == _INSIDE else r for r in exchanged]
            exchanged = (*sums, activated)
        if settings.max_delay is None:
            return exchanged
        request = NoNoise(depends_on=frozenset()).describe(
            kind="refresh-request",
            what="the ids of records whose embeddings are too old; they follow from the schedule alone",
            rounds=np.asarray((sent & ~schedule.active).any(axis=1)),
            seen_by=DOWNLINK_READERS,
        )
        return (*exchanged, request)

    @staticmethod
    def claims(settings: VaflSharedSettings, schedule: Schedule) -> tuple[Claim, ...]:
        """Theorem 6 where embeddings are noised row by row, VIMADMM Theorem 2 where by the batch.

        Without a clip Theorem 6 still takes their range to be bounded: `clip` is the bound, and nothing enforces it.
        """
        if settings.protection not in ("embedding", "unclipped") or not settings.noise_std:
            return client_claims(settings, schedule)
        premise = ""
        if settings.protection == "unclipped":
            premise = f", if embeddings stay within a radius of {settings.clip:g}, which nothing enforces"
        steps = int(schedule.active.sum(axis=0).max(initial=0))
        readings = (
            ("steps", steps, "the steps of the device, as in the proof (Abadi et al. 2016, Theorem 1)"),
            ("samples", steps * schedule.batch_size, "the data samples that the device has processed, as in the text"),
        )
        diameter = 2 * settings.clip
        # Eq. (15), c = O(N_m √K / (μN)), with the diameter S of the embeddings as its constant.
        mu = diameter * schedule.batch_size / (settings.noise_std * schedule.records)
        return tuple(
            Claim.of_mu(
                mu * math.sqrt(count),
                settings.delta,
                key=f"vafl-{reading}",
                source="VAFL",
                where=f"Theorem 6, K = {reading}",
                statement=f"last-layer noise c = O(N_m√K/(μN)) gives μ-GDP for the data of a device{premise}; "
                f"K is {meaning}",
                unit=Unit.FEATURES,
                view="server",
            )
            for reading, count, meaning in readings
        )

    @staticmethod
    def published_noise(settings: VaflSharedSettings, schedule: Schedule) -> float:
        """Theorem 6 in the reading of its text, for the clip of each row; VIMADMM's Theorem 2 for that of a batch."""
        formula = client_noise if settings.protection == "client" else row_noise
        return formula(settings, schedule)

    def setup(self) -> None:
        s, devices = self.settings, self.data.devices
        self.sums = s.aggregation == "sum"
        self.width = output_width(s, self.data)
        self._inside = s.noise_place == "activation"
        activate, noisy = not (self.sums or self._inside), partial(NoisyMlp, noise=s.hidden_noise)
        models = device_models(s, self.data, self.width, activate=activate, mlp=noisy, neurons=s.hidden_noise)
        self.bank = Bank(models, self.stream("init"))
        self._make_top(devices)
        kind, mechanism = _released_kind(s), self.mechanisms(s, self.schedule)["embeddings"]
        self.uplink_point = self.release_point(kind, mechanism, internal=kind == _INSIDE)
        self._noised_sums: dict[int, Tensor] = {}
        self._guard = GradientGuard(s, self.stream)
        self._neurons = self.stream("noise") if s.hidden_noise else self.public_stream("init")
        self._refreshes = Refreshes(self.schedule, s.max_delay, self.torch_device)
        # Where all devices send in every round nothing is ever stale, and no table is needed.
        self.stale = not bool(self.schedule.active.all())
        records = self.data.records if self.stale else 0
        self.table = table_of_outputs(records, len(self.replicas), devices * self.width, self.torch_device)
        self._velocity: dict[str, Tensor] = {}
        self._part = self.bank
        self._passes: list[Pass] = []

    def _make_top(self, devices: int) -> None:
        self.top = server_model(self.settings, self.data, mlp=FusedMlp)
        self.top_parameters = {} if self.sums else initialise(self.top, self.stream("init"), devices)
        if self.settings.aggregation == "weighted":
            shape = (len(self.replicas), devices)
            self.top_parameters["combination"] = torch.full(shape, 1 / devices, device=self.torch_device)

    # Devices -------------------------------------------------------------------------------------------------------

    @no_grad
    def uplinks(self, round_: int, members: Sequence[int], records: Tensor) -> Mapping[int, Payload]:
        self._part = self.bank.part(members)
        self._passes = self._start(self._part, round_, records)
        outputs = self._part.split(self._clipped(self._passes))
        return {m: self._released(round_, m, records, output) for m, output in zip(members, outputs, strict=True)}

    def _start(self, part: Bank, round_: int, records: Tensor) -> list[Pass]:
        """A pass of each group, with fresh noise at hidden layers."""
        noised = self.settings.hidden_noise
        neurons = [self._drawn(part, group, round_, len(records)) for group in part.groups] if noised else None
        return part.start(part.inputs(self.data, records), neurons)

    def _clipped(self, passes: Sequence[Pass]) -> list[Tensor]:
        return [self.uplink_point.mechanism.noiseless(own.outputs) for own in passes]

    def _drawn(self, part: Bank, group: Sequence[int], round_: int, records: int) -> Parameters:
        model = part.models[group[0]]
        assert isinstance(model, RandomNeurons)
        return model.neurons(self._neurons, records, round_, [part.members[k] for k in group])

    def _released(self, round_: int, m: int, records: Tensor, output: Tensor) -> Payload:
        sent = self.uplink_point.rows(round_, m, records, {"embedding": output})
        if self._inside:
            self._noised_sums[m] = sent["embedding"]
            sent = {"embedding": torch.relu(sent["embedding"])}  # eq. (10)
        return Payload("logits" if self.sums else "embeddings", sent)

    def questions(self, round_: int) -> Mapping[int, Tensor]:
        return self._refreshes.at(round_)

    @no_grad
    def answer(self, round_: int, m: int, records: Tensor) -> Payload:
        (output,) = self._clipped(self._start(self.bank.part([m]), round_, records))
        return self._released(round_, m, records, output)

    def updates(self, round_: int, records: Tensor, replies: Mapping[int, Mapping[str, Tensor]]) -> None:
        s, part = self.settings, self._part
        gradients = part.join([self._through_activation(m, replies[m]["gradient"]) for m in part.members])
        slopes = [partial(through, self.uplink_point.mechanism, gradient) for gradient in gradients]
        sgd = Sgd(rate=s.device_rate, momentum=s.momentum, weight_decay=s.regulariser + s.weight_decay)
        part.descend(self._passes, slopes, sgd)  # eq. (4a)

    def _through_activation(self, m: int, gradient: Tensor) -> Tensor:
        """The gradient of the noised sums that device m sent the activation of; without one in between, the same."""
        return gradient * (self._noised_sums[m] > 0) if self._inside else gradient

    def device_outputs(self, blocks: Sequence[Tensor], replicas: int) -> list[Tensor]:
        outputs = super().device_outputs(blocks, replicas)
        return [torch.relu(own) for own in outputs] if self._inside else outputs

    def belongings(self, m: int) -> Belongings:
        own = super().belongings(m)
        return replace(own, apply=_Activated(own.apply)) if self._inside else own

    # Server --------------------------------------------------------------------------------------------------------

    def receive(self, m: int, records: Tensor, answer: Mapping[str, Tensor]) -> None:
        columns = slice(m * self.width, (m + 1) * self.width)
        self.table[:, :, columns].index_copy_(0, records, answer["embedding"].transpose(0, 1))

    @no_grad
    def serve(self, round_: int, records: Tensor, uplinks: Mapping[int, Mapping[str, Tensor]]) -> Mapping[int, Payload]:
        by_device = self._learn(self._held(records, uplinks), records)
        kind = "logit-gradient" if self.sums else "embedding-gradient"
        # Of its own memory where most is not sent, so that a recorded message does not keep the rest.
        own = {m: by_device[m].clone() if self.stale else by_device[m] for m in uplinks}
        sent = {m: self._guard.protect(gradient, round_, m) for m, gradient in own.items()}
        return {m: Payload(kind, {"gradient": gradient}) for m, gradient in sent.items()}  # eq. (2b)

    def _learn(self, held: Sequence[Tensor], records: Tensor) -> Sequence[Tensor]:
        """θ0 by eq. (2a) and the weights of the combination at their own rate; the gradient of what devices sent."""
        s, weights = self.settings, self.top_parameters.get("combination")
        if self.sums:
            return [self._slope(torch.stack(list(held)).sum(0), records)] * len(held)
        sgd = Sgd(rate=s.server_rate, momentum=s.top_momentum, weight_decay=s.weight_decay)
        own = {name: value for name, value in self.top_parameters.items() if name != "combination"}
        joined = start(self.top, own, self._joined(self.top_parameters, held), fixed=False)
        by_joined = joined.descend_and_return(self._slope(joined.outputs, records), self._velocity, sgd)
        if weights is None:
            return list(by_joined.split(self.width, dim=-1))
        by_device = [weights[:, m, None, None] * by_joined for m in range(len(held))]
        by_weight = torch.stack([(own * by_joined).sum((1, 2)) for own in held], dim=1)
        weights.sub_(by_weight, alpha=s.combination_rate or s.server_rate)
        return by_device

    def _slope(self, logits: Tensor, records: Tensor) -> Tensor:
        """The gradient of the batch's mean loss by the logits."""
        return loss_gradient(logits, self.labels_of(records, lambda: logits), self.schedule.batch_size)

    def _held(self, records: Tensor, uplinks: Mapping[int, Mapping[str, Tensor]]) -> Sequence[Tensor]:
        """(R, B, width) of each device: what the server holds of this batch once it has noted what it was sent."""
        if not self.stale:
            return [uplinks[m]["embedding"] for m in sorted(uplinks)]
        for m, sent in uplinks.items():
            self.receive(m, records, sent)
        return list(self.table.index_select(0, records).transpose(0, 1).split(self.width, dim=-1))

    def _joined(self, parameters: Parameters, held: Sequence[Tensor]) -> Tensor:
        """What the server's model reads: the devices' embeddings side by side, or their combination."""
        if "combination" not in parameters:
            return join_rows(held, 2)
        weights = parameters["combination"][..., None, None].unbind(1)
        combined = weights[0] * held[0]
        for weight, own in zip(weights[1:], held[1:], strict=True):
            combined.addcmul_(weight, own)
        return combined

    def predict(self, blocks: Sequence[Tensor], replicas: int) -> Tensor:
        held, parameters = self.outputs_read(blocks, replicas), first_replicas(self.top_parameters, replicas)
        return torch.stack(held).sum(0) if self.sums else self.top.apply(parameters, self._joined(parameters, held))


@dataclass(frozen=True)
class _Activated:
    """A model and the activation behind it; equal for the same model."""

    apply: Callable[[Parameters, Tensor], Tensor]

    def __call__(self, parameters: Parameters, inputs: Tensor) -> Tensor:
        return torch.relu(self.apply(parameters, inputs))


def _released_kind(settings: VaflSharedSettings) -> str:
    """What clip and noise are applied to: what is sent, or sums whose activation is sent."""
    if settings.noise_place == "activation" and settings.noise_std:
        return _INSIDE
    return "logits" if settings.aggregation == "sum" else "embeddings"


@register("engine")
class Vafl(VaflEngine):
    """One device a round, on a batch of its own; the other devices' embeddings are as old as their last visit.

    Theorem 6 claims μ = S·N_m√K/(cN) for a record's features before the server (noise std c, S = 2·`clip`). Its text
    calls K the data samples processed, its proof counts steps: there is a claim for either reading, √N_m apart. Each of
    these messages carries the record's own row, tagged with its id: nothing is averaged, and the rows alone give
    (S/c)·√n in n rounds of that record. Labels are not covered: gradients are exact.
    """

    name = "vafl"
    summary = "first-order, asynchronous; noised embeddings up, exact per-record gradients down"
    source = "VAFL, Algorithm 1"
    settings_type = VaflSettings
    asynchronous = True


def stale_positions(schedule: Schedule, max_delay: int | None) -> list[Positions]:
    """For every round and inactive device, the positions in the batch whose stored embedding is too old, or missing.

    When the delay τ of eq. (3) exceeds D = `max_delay`, the server asks for a new embedding (rule 1), which is then as
    recent as those of the round's active devices. Without a bound nothing is asked for.
    """
    if max_delay is None:
        return [{}] * schedule.rounds
    last = np.full((schedule.records, schedule.devices), -1, dtype=np.int64)
    positions: list[Positions] = []
    for t in range(schedule.rounds):
        ids, active = schedule.batch(t), schedule.active[t]
        previous = last[ids]
        stale = ((previous < 0) | (t - previous > max_delay)) & ~active
        positions.append({int(m): np.flatnonzero(stale[:, m]) for m in np.flatnonzero(stale.any(axis=0))})
        last[ids] = np.where(stale | active, t, previous)
    return positions


def senders(schedule: Schedule, max_delay: int | None) -> NDArray[np.bool_]:
    """(rounds, devices): whether a device sends embeddings, since it is active or since the server asks for some."""
    sent = schedule.active.copy()
    for t, stale in enumerate(stale_positions(schedule, max_delay)):
        sent[t, list(stale)] = True
    return sent


class Refreshes:
    """The records that the server asks each device for, in every round of a run.

    All ids are copied to the torch device before training, so that no round waits for the host.
    """

    def __init__(self, schedule: Schedule, max_delay: int | None, torch_device: torch.device) -> None:
        ids: list[NDArray[np.int64]] = []
        self._ranges: list[dict[int, slice]] = []
        end = 0
        for t, stale in enumerate(stale_positions(schedule, max_delay)):
            self._ranges.append({})
            for m, positions in stale.items():
                ids.append(schedule.batch(t)[positions])
                self._ranges[t][m] = slice(end, end + len(positions))
                end += len(positions)
        self._ids = torch.from_numpy(np.concatenate(ids or [np.empty(0, dtype=np.int64)])).to(torch_device)

    def at(self, round_: int) -> dict[int, Tensor]:
        """The ids of the records that the server asks each device for in this round."""
        return {m: self._ids[ids] for m, ids in self._ranges[round_].items()}
