"""Scores of a view that knows every other record: log-likelihood ratios of the two worlds."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from vflpriv.ledger import Ledger
from vflpriv.releases import Gaussian
from vflpriv.views import Adversary
from vflpriv.wire import Message

__all__ = ["LikelihoodRatio", "noise_stds", "squares"]


def noise_stds(ledger: Ledger) -> dict[str, float]:
    """The std of each kind of message with Gaussian noise."""
    return {r.kind: r.noise.std for r in ledger.releases if isinstance(r.noise, Gaussian)}


def squares(gap: Tensor) -> Tensor:
    """(R,) summed squares of (R, …)."""
    return gap.square().reshape(len(gap), -1).sum(1)


class LikelihoodRatio:
    """Adds up, message by message, the log-likelihood ratio of world 0 to world 1 for an adversary who knows the rest.

    A Gaussian release X with mean a in world 0 and b in world 1 adds ((X - b)² - (X - a)²) / 2σ². Exact where all
    state is post-processing of releases; otherwise a score as good as any, since bounds do not rest on its form. With
    `rate` nobody knows whether the record was in the batch: both worlds are then mixtures with the mean (a + b)/2 of a
    round without it. What carries no noise needs no statistics: it is in the ledger as unprotected.

    `totals` are the ratios (R,), `strengths` the summed squared distances between the worlds' means in units of the
    noise: the ratio's variance where the batches are known.
    """

    def __init__(self, ledger: Ledger, eyes: Sequence[Adversary], devices: int, rate: float | None = None) -> None:
        self._stds, self._devices, self._rate = noise_stds(ledger), devices, rate
        self._eyes = {str(a): a for a in eyes}
        self.totals: dict[str, Tensor] = {key: torch.zeros(()) for key in self._eyes}
        self.strengths: dict[str, Tensor] = {key: torch.zeros(()) for key in self._eyes}

    def record(self, message: Message) -> None:
        """Take one message into account."""
        if message.kind not in self._stds:
            return
        std = self._stds[message.kind]
        for name, either in message.worlds.items():
            value = message.tensors[name]
            gain = self._log(value, either, 0, std) - self._log(value, either, 1, std)
            apart = squares(either[:, 0] - either[:, 1]) / std**2
            for key, adversary in self._eyes.items():
                if adversary.sees(message, self._devices):
                    self.totals[key] = self.totals[key].to(gain.device) + gain
                    self.strengths[key] = self.strengths[key].to(gain.device) + apart

    def _log(self, value: Tensor, either: Tensor, world: int, std: float) -> Tensor:
        """(R,) log-density in one world, up to a constant."""
        inside = squares(value - either[:, world]) / (-2 * std**2)
        if self._rate is None:
            return inside
        outside = squares(value - either.mean(1)) / (-2 * std**2)
        return torch.logaddexp(inside + math.log(self._rate), outside + math.log1p(-self._rate))
