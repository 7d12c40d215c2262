"""One operation of the dispatcher: its tensors, what it writes to, and how it is tried out on other values."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vflpriv.audits.flow.tracer.storages import key

__all__ = ["Call", "schema"]

_HIDDEN_WRITES = {"native_batch_norm": (3, 4), "cudnn_batch_norm": (3, 4), "miopen_batch_norm": (3, 4)}
"""Positions of arguments that are written to although the schema does not say so."""
_OVERWRITES = ("copy_", "fill_", "zero_")


@lru_cache(maxsize=4096)
def schema(op: Any) -> tuple[str, frozenset[int], frozenset[str], bool, bool]:
    """Name, written arguments by position and by name, whether it returns a view, whether it is pointwise."""
    arguments = op._schema.arguments
    written = [place for place, a in enumerate(arguments) if a.alias_info is not None and a.alias_info.is_write]
    name = op._schema.name.split("::")[1]
    views = any(r.alias_info is not None and not r.alias_info.is_write for r in op._schema.returns)
    pointwise = torch.Tag.pointwise in op.tags or name in ("where", "_to_copy", "clone", "copy_")
    places = frozenset([*written, *_HIDDEN_WRITES.get(name, ())])
    return name, places, frozenset(arguments[place].name for place in written), views, pointwise


class Call:
    """An operation with its arguments."""

    def __init__(self, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.op, self.args, self.kwargs = op, args, kwargs
        self.name, places, names, self.views, self.pointwise = schema(op)
        self.tensors: list[Tensor] = []
        self.written: list[int] = []
        self._nested = False
        self._doubles: list[Tensor] | None = None
        self.widened: frozenset[int] = frozenset()
        """Whole numbers that are tried out as the real numbers that they are."""
        for place, value in enumerate(args):
            self._take(value, place in places)
        for name, value in kwargs.items():
            self._take(value, name in names)

    @property
    def shape(self) -> torch.Size:
        """To which its tensors are broadcast; torch's own function for it loads a computer algebra system."""
        return torch.Size(np.broadcast_shapes(*[tensor.shape for tensor in self.tensors]))

    def _take(self, value: Any, written: bool) -> None:
        if isinstance(value, Tensor):
            if written:
                self.written.append(len(self.tensors))
            self.tensors.append(value)
        elif isinstance(value, list | tuple):
            self._nested = True
            for entry in value:
                if isinstance(entry, Tensor):
                    self._take(entry, written)

    def overwritten(self, number: int) -> bool:
        """Whether nothing of a written tensor's former value is left."""
        if self.name in _OVERWRITES:
            return number == 0
        return "out" in self.kwargs and self.kwargs["out"] is self.tensors[number]

    def run(self, tensors: list[Tensor], *, double: bool = False) -> Any:
        """The operation on other tensors."""
        args, kwargs = self._arguments(tensors, double)
        return self.op(*args, **kwargs)

    def on(self, tensors: list[Tensor]) -> Call:
        """The call of the operation on other tensors."""
        return Call(self.op, *self._arguments(tensors, double=False))

    def _arguments(self, tensors: list[Tensor], double: bool) -> tuple[tuple[Any, ...], dict[str, Any]]:
        left = iter(tensors)
        if not double and not self.kwargs and not self._nested:
            return tuple(next(left) if isinstance(value, Tensor) else value for value in self.args), {}

        def put(value: Any) -> Any:
            if isinstance(value, Tensor):
                return next(left)
            if isinstance(value, list | tuple):
                return type(value)(next(left) if isinstance(entry, Tensor) else entry for entry in value)
            if double and isinstance(value, torch.dtype) and value.is_floating_point:
                return torch.float64
            return value

        return tuple(put(value) for value in self.args), {name: put(value) for name, value in self.kwargs.items()}

    def results(self, out: Any, tensors: list[Tensor] | None = None) -> list[Tensor]:
        """What it made and what it wrote to, in an order that is the same for all runs of it."""
        tensors = self.tensors if tensors is None else tensors
        if isinstance(out, Tensor) and (
            not self.written or (len(self.written) == 1 and out is tensors[self.written[0]])
        ):
            return [out]
        known = {key(tensor) for tensor in tensors}
        returned = out if isinstance(out, list | tuple) else (out,)
        made = [value for value in returned if isinstance(value, Tensor) and key(value) not in known]
        return made + [tensors[number] for number in self.written]

    def again(self, replaced: Mapping[int, Tensor]) -> list[Tensor]:
        """The results with some arguments replaced, in double precision, without touching anything."""
        if self._doubles is None:
            self._doubles = [
                tensor.detach().double() if tensor.is_floating_point() or number in self.widened else tensor.detach()
                for number, tensor in enumerate(self.tensors)
            ]
        tensors = [replaced.get(number, tensor) for number, tensor in enumerate(self._doubles)]
        for number in self.written:
            tensors[number] = tensors[number].clone()
        return self.results(self.run(tensors, double=True), tensors)
