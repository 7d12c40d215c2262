"""Peak memory of one device step: zeroth-order with regenerated directions against back-propagation.

Counted is every tensor that a step allocates, until it is freed: directions and the numbers they are drawn from, copies
of parameters, gradients, momentum buffers, activations and outputs. Not counted are the batch and what torch's kernels
take within one operation. A ratio is (parameters + peak) / parameters, which is 1 for a step that needs no memory of
its own. "Forward pass" is what it takes to predict, a few records at a time as lean steps do it.

    python benchmarks/memory.py [--models mlp resnet18 transformer] [--batch 64] [--out memory.json]
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from _support import arguments, one_line, torch_device
from torch import Tensor

from vflpriv.common.random import Stream
from vflpriv.training.memory import LiveBytes
from vflpriv.training.models.architectures import ResNet18
from vflpriv.training.models.base import Mlp, Model, descend, initialise, size_of
from vflpriv.training.models.finite_differences import Directions, Shift, Velocity, move_along, nearby
from vflpriv.training.models.modules import ModuleModel
from vflpriv.training.models.transformer import Encoder, EncoderShape

__all__: list[str] = []

_TOKENS, _WORDS = 64, 30522
_PERTURBED = 5
"""As the DPZV paper has VFL-CZOFO."""
_STEPS = 3
"""With momentum: memory does not grow with what more steps would remember."""


class Device:
    """One device's model, parameters and batch, and the ways to train it for a step."""

    def __init__(self, model: Model, batch: Tensor) -> None:
        self.model, self.batch = model, batch.to(torch_device())
        self.parameters = initialise(model, Stream.of(0, "init", [0], torch_device()), 0)

    def forward(self) -> None:
        self.model.apply_sparingly(self.parameters, self.batch)

    def zeroth_order(self, *, lean: bool, momentum: float) -> None:
        directions = Directions(Stream.of(0, "directions", [0], torch_device()), [self.model], None, lean=lean)
        velocity = Velocity()
        for round_ in range(_STEPS if momentum else 1):
            direction = directions.at(round_, 0)
            plus, minus = nearby(self.model, self.parameters, self.batch).either_side(Shift(direction, 1e-3))
            scalar = (plus - minus).mean((1, 2))
            del plus, minus
            move_along(self.parameters, direction, scalar, rate=1e-3, momentum=momentum, velocity=velocity)

    def one_sided(self) -> None:
        """ZOO-VFL: the loss at the parameters and at one point beside them."""
        direction = Directions(Stream.of(0, "directions", [0], torch_device()), [self.model], None).at(0, 0)
        outputs = nearby(self.model, self.parameters, self.batch)
        shift = Shift(direction, 1e-3)
        scalar = (outputs.ahead(shift) - outputs.here()).mean((1, 2))
        move_along(self.parameters, direction, scalar, rate=1e-3, momentum=0.0, velocity=Velocity())

    def first_order(self, perturbed: int = 0) -> None:
        """With perturbed embeddings it is VFL-CZOFO: their losses estimate the gradient that goes back."""
        with torch.enable_grad():
            leaves = {name: value.detach().requires_grad_() for name, value in self.parameters.items()}
            output = self.model.apply(leaves, self.batch)
        returned = torch.ones_like(output)
        if perturbed:
            directions = torch.randn(perturbed, *output.shape, device=output.device)
            losses = (output.detach() + 1e-3 * directions).mean((2, 3), keepdim=True)
            returned = (losses * directions).mean(0)
        gradient = torch.autograd.grad(output, list(leaves.values()), returned)
        descend(self.parameters, dict(zip(leaves, gradient, strict=True)), rate=1e-3, momentum=0.0, velocity={})

    def steps(self) -> Mapping[str, Callable[[], None]]:
        return {
            "forward pass": self.forward,
            "dpzv, lean": lambda: self.zeroth_order(lean=True, momentum=0.0),
            "dpzv, lean, momentum 0.9": lambda: self.zeroth_order(lean=True, momentum=0.9),
            "dpzv, directions held": lambda: self.zeroth_order(lean=False, momentum=0.0),
            "dpzv, held, momentum 0.9": lambda: self.zeroth_order(lean=False, momentum=0.9),
            "zoo-vfl": self.one_sided,
            "vfl-czofo": lambda: self.first_order(_PERTURBED),
            "back-propagation (vafl, split)": self.first_order,
        }


def _mlp(batch: int) -> Device:
    return Device(Mlp([1024] * 13, activate=True), torch.rand(batch, 1024))


def _resnet18(batch: int) -> Device:
    with torch.device("meta"):
        module = ResNet18((3, 32, 32), 64, width=64, activate=True)
    return Device(ModuleModel(module, inputs=3 * 32 * 32, key=()), torch.rand(batch, 3 * 32 * 32))


def _transformer(batch: int) -> Device:
    """The sizes of MiniLM-L6, half of whose parameters are one table of word vectors."""
    shape = EncoderShape(
        vocabulary=_WORDS, positions=512, width=384, inner=1536, heads=12, layers=6, kinds=2, epsilon=1e-12
    )
    with torch.device("meta"):
        module = Encoder(shape, shape.layers, 64, activate=True)
    return Device(ModuleModel(module, inputs=_TOKENS, key=()), torch.randint(1, _WORDS, (batch, _TOKENS)))


_DEVICES: Mapping[str, tuple[str, Callable[[int], Device]]] = {
    "mlp": ("MLP, 12 layers of width 1024", _mlp),
    "resnet18": ("ResNet-18 on 32x32 images", _resnet18),
    "transformer": (f"transformer with the sizes of MiniLM-L6, {_TOKENS} tokens", _transformer),
}


def peak_of(step: Callable[[], None]) -> int:
    """The most bytes that were alive at once during a step."""
    with torch.no_grad(), LiveBytes() as tracker:
        step()
    return tracker.peak


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=list(_DEVICES), default=list(_DEVICES))
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--out", type=Path, help="a file for the ratios, as benchmarks/results/memory.json")
    options = arguments(parser)
    torch.manual_seed(0)
    ratios: dict[str, dict[str, float]] = {}
    for name in options.models:
        title, build = _DEVICES[name]
        device = build(options.batch)
        own = 4 * size_of(device.model)
        print(f"{title}: {own / 2**20:.1f} MiB; batch {options.batch}")
        print(f"  {'step':<34}{'peak besides the model':>24}{'ratio':>8}")
        for step, run in device.steps().items():
            peak = peak_of(run)
            ratios.setdefault(name, {})[step] = (own + peak) / own
            print(f"  {step:<34}{peak / 2**20:>20.1f} MiB{ratios[name][step]:>8.2f}", flush=True)
    if options.out:
        result = {"command": "python benchmarks/memory.py", "batch": options.batch, "ratios": ratios}
        options.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    one_line(main)
