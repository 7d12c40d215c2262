"""Worker processes of this machine: how they are started, spoken to over pipes, and found dead.

A process gets frames on its standard input and answers on its standard output. It ends by itself when its input ends,
so that none outlives the program, however that ends.

Why not a library: loky, which joblib uses, starts as fast and takes as much memory, but a worker that dies takes the
tasks of all others with it, so that nobody knows which task is to blame; what all tasks need is sent with every task;
and workers go on with their tasks when the program was killed.
"""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module
from typing import IO

import cloudpickle

from vflpriv.common.machine import single_threaded
from vflpriv.run.executors.outcomes import Outcome, TaskError, performed

__all__ = ["ProcessDiedError", "WorkerProcess", "main"]

_LENGTH = 8
_COMMON, _TASK = b"c", b"t"
"""The first byte of a frame: what all tasks need, or one of them."""
_CODE = "from vflpriv.run.executors.process import main; main()"
_FIRST = "vflpriv.audits.two_world"
"""What most tasks need is there before the first one is."""


class ProcessDiedError(Exception):
    """A worker process ended before it answered."""


class WorkerProcess:
    """One worker process; `environment` is added to this program's."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        paths = os.pathsep.join(path or os.getcwd() for path in sys.path)
        one_thread = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        # -P: what lies in the working directory is not to be imported in place of a library.
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", _CODE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | one_thread | {"PYTHONPATH": paths, **environment},
        )
        self._common: object = None

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait_until_ready(self) -> None:
        """Return when the process has loaded what tasks need."""
        self._receive()

    def call(self, common: object, common_bytes: bytes, task: bytes) -> Outcome:
        """Run one task; `common_bytes` are sent only if the process does not have `common` yet."""
        if common is not self._common:
            self._send(_COMMON, common_bytes)
            self._common = common
        self._send(_TASK, task)
        outcome = self._receive()
        assert isinstance(outcome, Outcome)
        return outcome

    def close(self) -> None:
        """Let the process end, whatever it is doing."""
        self._process.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()
        self._process.wait()

    def _send(self, kind: bytes, content: bytes) -> None:
        assert self._process.stdin is not None
        try:
            _write(self._process.stdin, kind, content)
        except (OSError, ValueError) as error:
            raise self._died() from error

    def _receive(self) -> object:
        assert self._process.stdout is not None
        try:
            frame = _read(self._process.stdout)
        except (OSError, ValueError) as error:
            raise self._died() from error
        if frame is None:
            raise self._died()
        return cloudpickle.loads(frame)

    def _died(self) -> ProcessDiedError:
        self.close()
        code = self._process.returncode
        return ProcessDiedError(f"signal {-code}" if code < 0 else f"exit code {code}")


def _write(pipe: IO[bytes], *parts: bytes) -> None:
    """Write the parts as one frame, without a copy of all of them together."""
    pipe.write(sum(map(len, parts)).to_bytes(_LENGTH, "big"))
    for part in parts:
        pipe.write(part)
    pipe.flush()


def _read(pipe: IO[bytes]) -> bytes | None:
    """The next frame, or None at the end."""
    head = pipe.read(_LENGTH)
    size = int.from_bytes(head, "big")
    frame = pipe.read(size) if len(head) == _LENGTH else b""
    return frame if len(head) == _LENGTH and len(frame) == size else None


# In the worker process


def main(first: str = _FIRST) -> None:
    """Import a module, then answer tasks until the input ends; each needs the last object that came before it."""
    # Whatever prints to standard output must not come between the answers.
    answers, requests = os.fdopen(os.dup(1), "wb"), os.fdopen(os.dup(0), "rb")
    os.dup2(2, 1)
    # Ctrl-C reaches every process of a terminal; the program ends its workers by itself.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    frames: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(requests, frames), daemon=True).start()
    import_module(first)
    _write(answers, cloudpickle.dumps("ready"))
    common = _Common()
    with single_threaded():
        while True:
            frame = frames.get()
            if frame[:1] == _COMMON:
                common = _Common(frame[1:])
            else:
                _write(answers, cloudpickle.dumps(_answer(common, frame[1:])))


class _Common:
    """What all tasks need, read when the first of them does."""

    def __init__(self, frame: bytes | None = None) -> None:
        self._frame = frame
        self._value: object = None

    def value(self) -> object:
        if self._frame is not None:
            self._value, self._frame = cloudpickle.loads(self._frame), None
        return self._value


def _answer(common: _Common, frame: bytes) -> Outcome:
    """The outcome of a task; the error, if what it needs cannot be read here."""
    try:
        function, item, neighbours = cloudpickle.loads(frame)
        shared = common.value()
    except Exception:  # noqa: BLE001 (a module that is missing here, or whatever its import raises)
        text = traceback.format_exc()
        return Outcome(error=TaskError(text), traceback=text)
    return performed(function, shared, item, neighbours)


def _listen(requests: IO[bytes], frames: queue.SimpleQueue[bytes]) -> None:
    """Take in frames while a task runs, so that the end of the program is noticed at once."""
    while (frame := _read(requests)) is not None:
        frames.put(frame)
    os._exit(0)
