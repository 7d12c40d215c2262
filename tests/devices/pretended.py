"""A pretended accelerator: tensors that claim to be elsewhere, compute on the CPU, and count what a GPU would wait for.

torch knows the device type `lazy`, nothing in this project or in torch's own CPU package uses it, and backward passes
of its tensors run in the calling thread: it stands for the accelerator. A tensor there holds a CPU tensor that nobody
else sees, so that every value is real, and results can be compared with those of the CPU.

An operation that mixes it with a CPU tensor raises, as on CUDA, unless the CPU tensor is a single number. Counted are
copies in either direction, reads that make the host wait, and operations that launch at least one kernel.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch
from torch import Tensor

from vflpriv.common import philox

__all__ = ["PRETENDED", "Counts", "counted", "without_float64"]

PRETENDED = torch.device("lazy:0")

_READS = frozenset(
    {
        *("_local_scalar_dense", "equal", "nonzero", "masked_select", "_unique2", "unique_dim", "unique_consecutive"),
        *("bincount", "histc", "_linalg_check_errors", "_linalg_eigh", "_linalg_svd", "linalg_lstsq", "linalg_eig"),
    }
)
"""Operations whose result, or its size, the host waits for on CUDA."""
_NO_KERNEL = frozenset(
    {
        "empty",
        "empty_strided",
        "_unsafe_view",
        "empty_like",
        "new_empty",
        "new_empty_strided",
        "lift_fresh",
        "detach",
        "_local_scalar_dense",
    }
)
_MOVES = frozenset({"copy_", "_to_copy"})
_INDEXING = frozenset({"index", "index_put_", "index_put", "_index_put_impl_"})


@dataclass
class Counts:
    """What happened on the pretended device; `reads` are by operation, copies to the host among them."""

    launches: int = 0
    uploads: int = 0
    reads: Counter[str] = field(default_factory=Counter)
    operations: Counter[str] = field(default_factory=Counter)


_counts: list[Counts] = []
_float64 = [True]


@contextmanager
def counted() -> Iterator[Counts]:
    """Count what happens on the device inside the block."""
    counts = Counts()
    _counts.append(counts)
    try:
        yield counts
    finally:
        _counts.pop()


@contextmanager
def without_float64() -> Iterator[None]:
    """Inside the block the device has no float64, as MPS has none."""
    _float64[0] = False
    try:
        yield
    finally:
        _float64[0] = True


class _Elsewhere(torch.Tensor):
    """A tensor of the pretended device; `held` has its values."""

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]
    held: Tensor

    @staticmethod
    def __new__(cls, held: Tensor) -> _Elsewhere:
        if held.dtype == torch.float64 and not _float64[0]:
            raise TypeError("The pretended device doesn't support float64. Please use float32 instead.")
        return torch.Tensor._make_wrapper_subclass(  # type: ignore[attr-defined, no-any-return]
            cls,
            held.size(),
            strides=held.stride(),
            storage_offset=held.storage_offset(),
            dtype=held.dtype,
            device=PRETENDED,
        )

    def __init__(self, held: Tensor) -> None:
        self.held = held

    def __setattr__(self, name: str, value: Any) -> None:
        """`tensor.data = other` makes a tensor refer to the values of another one: to what that one holds, too."""
        super().__setattr__(name, value)
        if name == "data":
            self.held = value.held

    def __repr__(self, **_: Any) -> str:
        return f"elsewhere({self.held!r})"

    def untyped_storage(self) -> torch.UntypedStorage:
        """The memory of its values: whose views share it can be asked, as on CUDA."""
        return self.held.untyped_storage()

    def tolist(self) -> Any:
        return self.cpu().tolist()

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["held"], None

    @staticmethod
    def __tensor_unflatten__(inner: Mapping[str, Tensor], *_: Any) -> _Elsewhere:
        return _Elsewhere(inner["held"])

    @classmethod
    def __torch_dispatch__(cls, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(operation, args, kwargs or {})


@dataclass(frozen=True)
class _Operation:
    """What holds of an operation whatever it is called with."""

    name: str
    composed: bool
    launches: bool

    @classmethod
    @cache
    def of(cls, operation: Any) -> _Operation:
        name = operation._schema.name.removeprefix("aten::")
        view = any(r.alias_info is not None and not r.alias_info.is_write for r in operation._schema.returns)
        return cls(
            name=name,
            composed=torch._C._dispatch_has_kernel_for_dispatch_key(operation.name(), "CompositeImplicitAutograd"),
            launches=not view and name not in _NO_KERNEL,
        )


def _run(operation: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """One operation, on the held tensors; what it returns is elsewhere too, unless it was asked for on the CPU."""
    known = _Operation.of(operation)
    if known.composed:
        composed = operation.decompose(*args, **kwargs)
        if composed is not NotImplemented:
            return composed
    name, given = known.name, _tensors((args, kwargs))
    goal = torch.device(kwargs.get("device") or PRETENDED)
    _check(name, given)
    _count(known, args, goal)
    owners = {id(x.held): x for x in given if isinstance(x, _Elsewhere)}
    result = operation(*_each(_inside, args), **_each(_inside, kwargs))
    to_host = goal.type == "cpu" or (name == "copy_" and not isinstance(args[0], _Elsewhere))

    def outside(value: Any) -> Any:
        if not isinstance(value, Tensor) or to_host:
            return args[0] if name == "copy_" else value
        owner = owners.get(id(value))
        if owner is not None and owner.shape != value.shape:
            raise RuntimeError(f"{name} resized a tensor of the pretended device; allocate it in its final shape.")
        return _Elsewhere(value) if owner is None else owner

    return _each(outside, result)


def _each(function: Callable[[Any], Any], value: Any) -> Any:
    """The function of every leaf of arguments or results: torch's own trees cost several times an operation here."""
    if isinstance(value, dict):
        return {name: _each(function, inner) for name, inner in value.items()}
    if isinstance(value, (tuple, list)) and type(value) is not torch.Size:
        made = [_each(function, inner) for inner in value]
        return made if isinstance(value, list) else tuple(made)
    return function(value)


def _tensors(value: Any) -> list[Tensor]:
    """Every tensor among arguments."""
    found: list[Tensor] = []
    _each(lambda leaf: found.append(leaf) if isinstance(leaf, Tensor) else None, value)
    return found


def _inside(value: Any) -> Any:
    if isinstance(value, _Elsewhere):
        return value.held
    return torch.device("cpu") if isinstance(value, torch.device) else value


def _check(name: str, tensors: list[Tensor]) -> None:
    """Raise if tensors of both devices meet; single numbers may, and so may copies and indices."""
    here = [x for x in tensors if not isinstance(x, _Elsewhere) and x.dim() > 0]
    if here and len(here) < len(tensors) and name not in _MOVES | _INDEXING:
        raise RuntimeError(f"Expected all tensors to be on the same device, found {PRETENDED} and cpu in {name}.")
    if name in _INDEXING and not isinstance(tensors[0], _Elsewhere):
        raise RuntimeError(f"Expected indices of a CPU tensor on the CPU, found some on {PRETENDED}.")


def _count(operation: _Operation, args: tuple[Any, ...], goal: torch.device) -> None:
    uploads = reads = 0
    name = operation.name
    if name == "copy_":
        uploads, reads = _is_here(args[1]), not isinstance(args[0], _Elsewhere)
    elif name == "_to_copy":
        reads = goal.type == "cpu"
    elif name in _INDEXING:
        indices = _tensors(args[1])
        uploads = sum(_is_here(x) for x in indices)
        masks = any(x.dtype in (torch.bool, torch.uint8) for x in indices)
        # A single value at the places of a mask is a masked_fill_, which waits for nothing.
        reads = masks and (name == "index" or args[2].numel() > 1)
    elif name in _READS:
        reads = True
    for counts in _counts:
        counts.uploads += uploads
        counts.launches += operation.launches
        counts.operations[name] += 1
        if reads:
            counts.reads[name] += 1


_drawn: dict[tuple[bool, ...], Counts] = {}
"""What was counted in the first draw of each kind, by which numbers of its path are tensors."""


def _units(index: Tensor, keys: Tensor, *numbers: int | Tensor) -> Any:
    """A draw of random numbers: operation by operation the first time, and counted as if it were so every time.

    On CUDA it is one kernel; here its operations would take most of the time of the tests.
    """
    kind = tuple(isinstance(number, Tensor) for number in numbers)
    if kind not in _drawn:
        with counted() as first:
            drawn = philox.units(index, keys, *numbers)
        _drawn[kind] = first
        return drawn
    for counts in _counts:
        counts.launches += _drawn[kind].launches
        counts.uploads += _drawn[kind].uploads
        counts.operations.update(_drawn[kind].operations)
        counts.reads.update(_drawn[kind].reads)
    return _each(_Elsewhere, philox.units(*_each(_inside, (index, keys, *numbers))))


philox._WAYS[PRETENDED.type] = _units


def _is_here(value: Tensor) -> bool:
    """Whether a tensor would have to be copied to the device."""
    return not isinstance(value, _Elsewhere)


def _kernel(operation: Any) -> Callable[..., Any]:
    return lambda *args, **kwargs: _run(operation, args, kwargs)


# What makes a tensor there out of nothing or of a CPU tensor, and would resize it later; all else reaches
# `__torch_dispatch__`.
_library = torch.library.Library("aten", "IMPL", "Lazy")
for _name in (
    *("empty.memory_format", "empty_strided", "copy_", "arange", "arange.start", "arange.start_step"),
    *("linspace", "eye", "eye.m", "randperm", "randperm.generator"),
):
    _packet, _, _overload = _name.partition(".")
    _library.impl(_name, _kernel(getattr(getattr(torch.ops.aten, _packet), _overload or "default")))
