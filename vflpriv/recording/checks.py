"""Checks of one message that the recorder and the transcript reader share: its kind, its tensors and its values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from vflpriv.core.kinds import FURTHER, Content, Kind, Tensors, kind_named
from vflpriv.core.wire import SERVER, Message, device
from vflpriv.errors import InputError
from vflpriv.recording.format import Entry

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["check_kind_name", "check_shapes", "check_values", "message_of", "readable"]

_DTYPES = ("float16", "bfloat16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "bool")


def check_kind_name(kind: object) -> str:
    """The name of a message kind, if files can hold it."""
    if not isinstance(kind, str) or not kind.replace("-", "").replace("_", "").isalnum() or len(kind) > 64:
        raise InputError("kind", kind, "letters, digits and hyphens, at most 64")
    if not kind[0].isascii() or not kind[0].isalpha() or not kind.isascii():
        raise InputError("kind", kind, "ASCII letters, digits and hyphens, a letter first")
    return kind


def check_shapes(name: str, shapes: Mapping[str, Sequence[int]], batch: int | None, classes: int) -> None:
    """Whether a message of a kind in the table (`vflpriv.core.kinds`) has the tensors that attacks look for."""
    kind = kind_named(name)
    if kind is None:
        return
    form = _form(kind, shapes)
    if batch is None and any("batch" in axes for axes in form.values()):
        raise InputError(f"{name}: records", None, "the ids of the records, one for each row")
    sizes = {"batch": batch, "classes": classes}
    for tensor, axes in form.items():
        shape = tuple(shapes[tensor])
        named = axes[:-1] if axes[-1:] == (FURTHER,) else axes
        long_enough = len(shape) >= len(named) if len(named) < len(axes) else len(shape) == len(named)
        if not long_enough or any(sizes.get(axis, length) != length for axis, length in zip(named, shape, strict=False)):
            expected = " × ".join(f"{sizes[a]} ({a})" if a in sizes else a for a in axes) or "a single number"
            raise InputError(f"{name}: {tensor}", shape, f"{expected}, or the name of another kind")


def _form(kind: Kind, shapes: Mapping[str, Sequence[int]]) -> Tensors:
    """The one of the kind's sets of tensors that a message has."""
    for form in kind.forms:
        if set(form) == set(shapes) or (kind.open and set(form) <= set(shapes)):
            return form
    expected = " or ".join(", ".join(sorted(form)) for form in kind.forms)
    raise InputError(f"{kind.name}: tensors", sorted(shapes), f"{expected}, or the name of another kind")


def check_values(kind: str, value: Tensor, where: str) -> None:
    """Whether these are finite numbers of a common type, and floats in a kind that attacks compute with."""
    import torch

    common = value.dtype in {getattr(torch, name) for name in _DTYPES}
    if not common or (_computed_with(kind) and not value.is_floating_point()):
        raise InputError(where, str(value.dtype), "numbers of a common type, floats in a kind that attacks read")
    if value.is_floating_point() and not bool(torch.isfinite(value).all()):
        raise InputError(where, "NaN or infinity", "finite numbers")


def _computed_with(name: str) -> bool:
    kind = kind_named(name)
    return kind is not None and kind.content is not Content.OTHER


def message_of(entry: Entry, tensors: Mapping[str, Tensor], records: Tensor | None) -> Message:
    """A checked message with a replica axis of one, as views hold it, every bit as it was sent."""
    up, far_end = entry.way == "up", device(entry.device)
    return Message(
        round=entry.round,
        sender=far_end if up else SERVER,
        receiver=SERVER if up else far_end,
        kind=entry.kind,
        tensors={name: value.unsqueeze(0) for name, value in tensors.items()},
        records=records,
    )


def readable(message: Message) -> Message:
    """The message as attacks compute with it, if it is of such a kind: float32 values, and rows that are vectors."""
    kind = kind_named(message.kind)
    if kind is None or not _computed_with(message.kind):
        return message
    form = _form(kind, {name: value.shape[1:] for name, value in message.tensors.items()})
    tensors = {name: _rows(value.float(), form.get(name, ())) for name, value in message.tensors.items()}
    return replace(message, tensors=tensors)


def _rows(value: Tensor, axes: Sequence[str]) -> Tensor:
    """The tensor (1, …) with all axes behind the named ones as one."""
    if axes[-1:] != (FURTHER,):
        return value
    named = len(axes)  # the axes before the last, and that of replicas
    return value.unsqueeze(-1) if value.dim() == named else value.flatten(named)
