"""Numbers and NumPy arrays that remember the tensor they were read from, so that a private value keeps its mark.

Everybody logs `loss.item()`. A marked number is a float with which one can calculate, print and log; on its way it is
followed as the tensor that it is. Comparing it, or making a plain number of it, is a read of a private value.
"""

from __future__ import annotations

import builtins
import math
import operator
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, Protocol
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor

__all__ = ["MarkedArray", "MarkedFloat", "MarkedInt", "Reader", "marked", "plain_functions", "tensor_of"]

_ARITHMETIC: tuple[tuple[str, Callable[[Any, Any], Any]], ...] = (
    ("add", operator.add),
    ("sub", operator.sub),
    ("mul", operator.mul),
    ("truediv", operator.truediv),
    ("floordiv", operator.floordiv),
    ("mod", operator.mod),
    ("pow", operator.pow),
)
_COMPARISONS = ("lt", "le", "gt", "ge", "eq", "ne")


class Reader(Protocol):
    """Whoever notes reads by the host."""

    def read(self, how: str, tensor: Tensor, *, log: bool = False) -> None:
        """Note a read of a tensor."""
        ...

    def paused(self) -> AbstractContextManager[None]:
        """While the tracer looks away."""
        ...


class _Marked:
    """What marked numbers share. `tensor` is 0-dimensional and double, or int64."""

    tensor: Tensor
    exits: Reader

    def item(self) -> Any:
        """Itself: NumPy's numbers have this method."""
        return self


class MarkedFloat(_Marked, float):
    """A float that was read from a private tensor."""

    def __new__(cls, value: Any = 0.0) -> Any:
        """Whoever makes one of another number gets a plain one."""
        return float(value)

    __hash__ = float.__hash__


class MarkedInt(_Marked, int):
    """An int that was read from a private tensor."""

    def __new__(cls, value: Any = 0) -> Any:
        """Whoever makes one of another number gets a plain one."""
        return int(value)

    __hash__ = int.__hash__


def marked(value: object, tensor: Tensor, exits: Reader) -> Any:
    """A number with its tensor."""
    if isinstance(value, bool) or not isinstance(value, float | int):
        return value
    of_float = isinstance(value, float)
    number: Any = float.__new__(MarkedFloat, value) if of_float else int.__new__(MarkedInt, value)
    number.tensor, number.exits = tensor, exits
    return number


def tensor_of(value: Any) -> Tensor | None:
    """The tensor that a number or array was read from."""
    return value.tensor if isinstance(value, _Marked | MarkedArray) else None


def _arithmetic(name: str, function: Callable[[Any, Any], Any], swapped: bool) -> Callable[[Any, Any], Any]:
    def method(self: Any, other: Any) -> Any:
        if not isinstance(other, float | int) or isinstance(other, np.generic):
            return NotImplemented
        base = float if isinstance(self, float) else int
        plain = getattr(base, f"__{'r' if swapped else ''}{name}__")(self, other)
        if plain is NotImplemented:
            plain = function(*((float(other), float(self)) if swapped else (float(self), float(other))))
        partner = other.tensor if isinstance(other, _Marked) else other
        operands = (partner, self.tensor) if swapped else (self.tensor, partner)
        return marked(plain, function(*operands), self.exits)

    return method


def _single(name: str, function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def method(self: Any) -> Any:
        base = float if isinstance(self, float) else int
        return marked(getattr(base, f"__{name}__")(self), function(self.tensor), self.exits)

    return method


def _comparison(name: str) -> Callable[[Any, Any], Any]:
    def method(self: Any, other: Any) -> Any:
        self.exits.read("a comparison", self.tensor)
        base = float if isinstance(self, float) else int
        return getattr(base, f"__{name}__")(self, other)

    return method


def _read(name: str, how: str, *, log: bool) -> Callable[..., Any]:
    def method(self: Any, *args: Any) -> Any:
        self.exits.read(how, self.tensor, log=log)
        base = float if isinstance(self, float) else int
        return getattr(base, name)(self, *args)

    return method


def _reduced(self: Any, protocol: int) -> Any:
    self.exits.read("a file", self.tensor, log=True)
    return (float, (float.__repr__(self),)) if isinstance(self, float) else (int, (int.__repr__(self),))


_SINGLE: tuple[tuple[str, Callable[[Any], Any]], ...] = (
    ("neg", operator.neg),
    ("abs", operator.abs),
    ("pos", operator.pos),
)
for _kind in (MarkedFloat, MarkedInt):
    for _name, _function in _ARITHMETIC:
        setattr(_kind, f"__{_name}__", _arithmetic(_name, _function, swapped=False))
        setattr(_kind, f"__r{_name}__", _arithmetic(_name, _function, swapped=True))
    for _name, _change in _SINGLE:
        setattr(_kind, f"__{_name}__", _single(_name, _change))
    for _name in _COMPARISONS:
        setattr(_kind, f"__{_name}__", _comparison(_name))
    for _name in ("__format__", "__repr__", "__str__"):
        setattr(_kind, _name, _read(_name, "a log", log=True))
    for _name in ("__int__", "__round__", "__trunc__"):
        setattr(_kind, _name, _read(_name, "a plain number", log=False))
    _kind.__bool__ = _read("__bool__", "a branch", log=False)  # type: ignore[method-assign]
    _kind.__reduce_ex__ = _reduced  # type: ignore[method-assign,assignment]
MarkedFloat.__float__ = _read("__float__", "a plain real number", log=False)  # type: ignore[method-assign]


# Functions of plain numbers


_MATH: dict[str, Callable[[Tensor], Tensor]] = {
    "sqrt": torch.sqrt,
    "exp": torch.exp,
    "expm1": torch.expm1,
    "log": torch.log,
    "log1p": torch.log1p,
    "cos": torch.cos,
    "sin": torch.sin,
    "tanh": torch.tanh,
    "fabs": torch.abs,
}


def _unmarked(value: Any) -> Any:
    if not isinstance(value, _Marked):
        return value
    return float.__add__(value, 0.0) if isinstance(value, float) else int.__add__(value, 0)  # type: ignore[operator]


def _of_math(original: Callable[..., Any], function: Callable[[Tensor], Tensor]) -> Callable[..., Any]:
    def followed(number: Any, *more: Any) -> Any:
        if more or not isinstance(number, _Marked):
            return original(number, *more)
        return marked(original(_unmarked(number)), function(number.tensor.double()), number.exits)

    return followed


def _extreme(original: Callable[..., Any], function: Callable[[Tensor], Tensor]) -> Callable[..., Any]:
    """`min` and `max`: which of the numbers it is, is followed and not read."""

    def followed(*args: Any, **kwargs: Any) -> Any:
        numbers = args[0] if len(args) == 1 and isinstance(args[0], list | tuple) else args
        own = next((number for number in numbers if isinstance(number, _Marked)), None)
        plain = [_unmarked(number) for number in numbers] if own is not None else []
        if own is None or kwargs or not all(isinstance(number, float | int) for number in plain):
            return original(*args, **kwargs)
        tensors = [t.double() if (t := tensor_of(n)) is not None else torch.tensor(float(n)) for n in numbers]
        extreme = original(plain)
        chosen = function(torch.stack([tensor.double() for tensor in tensors]))
        return marked(extreme, chosen if isinstance(extreme, float) else chosen.long(), own.exits)

    return followed


@contextmanager
def plain_functions() -> Iterator[None]:
    """Functions of Python that take marked numbers, as a clip by `min(1, C / norm)` needs."""
    with ExitStack() as stack:
        for name, function in _MATH.items():
            stack.enter_context(patch.object(math, name, _of_math(getattr(math, name), function)))
        for name, extreme in (("min", torch.amin), ("max", torch.amax)):
            stack.enter_context(patch.object(builtins, name, _extreme(getattr(builtins, name), extreme)))
        yield


_UFUNCS: dict[str, Callable[..., Tensor]] = {
    "add": torch.add,
    "subtract": torch.sub,
    "multiply": torch.mul,
    "divide": torch.true_divide,
    "true_divide": torch.true_divide,
    "negative": torch.neg,
    "sqrt": torch.sqrt,
    "square": torch.square,
    "log": torch.log,
    "log1p": torch.log1p,
    "exp": torch.exp,
    "absolute": torch.abs,
    "sign": torch.sign,
    "cos": torch.cos,
    "sin": torch.sin,
    "power": torch.pow,
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "less": torch.lt,
    "less_equal": torch.le,
    "greater": torch.gt,
    "greater_equal": torch.ge,
    "equal": torch.eq,
    "not_equal": torch.ne,
    "bitwise_xor": torch.bitwise_xor,
    "bitwise_and": torch.bitwise_and,
    "bitwise_or": torch.bitwise_or,
    "remainder": torch.remainder,
    "expm1": torch.expm1,
    "tanh": torch.tanh,
    "floor": torch.floor,
    "ceil": torch.ceil,
    "rint": torch.round,
    "matmul": torch.matmul,
}


class MarkedArray(np.ndarray[Any, Any]):
    """An array that shares its memory with a followed tensor; universal functions of it are those of the tensor."""

    tensor: Tensor
    exits: Reader

    @classmethod
    def of(cls, tensor: Tensor, exits: Reader) -> MarkedArray:
        """The array of a tensor."""
        with exits.paused():
            array = tensor.detach().numpy().view(cls)
        array.tensor, array.exits = tensor, exits
        return array

    def __array_finalize__(self, parent: Any) -> None:
        self.exits = getattr(parent, "exits", None)  # type: ignore[assignment]

    @property
    def followed(self) -> Tensor | None:
        """Its tensor; of a view, that view of the tensor; None where it is another array by now."""
        own: Any = self.__dict__.get("tensor")
        if own is not None:
            # NumPy may have given it another shape since.
            return own if own.shape == self.shape else own.reshape(self.shape)  # type: ignore[no-any-return]
        root: Any = self
        while isinstance(root, MarkedArray) and "tensor" not in root.__dict__:
            root = root.base
        if not isinstance(root, MarkedArray):
            return None
        offset = self.__array_interface__["data"][0] - root.__array_interface__["data"][0]
        tensor, size = root.tensor, self.itemsize
        if (
            size != tensor.element_size()
            or offset % size
            or any(stride % size or stride < 0 for stride in self.strides)
        ):
            return None
        strides = [stride // size for stride in self.strides]
        return tensor.as_strided(self.shape, strides, tensor.storage_offset() + offset // size)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        tensors = [value.followed if isinstance(value, MarkedArray) else value for value in inputs]
        exits = next(value.exits for value in (*inputs, *kwargs.get("out", ())) if _has_exits(value))
        known = method == "__call__" and not kwargs and ufunc.__name__ in _UFUNCS
        if known and not any(tensor is None for tensor in tensors):
            values = [torch.as_tensor(np.asarray(t)) if not isinstance(t, Tensor) else t for t in tensors]
            return MarkedArray.of(_UFUNCS[ufunc.__name__](*values), exits)
        for tensor in tensors:
            if isinstance(tensor, Tensor):
                exits.read(f"NumPy's {ufunc.__name__}", tensor)
        plain = [np.asarray(value) if isinstance(value, MarkedArray) else value for value in inputs]
        if "out" in kwargs:
            kwargs["out"] = tuple(np.asarray(value) for value in kwargs["out"])
        return getattr(ufunc, method)(*plain, **kwargs)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if func is np.where and len(args) == 3:
            operands = [value.followed if isinstance(value, MarkedArray) else value for value in args]
            if not any(operand is None for operand in operands):
                tensors = [torch.as_tensor(operand) for operand in operands]
                return MarkedArray.of(torch.where(tensors[0], tensors[1], tensors[2]), self.exits)
        own = self.followed if func is np.clip and len(args) == 3 and not kwargs and args[0] is self else None
        if own is not None and all(isinstance(limit, int | float) for limit in args[1:]):
            return MarkedArray.of(own.clamp(*args[1:]), self.exits)
        for value in args:
            if isinstance(value, MarkedArray) and (tensor := value.followed) is not None:
                value.exits.read(f"NumPy's {func.__name__}", tensor)
        plain = tuple(np.asarray(value) if isinstance(value, MarkedArray) else value for value in args)
        return func(*plain, **kwargs)

    def __setitem__(self, key: Any, value: Any) -> None:
        tensor = self.followed
        if key is Ellipsis and tensor is not None and isinstance(value, Tensor):
            tensor.copy_(value)
        else:
            super().__setitem__(key, value)

    def astype(self, dtype: Any, *args: Any, **kwargs: Any) -> Any:
        tensor = self.followed
        if tensor is None:
            return np.asarray(self).astype(dtype, *args, **kwargs)
        return MarkedArray.of(tensor.to(torch.from_numpy(np.empty(0, dtype)).dtype), self.exits)


def _has_exits(value: Any) -> bool:
    return isinstance(value, MarkedArray) and value.exits is not None
