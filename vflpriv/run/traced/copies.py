"""Lists, dictionaries and arrays of a script that hold the private values, too: they are what its tensors are.

A cache that was made before values are handed over is no tensor that could be made private. Its numbers are replaced by
those of the private tensor: followed ones while a run is traced, those of the other world in a plain run of it.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterable, Iterator
from types import FrameType
from typing import Any

import numpy as np
from torch import Tensor

__all__ = ["Container", "containers", "fill", "rebind"]

Container = list[Any] | dict[Any, Any]
_FEW = 8
"""So many numbers are not alike by chance."""


def containers(values: Tensor) -> list[Container]:
    """All lists with these numbers, and dictionaries of them in their order."""
    wanted: list[Any] = values.detach().reshape(-1).tolist()
    if values.dim() != 1 or len(wanted) < _FEW or len(set(wanted)) < 2:
        return []
    known = {id(own): own for own in _dictionaries() if len(own) == len(wanted)}
    candidates: Iterable[Any] = [*gc.get_objects(), *known.values()]
    holding = {
        id(own): own
        for own in candidates
        if type(own) in (list, dict) and own is not wanted and len(own) == len(wanted) and _alike(own, wanted)
    }
    return list(holding.values())


def fill(own: Container, tensor: Tensor) -> None:
    """Give a container the numbers of a tensor, in their own types."""
    numbers = tensor.reshape(-1).tolist()
    places = list(own) if isinstance(own, dict) else range(len(own))
    for place, number in zip(places, numbers, strict=True):
        own[place] = number


def rebind(values: Tensor) -> None:
    """Where a script has an array of these numbers under a name, that name is the array of this tensor from here on."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_globals.get("__name__") == "__main__":
            for name, own in list(frame.f_globals.items()):
                if type(own) is np.ndarray and own.shape == values.shape and own.dtype.kind in "iuf":
                    array = values.numpy()
                    if np.array_equal(own, np.asarray(array)):
                        frame.f_globals[name] = array if own.dtype == array.dtype else array.astype(own.dtype)
        frame = frame.f_back


def _alike(own: Container, wanted: list[Any]) -> bool:
    values = list(own.values()) if isinstance(own, dict) else own
    kind = type(wanted[0])
    return all(
        isinstance(value, kind) and not isinstance(value, bool) and _plain(value) == number
        for value, number in zip(values, wanted, strict=True)
    )


def _plain(number: float) -> float:
    """Of a number that is followed, a comparison would be a read."""
    return int.__pos__(number) if isinstance(number, int) else float.__pos__(number)


def _dictionaries() -> Iterator[dict[Any, Any]]:
    """Those of the functions that run, and of their modules: one of plain numbers is not among all objects."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        for value in (*frame.f_globals.values(), *frame.f_locals.values()):
            if type(value) is dict:
                yield value
        frame = frame.f_back
