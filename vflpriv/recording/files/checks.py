"""Checks of one message that the recorder and the transcript reader share: its kind, its tensors and its values."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from sys import intern
from typing import TYPE_CHECKING

from vflpriv.core.kinds import FURTHER, Content, Kind, Tensors, kind_named
from vflpriv.core.wire import CIPHERTEXT, CIPHERTEXT_BYTES, SERVER, LazyTensors, Message, device
from vflpriv.errors import InputError
from vflpriv.recording.files.format import KIND, Entry

if TYPE_CHECKING:
    from torch import Tensor

__all__ = [
    "all_finite",
    "check_finite",
    "check_kind_name",
    "check_shapes",
    "check_type",
    "check_values",
    "message_of",
    "readable",
    "row_axis",
]

_SEALED: Mapping[str, str] = {CIPHERTEXT: "uint8", CIPHERTEXT_BYTES: "int64"}
"""The types of the tensors of messages that were sent encrypted."""
_DTYPES = ("float16", "bfloat16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "bool")


def check_kind_name(kind: object) -> str:
    """The name of a message kind, if files can hold it."""
    if not isinstance(kind, str) or not re.fullmatch(KIND, kind):
        raise InputError("kind", kind, "at most 64 ASCII letters, digits, hyphens and underscores, a letter first")
    return kind


def check_shapes(name: str, shapes: Mapping[str, Sequence[int]], batch: int | None, classes: int | None) -> None:
    """Whether a message of a kind in the table (`vflpriv.core.kinds`) has the tensors that attacks look for."""
    kind = kind_named(name)
    if set(shapes) == {CIPHERTEXT} or set(shapes) == {CIPHERTEXT_BYTES}:
        _check_sealed(name, shapes)
        return
    if kind is None:
        return
    form = _form(kind, shapes)
    if batch is None and any("batch" in axes for axes in form.values()):
        raise InputError(f"{name}: records", None, "the ids of the records, one for each row")
    sizes = {"batch": batch} if classes is None else {"batch": batch, "classes": classes}
    for tensor, axes in form.items():
        if not _fits(tuple(shapes[tensor]), axes, sizes):
            expected = " × ".join(f"{sizes[a]} ({a})" if a in sizes else a for a in axes) or "a single number"
            raise InputError(f"{name}: {tensor}", tuple(shapes[tensor]), f"{expected}, or the name of another kind")


def _check_sealed(kind: str, shapes: Mapping[str, Sequence[int]]) -> None:
    """Whether a message that was sent encrypted has one row for each ciphertext, or the number of their bytes."""
    for name, shape in shapes.items():
        if len(shape) != (2 if name == CIPHERTEXT else 0):
            expected = "ciphertexts × bytes" if name == CIPHERTEXT else "a single number"
            raise InputError(f"{kind}: {name}", tuple(shape), f"{expected}: vflpriv.opaque makes it")


def _fits(shape: tuple[int, ...], axes: tuple[str, ...], sizes: Mapping[str, int | None]) -> bool:
    """Whether a tensor has these axes; of two classes, or of a target, one score is enough."""
    before = len(axes) - 1
    one_score = axes[-1:] == ("classes",) and sizes.get("classes", 2) == 2 and shape[before:] in ((), (1,))
    if one_score or axes[-1:] == (FURTHER,):
        axes, shape = axes[:before], shape[:before]
    return len(shape) == len(axes) and all(sizes.get(a, n) == n for a, n in zip(axes, shape, strict=True))


def _form(kind: Kind, names: Collection[str]) -> Tensors:
    """The one of the kind's sets of tensors that a message has."""
    for form in kind.forms:
        if set(form) == set(names) or (kind.open and set(form) <= set(names)):
            return form
    expected = " or ".join(", ".join(sorted(form)) for form in kind.forms)
    raise InputError(f"{kind.name}: tensors", sorted(names), f"{expected}, or the name of another kind")


def row_axis(name: str, tensor: str, shape: Sequence[int], batch: int) -> int | None:
    """The axis of a tensor with an entry for each record of the batch: by its kind, else the first of that length."""
    kind = kind_named(name)
    named = [form[tensor] for form in kind.forms if tensor in form] if kind is not None else []
    if named:
        return named[0].index("batch") if "batch" in named[0] else None
    return next((axis for axis, length in enumerate(shape) if length == batch), None)


def check_values(kind: str, tensor: str, value: Tensor, where: str) -> None:
    """Whether these are finite numbers of a common type, and floats in a kind that attacks compute with."""
    check_type(kind, tensor, value, where)
    check_finite(value, where)


def check_type(kind: str, tensor: str, value: Tensor, where: str) -> None:
    """Whether these are numbers of a common type, and floats in a kind that attacks compute with.

    The bytes of a ciphertext, or their number, may be in any kind.
    """
    dtype = str(value.dtype).removeprefix("torch.")
    if tensor in _SEALED:
        if dtype != _SEALED[tensor]:
            raise InputError(where, dtype, f"{_SEALED[tensor]}: vflpriv.opaque makes it")
        if value.numel() and int(value.min()) < 0:
            raise InputError(where, int(value.min()), "0 or more, the number of bytes")
    elif dtype not in _DTYPES or (_computed_with(kind) and not value.is_floating_point()):
        raise InputError(where, str(value.dtype), "numbers of a common type, floats in a kind that attacks read")


def check_finite(value: Tensor, *where: str) -> None:
    """Whether no value is NaN or infinite; `where` are the parts of the field's name."""
    if not all_finite(value):
        raise InputError(": ".join(where), "NaN or infinity", "finite numbers")


def all_finite(value: Tensor) -> bool:
    """Whether no value is NaN or infinite, without memory of its own: then neither their sum nor an extreme is.

    A sum can be infinite although no value is; then the extremes decide.
    """
    if not value.is_floating_point() or not value.numel() or math.isfinite(float(value.sum())):
        return True
    least, largest = value.aminmax()
    return math.isfinite(float(least)) and math.isfinite(float(largest))


def _computed_with(name: str) -> bool:
    kind = kind_named(name)
    return kind is not None and kind.content is not Content.OTHER


def message_of(
    entry: Entry, tensors: Mapping[str, Tensor], records: Tensor | None = None, *, whole: Tensor | None = None
) -> Message:
    """A checked message as views hold it: its tensors have a replica axis of one, and every bit as it was stored.

    Where tensors have the rows of a sample alone, `records` are the sample's and `whole` those of all of the batch.
    """
    far_end = device(entry.device)
    sender = SERVER if entry.way == "down" else far_end
    receiver = far_end if entry.way == "down" else SERVER
    if entry.way == "across":
        receiver = device(entry.to or 0)
    return Message(
        round=entry.round,
        sender=sender,
        receiver=receiver,
        kind=intern(entry.kind),
        tensors=tensors,
        records=records,
        batch=whole,
    )


def readable(message: Message, classes: int | None) -> Message:
    """The message as attacks compute with it, if it is of such a kind: float32 values, and rows that are vectors.

    One score of two classes becomes two, as if the first class had the score 0.
    """
    kind = kind_named(message.kind)
    if kind is None or not _computed_with(message.kind) or message.is_ciphertext:
        return message
    return replace(message, tensors=LazyTensors(message.tensors, _Readable(_form(kind, message.tensors), classes)))


@dataclass(frozen=True)
class _Readable:
    """How attacks read the tensors of a form."""

    form: Tensors
    classes: int | None

    def __call__(self, name: str, value: Tensor) -> Tensor:
        axes = self.form.get(name, ())
        rows = _rows(value.float(), axes)
        return _two_columns(name, rows, axes) if self.classes == 2 else rows


def _rows(value: Tensor, axes: Sequence[str]) -> Tensor:
    """The tensor (1, …) with all axes behind the named ones as one."""
    named = len(axes)  # the axes before the last, and that of replicas
    if axes[-1:] == ("classes",) and value.dim() == named:
        return value.unsqueeze(-1)
    if axes[-1:] != (FURTHER,):
        return value
    return value.unsqueeze(-1) if value.dim() == named else value.flatten(named)


def _two_columns(name: str, value: Tensor, axes: Sequence[str]) -> Tensor:
    """(…, 2) from one column: a gradient by the one score is minus that by the other, and other scores are 0."""
    import torch

    if axes[-1:] != ("classes",) or value.shape[-1] != 1:
        return value
    first = -value if name in ("gradient", "duals", "residuals") else 1 - value if name == "confidences" else 0 * value
    return torch.cat((first, value), dim=-1)
