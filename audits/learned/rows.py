"""Numbers that describe rows of a tensor, whatever they mean; scores of the two worlds are learned from them.

Both learned scores use them: that of the whole view of many trainings, and that of the canaries of a recorded one.
"""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

from vflpriv.common.seeds import derive

__all__ = [
    "HUGE",
    "LEVELS",
    "ROW",
    "WIDE",
    "batch_moments",
    "counted",
    "integers",
    "moments",
    "narrow",
    "row_features",
    "sketched",
]

WIDE = 4096
"""Entries above which a tensor's bits are read in a sample of them."""
ROW = 12
"""Entries of a row that are features as they are; a wider row is summed up in as many numbers."""
HUGE = 1e30
_SHIFTS = (0, 8, 16)
"""Powers of two by which values are multiplied before their fractional part is taken."""
_VALUES = 10
"""Integers from 0 on that are counted one by one."""
_INTEGERS = {
    torch.float64: torch.int64,
    torch.float32: torch.int32,
    torch.float16: torch.int16,
    torch.bfloat16: torch.int16,
}


def integers(values: Tensor) -> Tensor:
    """Each entry's bits as they are on the wire."""
    kind = _INTEGERS.get(values.dtype)
    return values.to(torch.int64) if kind is None else values.contiguous().view(kind)


@lru_cache(maxsize=32)
def _signs(entries: int, device: torch.device) -> Tensor:
    """A random sign for each entry, the same for every tensor of this width."""
    generator = torch.Generator().manual_seed(derive(0, "search", entries) >> 1)
    return (2.0 * torch.randint(0, 2, (entries,), generator=generator) - 1).to(device)


def sketched(values: Tensor, width: int) -> Tensor:
    """(n, width) sums of the entries (n, entries) with random signs, each entry in one of the sums."""
    signed = values * _signs(values.shape[1], values.device)
    padded = torch.nn.functional.pad(signed, (0, -values.shape[1] % width))
    return padded.reshape(len(values), -1, width).sum(1)


def _cheap(numbers: Tensor) -> list[Tensor]:
    """(R,) each: mean, mean square, least, largest."""
    return [numbers.mean(1), numbers.square().mean(1), numbers.amin(1), numbers.amax(1)]


def moments(values: Tensor) -> Tensor:
    """(R, K) numbers that describe (R, n) entries: level and spread first, then signs, repetitions and raw bits."""
    numbers = values.to(torch.float64)
    finite = torch.isfinite(numbers)
    clean = torch.where(finite, numbers, 0.0)
    whole, bits = clean.round(), integers(values) & 0xFF
    same = numbers[:, 1:] == numbers[:, :-1] if values.shape[1] > 1 else torch.zeros_like(finite)
    parts = _cheap(clean)
    parts += [part.to(torch.float64).mean(1) for part in (clean > 0, clean == 0, same, ~finite, clean == whole)]
    parts += [whole.remainder(2).mean(1), (bits & 1).to(torch.float64).mean(1), bits.to(torch.float64).mean(1)]
    parts += [(clean * 2.0**shift).remainder(1.0).mean(1) for shift in _SHIFTS]
    return torch.stack(parts, dim=1)


_MOMENTS = 12 + len(_SHIFTS)
LEVELS = 4
"""How many of the first moments are level and spread."""


def batch_moments(values: Tensor, *, whole: bool) -> Tensor:
    """(R, K) `moments` of all entries; without `whole` only level and spread, the others zero.

    A wide tensor's bits are read in a sample of its entries, the same in every trial.
    """
    if not values.shape[1]:
        return values.new_zeros((len(values), _MOMENTS), dtype=torch.float64)
    if whole and values.shape[1] <= WIDE:
        return moments(values)
    clean = torch.nan_to_num(values.to(torch.float32), nan=0.0, posinf=HUGE, neginf=-HUGE)
    cheap = torch.stack(_cheap(clean), dim=1).to(torch.float64)
    if not whole:
        return torch.nn.functional.pad(cheap, (0, _MOMENTS - LEVELS))
    sample = torch.linspace(0, values.shape[1] - 1, WIDE, device=values.device).long()
    return torch.cat((cheap, moments(values.index_select(1, sample))[:, LEVELS:]), dim=1)


def narrow(row: Tensor) -> Tensor:
    """(n, at most ROW) the entries of a row, or a sketch of a wider one."""
    if row.shape[1] <= ROW:
        return row.to(torch.float64)
    clean = torch.nan_to_num(row.to(torch.float32), nan=0.0, posinf=HUGE, neginf=-HUGE)
    return sketched(clean, ROW).to(torch.float64)


def counted(row: Tensor) -> Tensor:
    """(R, _VALUES) the share of each small integer among the entries; nothing is counted in tensors of reals."""
    if row.is_floating_point() or row.is_complex() or not row.shape[1]:
        return row.new_zeros((len(row), 0), dtype=torch.float64)
    values = torch.arange(_VALUES, device=row.device)
    return (row.to(torch.int64).unsqueeze(2) == values).to(torch.float64).mean(1)


def row_features(rows: Tensor) -> Tensor:
    """(k, F) features of k rows (k, width) of one tensor: their entries, or a sketch of them, and their moments."""
    if not rows.shape[1]:
        return rows.new_zeros((len(rows), 0), dtype=torch.float64)
    return torch.cat((narrow(rows), moments(rows), counted(rows)), dim=1)
