"""MixMatch (Berthelot et al. 2019) for several models at once: a step's slope, and all random draws ahead of it.

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
from torch.nn.functional import one_hot, softmax
from torch.nn.utils.rnn import pad_sequence

from vflpriv.common.random import Stream
from vflpriv.core.attack import Auxiliary

__all__ = ["Batch", "MixMatch", "mixup_shares", "uniform_integers"]

_LABELLED, _UNLABELLED, _SHARES, _ORDERS, _NOISE = range(1, 6)
"""Paths of the stream, the step being the second number; 0 is the model's to start from."""
_DRAWN_AT_ONCE = 1 << 20

Models = Callable[[Sequence[Tensor]], Tensor]
"""Logits (R, B, classes) from the rows (G, R, B, d) of each table."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Batch:
    """The draws of one step, for each of R models.

    `records` (R, rows) are B labelled records, then each copy of B unlabelled ones; `targets` (R, B, classes) are the
    labels; `share` (R, 1, 1) is λ of mixup; `partners` has for each row the row it is mixed with, among the rows of all
    models. `noise` has (G, R, rows, d) for each table, or nothing without augmentation.
    """

    records: Tensor
    targets: Tensor
    share: Tensor
    partners: Tensor
    noise: Sequence[Tensor]


@dataclass(frozen=True, eq=False, kw_only=True)
class MixMatch:
    """The records of R models and how they are trained on them.

    `features` are tables (G, N, d) that all models share: G blocks of one width, which are computed together. `augment`
    is the std of the noise, on standardised features, that tells two augmentations of a record apart; without it there
    is one copy of each.
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
        width = sum(len(f) * f.shape[2] for f in self.features) if self.augment else 1
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
        everyone = torch.tensor(self.features[0].shape[1], device=steps.device)
        unlabelled = uniform_integers(self.stream, everyone, self.batch, _UNLABELLED, steps)
        shares = mixup_shares(self.mixing, self.stream.uniform(1, _SHARES, steps)).unsqueeze(-1)
        orders = self.stream.uniform(self.rows, _ORDERS, steps).argsort(stable=True, dim=-1)
        partners = orders + self.rows * replicas[:, None, None]
        targets = one_hot(of_labelled, self.classes).to(shares.dtype)
        noise = self._noise(steps) if self.augment else []
        records = torch.cat([labelled, *[unlabelled] * self.copies], dim=2)
        for s in range(len(steps)):
            yield Batch(
                records=records[:, s],
                targets=targets[:, s],
                share=shares[:, s],
                partners=partners[:, s].flatten(),
                noise=[n[:, :, s] for n in noise],
            )

    def _known(self) -> list[tuple[Tensor, Tensor]]:
        return [(a.records, a.labels) for a in self.auxiliaries]

    def _noise(self, steps: Tensor) -> list[Tensor]:
        """(G, R, steps, rows, d) the noise of each table; every block has a sequence of its own."""
        noise, block = [], 0
        for table in self.features:
            scale, width = self.augment * table.std(1), table.shape[2]
            drawn = [self.stream.normal(self.rows * width, _NOISE + block + g, steps) for g in range(len(table))]
            noise.append(torch.stack(drawn).unflatten(-1, (self.rows, width)) * scale[:, None, None, None])
            block += len(table)
        return noise

    def slope(self, models: Models, batch: Batch, weight: float) -> tuple[Tensor, Tensor]:
        """Logits (R, rows, classes) of the mixed rows, and the derivative of the models' losses by them.

        A model's loss is the cross entropy of the labelled part plus `weight` times the mean squared error of the
        unlabelled part. With probabilities p and targets t that add up to 1, the derivative is (p - t)/B in the one
        part, and 2 weight/(n classes) p ⊙ (d - ⟨p, d⟩) with d = p - t in the n rows of the other.
        """
        rows = [f.index_select(1, batch.records.flatten()).unflatten(1, batch.records.shape) for f in self.features]
        if batch.noise:
            rows = [r + n for r, n in zip(rows, batch.noise, strict=True)]
        guess = self._sharpened(models, [r[:, :, self.batch :] for r in rows])
        targets = torch.cat([batch.targets, *[guess] * self.copies], dim=1)
        logits = models([_mixed(r, batch) for r in rows])
        with torch.no_grad():
            p = _probabilities(logits)
            d = p - _mixed(targets.unsqueeze(0), batch)[0]
            labelled, p, d = d[:, : self.batch] / self.batch, p[:, self.batch :], d[:, self.batch :]
            by_squares = (d - (p * d).sum(-1, keepdim=True)) * p * (2 * weight / (d.shape[1] * self.classes))
            return logits, torch.cat((labelled, by_squares), dim=1)

    @torch.no_grad()
    def _sharpened(self, models: Models, rows: Sequence[Tensor]) -> Tensor:
        """(R, B, classes) each model's mean prediction over all copies, sharpened by temperature."""
        copies = zip(*(r.split(self.batch, dim=2) for r in rows), strict=True)
        logits = [models(copy) for copy in copies]
        mean = torch.stack([_probabilities(z) for z in logits]).mean(0).log() if len(logits) > 1 else logits[0]
        return _probabilities(mean / self.sharpness)


def _probabilities(logits: Tensor) -> Tensor:
    """Softmax over the classes, computed records last: on the CPU that is several times as fast for few classes."""
    return softmax(logits.transpose(1, 2).contiguous(), 1).transpose(1, 2)


def _mixed(rows: Tensor, batch: Batch) -> Tensor:
    """Mixup: every row of (G, R, rows, …), combined with another row of the same model."""
    others = rows.flatten(1, 2).index_select(1, batch.partners).view_as(rows)
    return torch.lerp(others, rows, batch.share)


def uniform_integers(stream: Stream, below: Tensor, count: int, *path: int | Tensor) -> Tensor:
    """(R, …, count) integers from 0 up to, but not, `below`: a 32-bit word times `below`, without the low 32 bits."""
    drawn = torch.stack(stream.words(-(-count // 4), *path), dim=-1).flatten(-2)[..., :count]
    return (drawn * below) >> 32


def mixup_shares(mixing: float, uniform: Tensor) -> Tensor:
    """max(λ, 1 - λ) with λ ~ Beta(a, a), the inverse of its distribution function at uniform numbers."""
    values = betaincinv(mixing, mixing, uniform.cpu().double().numpy())
    return torch.from_numpy(np.maximum(values, 1 - values)).to(uniform)
