"""Scores of a view that knows every other record: log-likelihood ratios of the two worlds."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from vflpriv.ledger import Ledger
from vflpriv.releases import Gaussian
from vflpriv.views import View

__all__ = ["likelihood_ratio", "noise_stds", "strength"]


def noise_stds(ledger: Ledger) -> dict[str, float]:
    """The std of each kind of message with Gaussian noise."""
    return {r.kind: r.noise.std for r in ledger.releases if isinstance(r.noise, Gaussian)}


def likelihood_ratio(view: View, ledger: Ledger) -> Tensor:
    """(R,) log-likelihood ratio of world 0 to world 1 for an adversary who knows every other record.

    A Gaussian release X with mean a in world 0 and b in world 1 adds ((X - b)² - (X - a)²) / 2σ². Exact where all
    state is post-processing of releases; otherwise a score as good as any, since bounds do not rest on its form.
    """
    total = torch.zeros(())
    for value, either, std in _moved(view, ledger):
        gap = (value - either[:, 1]).square() - (value - either[:, 0]).square()
        total = total.to(gap.device) + gap.reshape(len(gap), -1).sum(1) / (2 * std**2)
    return total


def strength(view: View, ledger: Ledger) -> Tensor:
    """(R,) summed squared distance between the worlds' means, in units of the noise: the ratio's variance."""
    total = torch.zeros(())
    for _, either, std in _moved(view, ledger):
        gap = (either[:, 0] - either[:, 1]).square()
        total = total.to(gap.device) + gap.reshape(len(gap), -1).sum(1) / std**2
    return total


def _moved(view: View, ledger: Ledger) -> Iterator[tuple[Tensor, Tensor, float]]:
    """Each noised value that the canary moves, its mean in either world, and the noise's std.

    What carries no noise needs no statistics: it is in the ledger as unprotected.
    """
    stds = noise_stds(ledger)
    for message in view.messages:
        for name, either in message.worlds.items() if message.kind in stds else ():
            yield message.tensors[name], either, stds[message.kind]
