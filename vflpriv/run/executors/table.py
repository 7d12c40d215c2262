"""The executors by name, and the one that `--workers` asks for."""

from __future__ import annotations

from contextlib import AbstractContextManager

from vflpriv.common.tasks import Executor
from vflpriv.errors import InputError

__all__ = ["executor_of"]

_EXPECTED = "a number of workers of this machine, ray, or ray://HOST:PORT"


def executor_of(workers: object) -> AbstractContextManager[Executor]:
    """The executor that is meant: a number of local workers, one per core or GPU if None, or a Ray cluster."""
    if isinstance(workers, str):
        return _named(workers.strip())
    if workers is not None and (isinstance(workers, bool) or not isinstance(workers, int) or workers < 1):
        raise InputError("--workers", workers, _EXPECTED)
    from vflpriv.run.executors.local import LocalExecutor

    return LocalExecutor(workers)


def _named(workers: str) -> AbstractContextManager[Executor]:
    host, colon, port = workers.removeprefix("ray://").rpartition(":")
    address = workers.startswith("ray://") and bool(host and colon) and port.isdecimal()
    if workers != "ray" and not address:
        raise InputError("--workers", workers, _EXPECTED)
    from vflpriv.run.executors.ray import RayExecutor

    return RayExecutor(workers if address else None)
