"""Reads small files of a transcript as a whole, and checks record ids and whole numbers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from vflpriv.errors import InputError
from vflpriv.recording.format import Head
from vflpriv.recording.stored import StoredFile

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["numbers_below", "read_tensors", "unique_ids", "whole_numbers"]


def read_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file, by name."""
    file = StoredFile(path)
    return {name: file[name] for name in sorted(file.names)}


def unique_ids(ids: Tensor, where: str, head: Head) -> Tensor:
    """Record ids, each of which occurs once."""
    ids = whole_numbers(ids, where, "a list of int32 or int64")
    numbers_below(ids, where, (len(ids),), head.records)
    if len(ids.unique()) != len(ids):
        raise InputError(where, ids.tolist(), "no record twice")
    return ids


def whole_numbers(values: Tensor, where: str, expected: str) -> Tensor:
    """A list of whole numbers of either width, as int64."""
    import torch

    if values.dtype not in (torch.int32, torch.int64) or values.dim() != 1:
        raise InputError(where, f"{values.dtype} {tuple(values.shape)}", expected)
    return values.long()


def numbers_below(values: Tensor, where: str, shape: tuple[int, ...], below: int) -> Tensor:
    """Whole numbers of this shape, from 0 to `below` - 1."""
    if tuple(values.shape) != shape:
        raise InputError(where, tuple(values.shape), f"the shape {shape}")
    if values.numel() and not 0 <= int(values.min()) <= int(values.max()) < below:
        raise InputError(where, [int(values.min()), int(values.max())], f"0 to {below - 1}")
    return values
