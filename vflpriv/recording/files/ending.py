"""Recordings that are open end with the program: in order at its end, after an error, and on SIGTERM or SIGHUP.

A signal is listened to where nobody else does. It then ends the program as if nobody had. A handler that the program
has, or sets later, is its own affair; it is expected to raise, so that the recording is left by an error.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Protocol

__all__ = ["add", "end_recordings", "remove", "shielded"]

_SIGNALS = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))


class _Recording(Protocol):
    def finish(self) -> None: ...

    def abandon(self) -> None: ...


_OPEN: dict[int, _Recording] = {}
_STATE = {"process": os.getpid(), "shields": 0, "came": 0}
"""Whose recordings they are, how many blocks must not be interrupted now, and the signal that waits for their end."""


def add(recording: _Recording) -> None:
    """End this recording with the program, unless it ends before."""
    _OPEN[id(recording)] = recording
    _STATE["process"] = os.getpid()
    _exchange(signal.SIG_DFL, _hear)


def remove(recording: _Recording) -> None:
    """It has ended."""
    if _OPEN.pop(id(recording), None) is not None and not _OPEN:
        _exchange(_hear, signal.SIG_DFL)


def _exchange(handler: object, other: object) -> None:
    if threading.current_thread() is threading.main_thread():  # only the main thread may
        for number in _SIGNALS:
            if signal.getsignal(number) == handler:
                signal.signal(number, other)  # type: ignore[arg-type]


def end_recordings() -> None:
    """End every recording that is open, as the end of the program does: unfinished if an error ended it."""
    failed = getattr(sys, "last_value", None) is not None
    for recording in list(_OPEN.values()):
        (recording.abandon if failed else recording.finish)()


atexit.register(end_recordings)


@contextmanager
def shielded() -> Iterator[None]:
    """A block that such a signal does not interrupt: it is heard at the end."""
    _STATE["shields"] += 1
    try:
        yield
    finally:
        _STATE["shields"] -= 1
        if not _STATE["shields"] and _STATE["came"]:
            _stop(_STATE["came"])


def _hear(number: int, frame: FrameType | None) -> None:
    del frame
    if _STATE["shields"] and os.getpid() == _STATE["process"]:
        _STATE["came"] = number
    else:
        _stop(number)


def _stop(number: int) -> None:
    _STATE["came"] = 0
    if os.getpid() == _STATE["process"]:  # a child of the program has the handler, too, but not the recording
        for recording in list(_OPEN.values()):
            recording.abandon()
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
