"""MixMatch (Berthelot et al. 2019) for several models at once: the loss of a step, and all random draws ahead of it.

Every model has its own labelled records and its own random stream. A draw is a function of the stream and the step, so
that a model is trained alike however many are trained beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from scipy.special import betaincinv
from torch import Tensor
from torch.nn.functional import log_softmax, one_hot, softmax
from torch.nn.utils.rnn import pad_sequence

from vflpriv.common.random import Stream
from vflpriv.core.attack import Auxiliary

__all__ = ["Batch", "MixMatch", "mixup_shares", "uniform_integers"]

_LABELLED, _UNLABELLED, _SHARES, _ORDERS, _NOISE = range(1, 6)
"""Paths of the stream, the step being the second number; 0 is the model's to start from."""
_DRAWN_AT_ONCE = 1 << 20

Models = Callable[[Sequence[Tensor]], Tensor]
"""Logits (R, B, classes) from the rows (R, B, d) of each block."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Batch:
    """The draws of one step, for each of R models: B labelled records with their labels, B unlabelled records, the
    shares λ (R, 1, 1) of mixup, and for each row the row it is mixed with, among the rows of all models.

    `noise` has (R, rows, d) for each block, or nothing without augmentation.
    """

    labelled: Tensor
    targets: Tensor
    unlabelled: Tensor
    share: Tensor
    partners: Tensor
    noise: Sequence[Tensor]


@dataclass(frozen=True, eq=False, kw_only=True)
class MixMatch:
    """The records of R models and how they are trained on them; `features` are the blocks (N, d) that all share.

    `augment` is the std of the noise, on standardised features, that tells two augmentations of a record apart; without
    it there is one copy of each.
    """

    features: Sequence[Tensor]
    auxiliaries: Sequence[Auxiliary]
    classes: int
    batch: int
    sharpness: float
    mixing: float
    augment: float
    stream: Stream

    @property
    def copies(self) -> int:
        """How many augmentations of each unlabelled record there are."""
        return 2 if self.augment else 1

    @property
    def rows(self) -> int:
        """Rows of a batch, labelled ones and all copies of unlabelled ones."""
        return self.batch * (1 + self.copies)

    def batches(self, steps: int) -> Iterator[Batch]:
        """The draws of each step, made for many steps at once."""
        width = sum(f.shape[1] for f in self.features) if self.augment else 1
        piece = max(1, _DRAWN_AT_ONCE // (len(self.auxiliaries) * self.rows * width))
        for first in range(0, steps, piece):
            yield from self._drawn(torch.arange(first, min(first + piece, steps), device=self.stream.keys.device))

    def _drawn(self, steps: Tensor) -> Iterator[Batch]:
        """The draws of these steps; every tensor has the steps as its second axis until it is taken apart."""
        replicas = torch.arange(len(self.auxiliaries), device=steps.device)
        known, labels = (pad_sequence(list(t), batch_first=True) for t in zip(*self._known(), strict=True))
        counts = torch.tensor([len(a.records) for a in self.auxiliaries], device=steps.device)
        chosen = uniform_integers(self.stream, counts[:, None, None], self.batch, _LABELLED, steps)
        labelled, of_labelled = (t[replicas[:, None, None], chosen] for t in (known, labels))
        everyone = torch.tensor(len(self.features[0]), device=steps.device)
        unlabelled = uniform_integers(self.stream, everyone, self.batch, _UNLABELLED, steps)
        shares = mixup_shares(self.mixing, self.stream.uniform(1, _SHARES, steps)).unsqueeze(-1)
        orders = self.stream.uniform(self.rows, _ORDERS, steps).argsort(stable=True, dim=-1)
        partners = orders + self.rows * replicas[:, None, None]
        targets = one_hot(of_labelled, self.classes).to(shares.dtype)
        noise = [self._noise(b, steps) for b in range(len(self.features))] if self.augment else []
        for s in range(len(steps)):
            yield Batch(
                labelled=labelled[:, s],
                targets=targets[:, s],
                unlabelled=unlabelled[:, s],
                share=shares[:, s],
                partners=partners[:, s].flatten(),
                noise=[n[:, s] for n in noise],
            )

    def _known(self) -> list[tuple[Tensor, Tensor]]:
        return [(a.records, a.labels) for a in self.auxiliaries]

    def _noise(self, block: int, steps: Tensor) -> Tensor:
        """(R, steps, rows, d) the noise of one block."""
        features = self.features[block]
        width = features.shape[1]
        normals = self.stream.normal(self.rows * width, _NOISE + block, steps).unflatten(-1, (self.rows, width))
        noise: Tensor = normals * (self.augment * features.std(0))
        return noise

    def loss(self, models: Models, batch: Batch, weight: float) -> Tensor:
        """Cross entropy of the labelled part plus `weight` times the squared error of the unlabelled part.

        The models' losses are added up: the gradient of each is that of its own.
        """
        records = torch.cat([batch.labelled, *[batch.unlabelled] * self.copies], dim=1)
        rows = [f.index_select(0, records.flatten()).unflatten(0, records.shape) for f in self.features]
        if batch.noise:
            rows = [r + n for r, n in zip(rows, batch.noise, strict=True)]
        guess = self._sharpened(models, [r[:, self.batch :] for r in rows])
        targets = torch.cat([batch.targets, *[guess] * self.copies], dim=1)
        *rows, targets = (_mixed(t, batch) for t in (*rows, targets))
        logits, labelled = models(rows), slice(None, self.batch)
        errors = (softmax(logits[:, self.batch :], -1) - targets[:, self.batch :]).square().mean((1, 2))
        entropies = -(targets[:, labelled] * log_softmax(logits[:, labelled], -1)).sum(-1).mean(1)
        return (entropies + weight * errors).sum()

    @torch.no_grad()
    def _sharpened(self, models: Models, rows: Sequence[Tensor]) -> Tensor:
        """(R, B, classes) each model's mean prediction over all copies, sharpened by temperature."""
        copies = zip(*(r.split(self.batch, dim=1) for r in rows), strict=True)
        guess = torch.stack([softmax(models(copy), -1) for copy in copies]).mean(0) ** (1 / self.sharpness)
        return guess / guess.sum(-1, keepdim=True)


def _mixed(rows: Tensor, batch: Batch) -> Tensor:
    """Mixup: every row, combined with another row of the same model."""
    others = rows.flatten(0, 1).index_select(0, batch.partners).view_as(rows)
    return batch.share * rows + (1 - batch.share) * others


def uniform_integers(stream: Stream, below: Tensor, count: int, *path: int | Tensor) -> Tensor:
    """(R, …, count) integers from 0 up to, but not, `below`: a 32-bit word times `below`, without the low 32 bits."""
    words = torch.stack(stream.words(-(-count // 4), *path), dim=-1).flatten(-2)[..., :count]
    return (words * below) >> 32


def mixup_shares(mixing: float, uniform: Tensor) -> Tensor:
    """max(λ, 1 - λ) with λ ~ Beta(a, a), the inverse of its distribution function at uniform numbers."""
    values = betaincinv(mixing, mixing, uniform.cpu().double().numpy())
    return torch.from_numpy(np.maximum(values, 1 - values)).to(uniform)
