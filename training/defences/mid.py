"""MID: the server reads what devices send through a variational bottleneck that lets little information pass."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pydantic import Field

from vflpriv.common.lazy import torch
from vflpriv.common.registry import register
from vflpriv.core.kinds import Content
from vflpriv.training.defence import Defence, Exchange, Guard, Protected
from vflpriv.training.models.base import Mlp, Parameters, first_replicas, initialise

if TYPE_CHECKING:
    from torch import Tensor

    from vflpriv.core.law import Draws

__all__ = ["Bottleneck", "MutualInformation"]

_SHIFT = 0.5
"""What the published code takes off before the softplus of a deviation."""


@register("defence")
class MutualInformation(Defence):
    """Each device's output H passes a layer T = decoder(μ(H) + σ(H)·ξ), ξ normal; the loss has weight·KL beside it.

    "Mutual Information Regularization for Vertical Federated Learning" (Zou et al. 2023), at the party with the labels:
    KL(N(μ, σ²) ‖ N(0, 1)), the mean over a batch, bounds the information that T has of H, so that devices' models are
    taught little of the labels. The layer is the server's, one for each device; its gradient goes on to the device.
    As in the published code the encoder is linear and the decoder has one hidden layer of five times the width; unlike
    there neither ends in a ReLU, which would cut off the negative logits of engines without a top model, and
    predictions take the mean, ξ = 0. It promises no ε.
    """

    name = "mid"
    summary = "the server reads devices' outputs through a noisy bottleneck that lets little information pass"
    source = "Zou et al. 2023, MID"
    content = Content.GRADIENT
    weight: float = Field(0.01, ge=0, description="λ, the weight of the mean KL divergence beside the mean loss")
    rate: float = Field(0.3, gt=0, description="learning rate of the layer, whose gradient is scaled to norm 1 at most")

    def guard(self, stream: Draws) -> Guard:
        return _Narrowed(self, stream)


class Bottleneck:
    """The layer of one device, R replicas of it, for outputs of this width."""

    def __init__(self, stream: Draws, width: int, party: int) -> None:
        self._encoder = Mlp((width, 2 * width), activate=False)
        self._decoder = Mlp((width, 5 * width, width), activate=False)
        self.parameters = {
            f"{half}.{name}": value
            for k, (half, model) in enumerate((("encoder", self._encoder), ("decoder", self._decoder)))
            for name, value in initialise(model, stream, 2 * party + k).items()
        }

    def moments(self, parameters: Parameters, values: Tensor) -> tuple[Tensor, Tensor]:
        """μ and σ, (R, B, width) each, of outputs (R, B, width)."""
        mean, raw = self._encoder.apply(_half(parameters, "encoder"), values).chunk(2, dim=-1)
        return mean, torch.nn.functional.softplus(raw - _SHIFT)

    def decode(self, parameters: Parameters, passed: Tensor) -> Tensor:
        """T (R, B, width) of what passed the bottleneck."""
        return self._decoder.apply(_half(parameters, "decoder"), passed)


def _half(parameters: Parameters, name: str) -> dict[str, Tensor]:
    own = (key for key in parameters if key.startswith(f"{name}."))
    return {key.removeprefix(f"{name}."): parameters[key] for key in own}


def divergence(mean: Tensor, deviation: Tensor) -> Tensor:
    """(R,) mean over the records of KL(N(μ, σ²) ‖ N(0, 1)), from (R, B, width) each."""
    of_entry = 0.5 * (mean.square() + deviation.square() - 1) - deviation.clamp(min=1e-12).log()
    return of_entry.sum(dim=(1, 2)) / max(1, mean.shape[1])


@dataclass(frozen=True, eq=False, kw_only=True)
class _Passed:
    """What is needed to go back through a layer: its inputs and outputs with their graph, and the weighted KL (R,)."""

    inputs: Tensor
    parameters: dict[str, Tensor]
    outputs: Tensor
    penalty: Tensor


class _Narrowed(Guard):
    for_each_device = True

    def __init__(self, defence: MutualInformation, stream: Draws) -> None:
        self._weight, self._rate, self._stream = defence.weight, defence.rate, stream
        self._layers: dict[int, Bottleneck] = {}
        self._passed: dict[int, _Passed] = {}

    def _layer(self, party: int, width: int) -> Bottleneck:
        if party not in self._layers:
            self._layers[party] = Bottleneck(self._stream, width, party)
        return self._layers[party]

    def received(self, values: Tensor, round_: int, party: int) -> Tensor:
        rows, width = values.shape[1:]
        layer = self._layer(party, width)
        # The paths of first values have two numbers, the third of which counts as 0.
        noise = self._stream.normal(rows * width, round_, party, 1).reshape(values.shape)
        with torch.enable_grad():
            inputs = values.detach().requires_grad_()
            parameters = {name: value.detach().requires_grad_() for name, value in layer.parameters.items()}
            mean, deviation = layer.moments(parameters, inputs)
            outputs = layer.decode(parameters, mean + deviation * noise)
            penalty = self._weight * divergence(mean, deviation)
        self._passed[party] = _Passed(inputs=inputs, parameters=parameters, outputs=outputs, penalty=penalty)
        return outputs.detach()

    def protect(self, values: Tensor, exchange: Exchange) -> Protected:
        """The gradient of what the device sent, from that of the layer's output; the layer takes its own step."""
        passed, layer = self._passed.pop(exchange.party), self._layers[exchange.party]
        wanted = [passed.inputs, *passed.parameters.values()]
        slopes = [values, torch.ones_like(passed.penalty)]
        by_inputs, *by_parameters = torch.autograd.grad([passed.outputs, passed.penalty], wanted, slopes)
        flat = torch.cat([gradient.flatten(1) for gradient in by_parameters], dim=1)
        kept = flat.norm(dim=1).clamp(min=1.0).reciprocal()
        for name, gradient in zip(passed.parameters, by_parameters, strict=True):
            scale = kept.reshape(-1, *(1 for _ in gradient.shape[1:]))
            layer.parameters[name].sub_(scale * gradient, alpha=self._rate)
        return Protected(values=by_inputs)

    def read(self, values: Tensor, party: int) -> Tensor:
        layer = self._layer(party, values.shape[-1])
        parameters = first_replicas(layer.parameters, len(values))
        return layer.decode(parameters, layer.moments(parameters, values)[0])

    def parameters(self) -> Mapping[str, Tensor]:
        return {f"{m}.{n}": value for m, layer in sorted(self._layers.items()) for n, value in layer.parameters.items()}
