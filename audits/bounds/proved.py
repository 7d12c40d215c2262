"""Bounds on how far a computation moves when private data change, for all data: carried along its operations.

The computation runs once, on any data, and every operation is seen by the dispatcher. What is known of its arguments
gives what is known of its result, by a rule that does not look at the values. What has no rule is unbounded from there
on, and the bound that is reported at the end is infinite, with the operation that is to blame.

They hold whatever is drawn: of public tensors that draws reach, such as weights, nothing but the shape is used.
Bounds are those of real numbers, and of values that are finite where they enter a clip: rounding is the subject of the
audit `float`, and no clip keeps what is not a number from leaving.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

from vflpriv.audits.bounds.facts import CONSTANT, UNKNOWN, Fact, Moves, Share, least, norm_of
from vflpriv.audits.bounds.operations import RULES, Operation, entrywise, width_of
from vflpriv.audits.bounds.records import ORDERED

__all__ = ["Following", "Proved", "prove"]

_RANDOM = torch.Tag.nondeterministic_seeded


@dataclass(frozen=True, kw_only=True)
class Proved:
    """How far the result moves, at most, and what is to blame where nothing bounds it."""

    moves: Moves
    why: str = ""


def prove(computation: Callable[[Tensor], Tensor], values: Tensor, *, axis: int = 0, positive: bool = False) -> Proved:
    """How far the result of a computation moves when the records along this axis of its input change.

    `positive` says that no entry of the input is negative, in any world.
    """
    following = Following()
    with torch.no_grad(), following:
        result = computation(following.private(values, axis=axis, positive=positive))
    return following.moves(result)


class Following(TorchDispatchMode):
    """Facts of all tensors that private values reach, by storage: memory that is written by another view is unknown."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._facts: dict[int, tuple[StorageWeakRef, dict[Any, Fact]]] = {}
        self._drawn: dict[int, StorageWeakRef] = {}
        self._count = self._entered = 0
        self._parts: dict[int, tuple[frozenset[int], ...]] = {}
        self.blamed = ""
        """The last operation after which nothing was known any more."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # Wrapping operations for the compiler loads it, which takes two seconds.
        return False

    def private(self, values: Tensor, *, axis: int, positive: bool = False) -> Tensor:
        """The private value: any data, one record along the axis."""
        with torch.utils._python_dispatch._disable_current_modes():
            own = values.detach().clone()
        self.hold(own, axis=axis, positive=positive)
        return own

    def hold(
        self, own: Tensor, *, axis: int = 0, positive: bool = False, largest: float = math.inf, distinct: bool = True
    ) -> None:
        """A private value where it lies: any data, one record along the axis, no entry larger than `largest`.

        Its rows are in an order of their own; if they are not `distinct`, some are of the same record.
        """
        number = self._next()
        fact = Fact(
            axis=axis,
            own=distinct,
            order=number,
            orders=frozenset({number}),
            row=norm_of(number, "row"),
            whole=norm_of(number, "whole"),
            entry=least({CONSTANT: largest}),
            positive=positive,
            vanishes=True,
            tensor=number,
            along=True,
        )
        self._enter(own, fact, written=True)

    def forget(self, tensor: Tensor) -> None:
        """What was private is public from here on, under noise; all of it, if the tensor fills its storage."""
        self._overwritten(tensor)
        self._vary([tensor])

    def _overwritten(self, tensor: Tensor) -> None:
        if tensor.numel() * tensor.element_size() == tensor.untyped_storage().nbytes():
            self._facts.pop(tensor.untyped_storage()._cdata, None)

    def drawn(self, tensor: Tensor) -> bool:
        """Whether draws reach a public tensor."""
        return tensor.layout is torch.strided and tensor.untyped_storage()._cdata in self._drawn

    def _vary(self, tensors: Iterable[Tensor]) -> None:
        for tensor in tensors:
            if tensor.layout is torch.strided:
                storage = tensor.untyped_storage()
                self._drawn[storage._cdata] = StorageWeakRef(storage)

    def _public(self, func: Any, name: str, tensors: Sequence[Tensor], result: Any) -> Any:
        """Note whether draws reach the result of an operation on public tensors."""
        if _RANDOM in func.tags or (name not in _OF_SHAPES and any(self.drawn(tensor) for tensor in tensors)):
            written = func._schema.is_mutable
            self._vary([*_tensors(result), *(tensors if written else ())])
        return result

    def known(self, value: Any) -> Fact | None:
        """What is known of a tensor; None of a public one."""
        if not isinstance(value, Tensor) or value.layout is not torch.strided:
            return None
        facts = self._facts.get(value.untyped_storage()._cdata)
        return None if facts is None else facts[1].get(_place(value), UNKNOWN)

    def moves(self, tensor: Tensor) -> Proved:
        """How far a tensor moves, at most."""
        fact = self.known(tensor)
        if fact is None:
            return Proved(moves=Moves(replace=0.0, remove=0.0, client=0.0, empty=0.0))
        rows = tensor.shape[fact.axis] if fact.axis is not None else 1
        moves = fact.moved(rows, width_of(tensor, fact.axis))
        return Proved(moves=moves, why="" if moves.replace < math.inf else fact.why or self.blamed)

    def columns(self, joint: Mapping[Share, float]) -> dict[Share, float]:
        """The same bounds by the column in which the norm of the part lies; without those of no known column."""
        return {
            (whole, column): bound
            for (whole, part), bound in joint.items()
            for column, parts in enumerate(self._parts.get(whole, ()))
            if part in parts
        }

    def named(self, tensor: Tensor) -> int:
        """The number by which bounds speak of a tensor's norm from now on."""
        fact = self.known(tensor) or UNKNOWN
        if fact.tensor is not None:
            return fact.tensor
        number = self._next()
        if fact.parts:
            self._parts[number] = fact.parts
        row = least(fact.row, norm_of(number, "row")) if fact.axis is not None else fact.row
        whole = least(fact.whole, norm_of(number, "whole"))
        named = fact.changed(row=row, whole=whole, tensor=number, square=fact.square, along=fact.along, long=fact.long)
        facts = self._facts[tensor.untyped_storage()._cdata][1]
        facts[_place(tensor)] = named
        for place, other in facts.items():
            # The same rows in another shape.
            same = _filled(place) == _filled(_place(tensor)) != 0 and place[1][:1] == tensor.shape[:1]
            same = same and place[3] == tensor.dtype
            if same and other.tensor is None and other.axis == fact.axis == 0 and other.own == fact.own:
                facts[place] = replace(other, row=least(other.row, row), whole=least(other.whole, whole), tensor=number)
        return number

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        return self.through(func, args, kwargs or {})

    def through(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run an operation, and know what follows of its results."""
        tensors = _tensors((args, kwargs))
        written = [tensor for tensor in tensors if _writes(func, tensor, args, kwargs)]
        name = func._schema.name.split("::")[1]
        if not any(self.known(tensor) is not None for tensor in tensors):
            return self._public(func, name, tensors, func(*args, **kwargs))
        if name in _OVERWRITES and not (len(args) > 1 and self.known(args[1]) is not None):
            self._overwritten(args[0])
            return self._public(func, name, args[1:], func(*args, **kwargs))
        if name in _OF_SHAPES and not written:
            return self._public(func, name, (), func(*args, **kwargs))
        drawn = _RANDOM in func.tags and name not in _DRAWN
        rule = None if func._overloadname == "out" or drawn or len(written) > 1 else RULES.get(name)
        if rule is not None and name in _NAMES_FIRST:
            for tensor in tensors:
                if self.known(tensor) is not None:
                    self.named(tensor)
        # What is known before: an operation may write to its arguments.
        before = {id(tensor): self.known(tensor) for tensor in tensors}
        result = func(*args, **kwargs)
        outs = _tensors(result)
        for out in outs:
            operation = Operation(name, out, args, kwargs, lambda value: before.get(id(value)), self.named, self.drawn)
            fact = None if rule is None else rule(operation)
            if fact is None:
                self.blamed = f"{name} is not known to bound anything"
                kept = entrywise(operation) if torch.Tag.pointwise in func.tags else UNKNOWN
                fact = kept.changed(why=self.blamed)
            if name not in ORDERED:
                fact = _of_records(fact, [known for known in before.values() if known is not None])
            self._enter(out, _of_batches(fact, before.values()), written=any(out is tensor for tensor in written))
        for tensor in written:
            if not any(tensor is out for out in outs):
                self._enter(tensor, _of_batches(UNKNOWN, before.values()), written=True)
        return result

    def of_several_batches(self, tensor: Tensor) -> bool:
        """Whether it depends on records of several batches, as what is computed with a trained model does."""
        fact = self.known(tensor)
        return fact is not None and len(fact.orders) > 1

    def _enter(self, tensor: Tensor, fact: Fact, *, written: bool = False) -> None:
        if tensor.layout is not torch.strided:
            return
        self._entered += 1
        if self._entered % 2048 == 0:
            self._drawn = {place: ref for place, ref in self._drawn.items() if not ref.expired()}
            self._facts = {place: known for place, known in self._facts.items() if not known[0].expired()}
        storage = tensor.untyped_storage()
        # A weak reference: as long as it is there, no other storage has this place.
        _, facts = self._facts.setdefault(storage._cdata, (StorageWeakRef(storage), {}))
        if written:
            facts.clear()
            whole = tensor.numel() * tensor.element_size() == storage.nbytes()
            fact = fact if whole else UNKNOWN
        fact = fact.alone()
        if fact.axis is None and tensor.dim():
            # Rows of which each may depend on all records: a clip by rows bounds them, too.
            fact = replace(fact, axis=0, own=False)
        facts[_place(tensor)] = fact

    def _next(self) -> int:
        self._count += 1
        return self._count


def _of_records(fact: Fact, given: Sequence[Fact]) -> Fact:
    """Rows are of one record each if those are that they are made of, and all in one order."""
    if fact.axis is None:
        return fact
    own = fact.own and all(known.own and known.axis is not None for known in given)
    own = own and len({known.order for known in given}) == 1
    return replace(fact, own=own, order=given[0].order)


def _of_batches(fact: Fact, given: Iterable[Fact | None]) -> Fact:
    """With the orders of all that it was made of; more than one are two."""
    if fact.own and fact.axis is not None:
        return replace(fact, orders=frozenset({fact.order}))
    orders = frozenset[int]().union(*(known.orders for known in given if known is not None))
    return replace(fact, orders=frozenset(sorted(orders)[:2]))


def _writes(func: Any, tensor: Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    slots = {slot.name: slot for slot in func._schema.arguments}
    given = dict(zip(slots, args, strict=False)) | kwargs
    return any(
        slot.alias_info is not None and slot.alias_info.is_write and any(t is tensor for t in _tensors([given[name]]))
        for name, slot in slots.items()
        if name in given
    )


_OF_SHAPES = frozenset(
    f"{made}_like" for made in ("zeros", "ones", "empty", "full", "rand", "randn", "randint")
) | frozenset(f"new_{made}" for made in ("zeros", "ones", "empty", "full", "empty_strided"))
"""Operations that read of a tensor its shape and dtype only: public values."""
_OVERWRITES = frozenset({"zero_", "fill_", "copy_"})
_DRAWN = frozenset({"native_dropout", "normal"})
"""Operations with draws of their own that a rule knows."""
_NAMES_FIRST = frozenset({"linalg_vector_norm", "norm", "pow", "square", "mul"})
"""Operations whose results bounds may later be compared with their arguments' norms."""


def _filled(place: tuple[Any, ...]) -> int:
    """The elements of a contiguous tensor at the beginning of its storage; 0 of any other."""
    offset, shape, strides, _ = place
    expected = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
    return math.prod(shape) if offset == 0 and list(strides) == expected else 0


def _place(tensor: Tensor) -> tuple[Any, ...]:
    return tensor.storage_offset(), tuple(tensor.shape), tuple(tensor.stride()), tensor.dtype


def _tensors(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, dict):
        return [tensor for part in value.values() for tensor in _tensors(part)]
    return [tensor for part in value for tensor in _tensors(part)] if isinstance(value, list | tuple) else []
