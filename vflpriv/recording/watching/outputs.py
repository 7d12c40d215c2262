"""The tensors in what modules give and are given."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any, TypeAlias

from vflpriv.errors import InputError

if TYPE_CHECKING:
    from types import EllipsisType

    from torch import Tensor

__all__ = ["Columns", "columns_of", "one_tensor", "part_of"]

Columns: TypeAlias = "EllipsisType | tuple[slice, slice]"


def one_tensor(value: Any, field: str) -> Tensor:
    """The value, if it is a tensor with rows."""
    import torch

    if not isinstance(value, torch.Tensor) or value.dim() == 0:
        raise InputError(field, type(value).__name__, "one tensor with a row for each record; else use wire.up")
    return value


def columns_of(tensors: Sequence[Tensor], widths: Sequence[tuple[int, ...]]) -> list[Columns]:
    """Where outputs of these widths lie in the one input of the server's model."""
    flat = len(tensors) == 1 and tensors[0].dim() == 2 and all(len(width) == 1 for width in widths)
    ends = list(accumulate(width[0] for width in widths)) if flat else []
    if not flat or tensors[0].shape[1] != ends[-1]:
        shapes = ", ".join(str(tuple(tensor.shape)) for tensor in tensors)
        expected = f"one input for each of {len(widths)} devices, or their outputs {list(widths)} side by side"
        raise InputError("watch: input of top", shapes, expected)
    return [(slice(None), slice(end - width[0], end)) for end, width in zip(ends, widths, strict=True)]


def part_of(value: Tensor, columns: Columns) -> Tensor:
    """These columns of a tensor."""
    return value if columns is ... else value[columns]
