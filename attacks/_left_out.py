"""A classifier on what an adversary knows of each record, which predicts a label from all other records' labels."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from vflpriv.attacks._base import own_features
from vflpriv.attacks._embeddings import embeddings_of, without_embeddings
from vflpriv.attacks._estimators import standardised
from vflpriv.common.random import Stream
from vflpriv.core.attack import Auxiliary
from vflpriv.core.views import View

__all__ = ["LeftOut", "known_rows"]

_WAVES = 128
"""Random features beside the linear ones."""
_RIDGES = (1e-2, 1e-1, 1.0)
"""Ridges as shares of the number of records over that of the columns."""


def known_rows(view: View, auxiliary: Auxiliary, records: Tensor) -> Tensor | None:
    """(n, d) what the adversary knows of these records: its own features, or the embeddings that it saw last.

    None if it has neither, or not of all of them.
    """
    if view.own:
        return own_features(view).index_select(0, records)
    if without_embeddings(view) is not None:
        return None
    sample, embeddings = embeddings_of(view, auxiliary, len(records))
    return embeddings.flatten(1) if torch.equal(sample.records, records) else None


class LeftOut:
    """Ridge regression on standardised columns and random Fourier features of them (Rahimi and Recht 2007).

    The ridge with the least leave-one-out error is taken.
    """

    def __init__(self, rows: Tensor, seed: int) -> None:
        linear = standardised(rows) / math.sqrt(rows.shape[1])
        stream = Stream.of(seed, "attack", [0], rows.device)
        width = linear.shape[1]
        # Distances of standardised rows over √width are about √2: the kernel's width is 1.
        directions = stream.normal(width * _WAVES, 1)[0].reshape(width, _WAVES).to(linear.dtype)
        phases = 2 * math.pi * stream.uniform(_WAVES, 2)[0].to(linear.dtype)
        waves = torch.cos(linear @ directions + phases) * math.sqrt(2 / _WAVES)
        columns = torch.cat((torch.ones_like(linear[:, :1]), linear, waves), dim=1).double()
        gram = columns.T @ columns
        eye = torch.eye(len(gram), dtype=gram.dtype, device=gram.device)
        ridges = [ridge * len(rows) / len(gram) for ridge in _RIDGES]
        roots = torch.linalg.cholesky(torch.stack([gram + ridge * eye for ridge in ridges]))
        self._columns = columns
        self._fits = torch.cholesky_solve(columns.T.expand(len(ridges), -1, -1), roots).transpose(1, 2)
        self._own = (self._fits * columns).sum(-1, keepdim=True).clamp(max=1 - 1e-6)

    def predict(self, targets: Tensor) -> Tensor:
        """(n, C) of targets (n, C): each row predicted from the others."""
        wide = targets.double()
        fitted = self._fits @ (self._columns.T @ wide)
        # Leave-one-out prediction of a ridge regression, by the share of a row's own target in its fit.
        left_out = (fitted - self._own * wide) / (1 - self._own)
        best = (left_out - wide).square().mean(dim=(1, 2)).argmin()
        return left_out.index_select(0, best.unsqueeze(0))[0].to(targets.dtype)
