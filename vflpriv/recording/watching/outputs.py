"""The tensors in what modules give and are given: in dicts, tuples, data classes and outputs of other libraries."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import fields, is_dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any, TypeAlias

from vflpriv.errors import InputError

if TYPE_CHECKING:
    from types import EllipsisType

    from torch import Tensor

__all__ = ["Columns", "Output", "columns_of", "leaving", "part_of", "replaced", "sent_tensor", "several", "tensors_in"]

Columns: TypeAlias = "EllipsisType | tuple[slice, slice]"
Output: TypeAlias = "str | int | Callable[[Any], Any]"
"""Where in a module's output the tensor is that it sends: a key or an attribute, a place, or a function of it."""


def tensors_in(value: Any) -> list[Tensor]:
    """All tensors in a value, however deep they lie in usual containers."""
    import torch

    if isinstance(value, tuple) and all(isinstance(part, torch.Tensor) for part in value):
        return list(value)
    return [tensor for _, tensor in _named(value, "")]


def _named(value: Any, name: str) -> Iterator[tuple[str, Tensor]]:
    import torch

    if isinstance(value, torch.Tensor):
        yield name, value
        return
    inside: Mapping[Any, Any] = {}
    if isinstance(value, Mapping):
        inside = value
    elif isinstance(value, list | tuple):
        inside = dict(enumerate(value))
    elif is_dataclass(value):
        inside = {field.name: getattr(value, field.name) for field in fields(value)}
    for key, part in inside.items():
        yield from _named(part, f"{name}.{key}" if name else str(key))


def sent_tensor(value: Any, which: Output | None, field: str) -> Tensor:
    """The tensor of a module's output that leaves: the only one, or the one that `which` names."""
    import torch

    chosen = value if which is None else _chosen(value, which, field)
    if isinstance(chosen, torch.Tensor) and chosen.dim():
        return chosen
    named = list(_named(chosen, ""))
    if len(named) == 1 and named[0][1].dim():
        return named[0][1]
    names = ", ".join(name for name, _ in named)
    expected = f"one tensor with a row for each record: name one of them with watch(output=…), of {names}"
    raise InputError(field, type(chosen).__name__, expected if names else "a tensor with a row for each record")


def several(value: Any) -> bool:
    """Whether an output has more than one tensor."""
    return len(list(_named(value, ""))) > 1


def replaced(value: Any, old: Tensor, new: Tensor) -> Any:
    """An output with another tensor in the place of one of its own; what can be changed is changed in place."""
    if value is old:
        return new
    if isinstance(value, MutableMapping):
        for key in list(value):
            value[key] = replaced(value[key], old, new)
    elif isinstance(value, list):
        value[:] = [replaced(part, old, new) for part in value]
    elif isinstance(value, tuple):
        parts = [replaced(part, old, new) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    elif is_dataclass(value):
        for field in fields(value):
            object.__setattr__(value, field.name, replaced(getattr(value, field.name), old, new))
    return value


def leaving(value: Any, sent: Tensor, field: str) -> tuple[Any, Tensor, Tensor | None]:
    """An output through which the gradient by what is sent passes alone, that tensor, and the rest where it is a part.

    The party's own losses on its other outputs may pass through the tensor that is sent, too. Where a function has
    taken a part of a tensor, such as the first token of a text, whoever has the output takes that part by itself.
    """
    import torch

    own, copy = tensors_in(value), sent.clone()
    if any(tensor is sent for tensor in own):
        return replaced(value, sent, copy), copy, None
    whole = next((tensor for tensor in own if _is_part(sent, tensor)), None)
    if whole is None:
        expected = "a tensor of the output, or rows and columns of one: compute all else in the party's module"
        raise InputError(field, "a function that computes something new", expected)
    places = torch.arange(whole.numel(), device=whole.device)
    places = places.as_strided(sent.shape, sent.stride(), sent.storage_offset() - whole.storage_offset())
    kept = whole.clone()
    joined = kept.reshape(-1).index_copy(0, places.reshape(-1), copy.reshape(-1)).view(whole.shape)
    return replaced(value, whole, joined), copy, kept


def _is_part(sent: Tensor, whole: Tensor) -> bool:
    same = sent.untyped_storage().data_ptr() == whole.untyped_storage().data_ptr() and sent.dtype == whole.dtype
    return same and whole.requires_grad and whole.is_contiguous()


def _chosen(value: Any, which: Output, field: str) -> Any:
    if callable(which):
        return which(value)
    try:
        if isinstance(which, str) and not isinstance(value, Mapping):
            return getattr(value, which)
        return value[which]
    except (AttributeError, KeyError, IndexError, TypeError) as error:
        names = ", ".join(name for name, _ in _named(value, "")) or type(value).__name__
        raise InputError(f"{field}: output", which, f"one of {names}") from error


def columns_of(
    tensors: Sequence[Tensor], outputs: Sequence[Tensor], *, look: bool
) -> tuple[list[tuple[Tensor, Columns]], bool]:
    """What each output has become in the inputs of the server's model, and whether all are as they left.

    They are known again by their first rows, unless values may not be looked at. Outputs that something was done to lie
    in the order of the parties, side by side in one input or an input each.
    """
    places = [_found(tensors, output) if look else None for output in outputs]
    if all(place is not None for place in places):
        return [place for place in places if place is not None], True
    if len(tensors) == len(outputs):
        return [(tensor, ...) for tensor in tensors], False
    widths = [tuple(output.shape[1:]) for output in outputs]
    flat = len(tensors) == 1 and tensors[0].dim() == 2 and all(len(width) == 1 for width in widths)
    ends = list(accumulate(width[0] for width in widths)) if flat else []
    if not flat or tensors[0].shape[1] != ends[-1]:
        shapes = ", ".join(str(tuple(tensor.shape)) for tensor in tensors)
        side = f"one input for each of {len(widths)} devices, or their outputs {widths} side by side"
        expected = f"{side}; without top=, what the bottoms give is recorded"
        raise InputError("watch: input of top", shapes, expected)
    side_by_side = [(slice(None), slice(end - width[0], end)) for end, width in zip(ends, widths, strict=True)]
    return [(tensors[0], place) for place in side_by_side], False


def _found(tensors: Sequence[Tensor], output: Tensor) -> tuple[Tensor, Columns] | None:
    """Where an output lies among inputs, by the values of its first row."""
    import torch

    for tensor in tensors:
        if tensor.shape == output.shape and torch.equal(tensor[:1], output[:1]):
            return tensor, ...
    for tensor in tensors:
        if tensor.dim() != 2 or output.dim() != 2 or len(tensor) != len(output) or tensor.dtype != output.dtype:
            continue
        width = output.shape[1]
        starts = (tensor[0] == output[0, 0]).nonzero().flatten().tolist() if len(output) and width else []
        for start in starts:
            place = slice(None), slice(start, start + width)
            if torch.equal(tensor[0, place[1]], output[0]):
                return tensor, place
    return None


def part_of(value: Tensor, columns: Columns) -> Tensor:
    """These columns of a tensor."""
    return value if columns is ... else value[columns]
