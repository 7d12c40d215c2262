"""Peak memory of one device step: zeroth-order with regenerated directions against back-propagation.

Every tensor that a step allocates is tracked until it is freed. Reported are the peak in addition to the parameters and
the batch, and the ratio (parameters + peak) / parameters, which is 1 for a step that needs no memory of its own.

    python benchmarks/memory.py [--width 1024] [--layers 12] [--batch 64]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import torch
from _support import arguments, torch_device

from vflpriv.common.random import Stream
from vflpriv.training.memory import LiveBytes
from vflpriv.training.models.base import Mlp, descend, initialise, size_of
from vflpriv.training.models.directions import Directions, move_along
from vflpriv.training.models.nearby import Shift, nearby

__all__: list[str] = []


def peak_of(step: Callable[[], object]) -> int:
    """The most bytes that were alive at once during a step."""
    with LiveBytes() as tracker:
        step()
    return tracker.peak


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--batch", type=int, default=64)
    options = arguments(parser)
    model = Mlp([options.width] * (options.layers + 1), activate=True)
    stream = Stream.of(0, "directions", [0], torch_device())
    parameters = initialise(model, Stream.of(0, "init", [0], torch_device()), 0)
    features = torch.randn(options.batch, options.width, generator=torch.Generator().manual_seed(0)).to(torch_device())
    own = 4 * size_of(model)

    def zeroth_order(lean: bool) -> None:
        direction = Directions(stream, [model], None, lean=lean).at(0, 0)
        plus, minus = nearby(model, parameters, features).either_side(Shift(direction, 1e-3))
        scalar = (plus - minus).mean((1, 2))
        move_along(parameters, direction, scalar, rate=1e-3, momentum=0.0, velocity={})

    def first_order() -> None:
        leaves = {name: value.detach().requires_grad_() for name, value in parameters.items()}
        output = model.apply(leaves, features)
        gradient = torch.autograd.grad(output, list(leaves.values()), torch.ones_like(output))
        descend(parameters, dict(zip(leaves, gradient, strict=True)), rate=1e-3, momentum=0.0, velocity={})

    model_size = f"{options.layers} layers of width {options.width}, {own / 2**20:.1f} MiB"
    print(f"device model: {model_size}; batch {options.batch}")
    print(f"{'step':<34}{'peak besides the model':>24}{'ratio':>8}")
    with torch.no_grad():
        rows = {
            "dpzv, directions regenerated": peak_of(lambda: zeroth_order(True)),
            "dpzv, directions held": peak_of(lambda: zeroth_order(False)),
        }
    rows["back-propagation (vafl, split)"] = peak_of(first_order)
    for name, peak in rows.items():
        print(f"{name:<34}{peak / 2**20:>20.1f} MiB{(own + peak) / own:>8.2f}")


if __name__ == "__main__":
    main()
