"""Convolutions of several devices: all under one `vmap`, or one after the other, by the size of the batch.

Forward and backward pass of stacked models, side by side in one run; times are CPU time of one thread, the least of
several alternating runs. It decides from which batch size on `ModuleModel` computes one model after the other.

    python benchmarks/stacked_modules.py
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from unittest.mock import patch

import torch
from _support import arguments, one_line, seconds, torch_device

from vflpriv.training.models import modules
from vflpriv.training.models.architectures import ConvNet

__all__: list[str] = []

_RUNS = 3
_BATCHES = (64, 256, 512, 1024)
_NETWORKS = {
    "9 devices, 3 x 11 x 11 pixels, 32 to 128 maps": (9, (3, 11, 11), (32, 64, 64, 128)),
    "7 devices, 1 x 4 x 28 pixels, 8 and 16 maps": (7, (1, 4, 28), (8, 16)),
}


def step(model: modules.ModuleModel, devices: int, batch: int) -> Callable[[], object]:
    """A forward and backward pass of all devices."""
    place = torch_device()
    parameters = {n: 0.05 * torch.randn(devices, *shape, device=place) for n, shape in model.shapes.items()}
    rows = torch.randn(devices, batch, model.inputs, device=place)

    def both_ways() -> object:
        leaves = {n: v.detach().requires_grad_() for n, v in parameters.items()}
        return torch.autograd.grad(model.apply(leaves, rows).sum(), list(leaves.values()))

    return both_ways


def main() -> None:
    arguments(argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter))
    torch.set_num_threads(1)
    torch.manual_seed(0)
    for title, (devices, shape, maps) in _NETWORKS.items():
        module = ConvNet(shape, maps, 60, average=len(maps) == 4, activate=True)
        model = modules.ModuleModel(module, inputs=shape[0] * shape[1] * shape[2], key=(title,))
        print(f"\n{title}\n{'batch':>6}{'vmap, ms':>12}{'in turn, ms':>14}{'ratio':>8}")
        for batch in _BATCHES:
            work, best = step(model, devices, batch), {"vmap": float("inf"), "in turn": float("inf")}
            for run in range(1 + _RUNS):
                for name, many in (("vmap", batch + 1), ("in turn", batch)):
                    with patch.object(modules, "_MANY", many):
                        spent = seconds(work)
                    best[name] = min(best[name], spent) if run else best[name]
            together, alone = best["vmap"], best["in turn"]
            print(f"{batch:>6}{1e3 * together:>12.1f}{1e3 * alone:>14.1f}{together / alone:>8.2f}")


if __name__ == "__main__":
    one_line(main)
