"""The Ray executor: tasks on the cores and GPUs of a Ray cluster, or of one that is started on this machine."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable
from importlib.util import find_spec
from types import TracebackType
from typing import Any, TypeVar

import cloudpickle

from vflpriv.common.machine import single_threaded
from vflpriv.common.tasks import Progress, Tasks
from vflpriv.errors import InputError
from vflpriv.run.executors.outcomes import TRIES, Outcome, WorkerError, accepted, performed

__all__ = ["RayExecutor"]

T = TypeVar("T")
_SETTINGS = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0", "RAY_DEDUP_LOGS": "0"}
"""An audit sends nothing to Ray's makers, and their notices are not its output."""
_FIELD = "--workers"
_SECONDS = 5.0
"""How long a cluster may take to be connected to."""


class RayExecutor:
    """Runs tasks on a Ray cluster: the one at `address`, else that of RAY_ADDRESS or of this machine, else a new one.

    A program that is connected to Ray already keeps its connection. Every node needs this package, and the packages of
    engines that do not come with it; classes of the program's main module are sent along.
    """

    def __init__(self, address: str | None = None) -> None:
        self._address, self._own = address, False
        self._common: tuple[object, Any] | None = None
        if find_spec("ray") is None:
            raise InputError(
                _FIELD,
                address or "ray",
                "Ray to be installed: pip install 'vflpriv[ray] @ git+https://github.com/vflpriv/vflpriv'",
            )

    def __enter__(self) -> RayExecutor:
        for name, value in _SETTINGS.items():
            os.environ.setdefault(name, value)
        import ray

        if ray.is_initialized():
            return self
        _check_reachable(self._address or os.environ.get("RAY_ADDRESS", ""))
        options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.CRITICAL}
        if self._address is not None:
            options["address"] = self._address
        elif "RAY_ADDRESS" not in os.environ:
            options["include_dashboard"] = False
        try:
            ray.init(**options)
        except Exception as error:  # whatever keeps Ray from starting, its own errors and failed assertions included
            value = self._address or os.environ.get("RAY_ADDRESS") or "ray"
            why = " ".join(str(error).split())
            raise InputError(_FIELD, value, f"a Ray cluster that answers ({why})") from error
        self._own = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        import ray

        self._common = None
        if self._own:
            ray.shutdown()

    def run(
        self,
        tasks: Tasks[Any, Any, T],
        *,
        progress: Progress,
        finished: Callable[[int, T], None] | None = None,
    ) -> list[T]:
        import ray

        pending = self._submitted(tasks)
        results: dict[int, T] = {}
        try:
            while pending:
                (ready, *_), _ = ray.wait(list(pending), num_returns=1)
                place = pending.pop(ready)
                results[place] = accepted(_outcome(ready, tasks.names[place]), progress)
                if finished is not None:
                    finished(place, results[place])
        finally:
            for reference in pending:
                ray.cancel(reference, force=True)
        return [results[place] for place in range(len(results))]

    def _submitted(self, tasks: Tasks[Any, Any, T]) -> dict[Any, int]:
        """A reference to the outcome of each task, and the place of its item."""
        import ray

        if not tasks.items:
            return {}
        if self._common is None or self._common[0] is not tasks.common:
            self._common = (tasks.common, ray.put(cloudpickle.dumps(tasks.common)))
        amount = {"num_gpus": 1, "num_cpus": 0} if tasks.accelerated else {"num_cpus": 1}
        remote = ray.remote(_performed).options(max_retries=TRIES - 1, **amount)
        # In a list it is a reference still, so that a worker reads it once and not for every task.
        common = [self._common[1]]
        return {
            remote.remote(cloudpickle.dumps((tasks.function, item)), common, tasks.accelerated): place
            for place, item in enumerate(tasks.items)
        }


def _check_reachable(address: str) -> None:
    """Raise an InputError unless somebody listens there; Ray itself would wait for minutes."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not colon or not port.isdecimal():
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise InputError(_FIELD, address, f"a Ray cluster that answers ({error})") from error


def _outcome(reference: Any, name: str) -> Outcome:
    """The outcome of a task that Ray says is over; an error that names it if its workers died."""
    import ray

    try:
        outcome: Outcome = cloudpickle.loads(ray.get(reference))
    except ray.exceptions.RayError as error:
        why = " ".join(str(error).split())[:200]
        raise WorkerError(f"{name}: Ray gave up after {TRIES} tries ({type(error).__name__}: {why})") from error
    return outcome


# In a worker of Ray

_READ: dict[str, Any] = {}
"""What all tasks need, by its reference; the last one only."""


def _performed(task: bytes, common: list[Any], accelerated: bool) -> bytes:
    """Run a task. Ray's own copies of arrays cannot be written to, so everything travels as bytes."""
    import ray

    (reference,) = common
    function, item = cloudpickle.loads(task)
    if reference.hex() not in _READ:
        _READ.clear()
        _READ[reference.hex()] = cloudpickle.loads(ray.get(reference))
    with single_threaded():
        outcome = performed(function, _READ[reference.hex()], item, 1 if accelerated else _neighbours())
    answer: bytes = cloudpickle.dumps(outcome)
    return answer


def _neighbours() -> int:
    """How many tasks this node runs at a time: as many as it has cores for Ray."""
    import ray

    own = ray.get_runtime_context().get_node_id()
    return max(1, *(int(node["Resources"].get("CPU", 1)) for node in ray.nodes() if node["NodeID"] == own))
