"""Wires in place of recordings: whoever runs a user's script may decide what its `record` and `watch` return."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from vflpriv.recording.checked_wire import CheckedWire

__all__ = ["WireMaker", "made_elsewhere", "wires_made_by"]

WireMaker = Callable[..., CheckedWire]
"""Makes a wire of `devices`, `classes`, `records` and `name`, as a recording has them."""
_MAKERS: list[WireMaker] = []


@contextmanager
def wires_made_by(maker: WireMaker) -> Iterator[None]:
    """Nothing is recorded meanwhile: `record` and `watch` return the wires of this maker."""
    _MAKERS.append(maker)
    try:
        yield
    finally:
        _MAKERS.pop()


def made_elsewhere(**head: Any) -> Any:
    """The wire that takes the place of a recording; None where one is to be written."""
    return _MAKERS[-1](**head) if _MAKERS else None
