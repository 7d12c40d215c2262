"""Numbers of any library as torch tensors: torch, NumPy, JAX, and whatever else can be read as an array.

A system hands its recorder what it has. Values are copied, so that a training may go on to change them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from vflpriv.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Labels", "RecordIds", "host_copy", "host_tensor", "labels_of"]


def host_copy(value: Any, field: str) -> Tensor:
    """A copy of a tensor, an array or numbers, without its graph, in the host's memory."""
    tensor = host_tensor(value, field)
    return tensor.clone(memory_format=_contiguous()) if isinstance(value, _tensor_type()) else tensor


def host_tensor(value: Any, field: str) -> Tensor:
    """The same as `host_copy`, but a torch tensor in the host's memory is not copied."""
    import torch

    try:
        tensor = value.detach() if isinstance(value, torch.Tensor) else _from_array(value)
        if tensor.layout is not torch.strided or tensor.is_nested:
            raise InputError(field, f"a sparse tensor ({tensor.layout})", "a dense tensor: to_dense() makes one")
        return tensor if tensor.is_cpu else tensor.cpu()
    except (TypeError, ValueError, RuntimeError, OverflowError, BufferError) as error:
        raise InputError(field, type(value).__name__, "a tensor, an array or numbers") from error


def _from_array(value: Any) -> Tensor:
    """A copy of anything that is no torch tensor: read by NumPy, or by DLPack where NumPy does not know its type."""
    import torch
    from torch.utils.dlpack import from_dlpack

    array = np.asarray(value)
    if array.dtype.kind in "biufc":
        return torch.from_numpy(np.array(array, order="C"))
    if hasattr(value, "__dlpack__"):
        return from_dlpack(value).clone()
    return torch.as_tensor(value)


def _tensor_type() -> type[Tensor]:
    import torch

    return torch.Tensor


def _contiguous() -> Any:
    import torch

    return torch.contiguous_format


class RecordIds:
    """The ids of a system's records, and the number 0 to N - 1 that each has in a transcript.

    `records` is how many there are, if the system numbers them itself, or their ids: strings, or whole numbers of any
    size.
    """

    def __init__(self, records: Any) -> None:
        self.names: tuple[str | int, ...] | None = None
        self._numbers: Mapping[str | int, int] = {}
        self.count = 0
        self._places: NDArray[np.int32] | None = None
        if not isinstance(records, Sequence) and not hasattr(records, "__array__"):
            self.count = records
            return
        self.names = tuple(_plain(records, "record: records"))
        self.count = len(self.names)
        self._numbers = {name: number for number, name in enumerate(self.names)}
        if len(self._numbers) < len(self.names):
            raise InputError("record: records", f"{len(self.names)} ids", "no id twice")

    def numbers(self, records: Any, field: str, *, once: bool = True) -> Tensor:
        """The numbers of these records, each of which must be there once, unless a batch may have it again."""
        import torch

        if self.names is None:
            ids = host_copy(_not_strings(records, field), field)
            if ids.dim() != 1 or (len(ids) and (ids.is_floating_point() or ids.dtype == torch.bool)):
                raise InputError(field, f"{ids.dtype} {tuple(ids.shape)}", "a list of whole numbers")
            ids = ids.long()
        else:
            listed = _plain(records, field)
            unknown = next((name for name in listed if name not in self._numbers), None)
            if unknown is not None:
                raise InputError(field, unknown, "an id from those that record(records=...) was given")
            ids = torch.tensor([self._numbers[name] for name in listed], dtype=torch.int64)
        if len(ids) and not 0 <= int(ids.min()) <= int(ids.max()) < self.count:
            expected = f"0 to {self.count - 1}, or the ids themselves in record(records=...)"
            raise InputError(field, [int(ids.min()), int(ids.max())], expected)
        if once and self._has_twice(ids.numpy()):
            raise InputError(field, ids.tolist(), "no record twice")
        return ids

    def _has_twice(self, ids: NDArray[np.int64]) -> bool:
        """Whether an id occurs more than once: then its place is overwritten by that of the other."""
        if self._places is None:
            self._places = np.empty(self.count, dtype=np.int32)
        order = np.arange(len(ids), dtype=np.int32)
        self._places[ids] = order
        return bool((self._places[ids] != order).any())


def _not_strings(records: Any, field: str) -> Any:
    first = next(iter(records), None) if isinstance(records, list | tuple) else None
    if isinstance(first, str) or (isinstance(records, np.ndarray) and records.dtype.kind in "OUS"):
        raise InputError(
            field,
            first if isinstance(first, str) else records[:1].tolist(),
            "whole numbers; for ids of another kind pass all of them as record(records=...)",
        )
    return records


def _plain(records: Any, field: str) -> list[str | int]:
    """Ids as Python strings and whole numbers."""
    listed = records.tolist() if hasattr(records, "tolist") else list(records)
    listed = [name.item() if isinstance(name, np.generic) else name for name in listed]
    for name in listed:
        if isinstance(name, bool) or not isinstance(name, str | int):
            raise InputError(field, name, "ids that are strings or whole numbers")
    return listed


@dataclass(frozen=True, eq=False, kw_only=True)
class Labels:
    """The labels of a training as class numbers, with the name of each class if it has one, or as target values."""

    classes: Tensor | None = None
    names: tuple[str, ...] = ()
    targets: Tensor | None = None


def labels_of(labels: Any, classes: int | None) -> Labels:
    """Labels in any usual form: whole numbers, 0.0 and 1.0, one column, strings, or the values of a regression.

    Strings are numbered in their sorted order. Without a number of `classes`, they are the targets of a regression.
    """
    array = np.asarray(labels) if not isinstance(labels, _tensor_type()) else None
    if array is not None and array.dtype.kind in "OUS":
        text = [str(value) for value in array.reshape(-1).tolist()]
        names = tuple(sorted(set(text)))
        if classes is None or len(names) > classes:
            raise InputError("labels", f"{len(names)} different names", f"{classes} classes, as record() was told")
        place = {name: number for number, name in enumerate(names)}
        return Labels(classes=host_copy([place[name] for name in text], "labels"), names=names)
    values = host_copy(labels, "labels")
    if values.dim() == 2 and values.shape[1] == 1:
        values = values[:, 0].clone()
    if values.is_complex():
        raise InputError("labels", str(values.dtype), "whole numbers, names of classes, or the targets of a regression")
    if classes is None:
        return Labels(targets=values.double())
    whole = values.long()
    if values.is_floating_point() and not bool((whole == values).all()):
        expected = f"one of {classes} classes; for a regression leave out record(classes=...)"
        raise InputError("labels", float(values[(whole != values)][0]), expected)
    return Labels(classes=whole)
