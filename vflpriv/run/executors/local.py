"""The local executor: tasks on the cores, or on the GPUs, of this machine.

Tasks that compute on a core begin on threads of this process, and go on in processes of their own if the work lasts: a
round is many short operations, between which threads wait for each other's Python, but a process takes two seconds to
load torch, in which a small audit is done. A GPU has a process of its own from the start, and so has a task that
changes what is global in its process; a single one needs none.
"""

from __future__ import annotations

import os
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, TypeVar

import cloudpickle

from vflpriv.common.machine import single_threaded
from vflpriv.common.tasks import InProcess, NoProgress, Progress, Tasks, Worker
from vflpriv.run.executors.outcomes import TRIES, Outcome, WorkerError, accepted
from vflpriv.run.executors.process import ProcessDiedError, WorkerProcess

__all__ = ["LocalExecutor", "cores"]

T = TypeVar("T")
_PATIENCE = 4.0
"""Seconds on threads before processes are started: about what that costs, so that no work takes twice as long as with
the better choice."""
_TICK = 0.5
"""Seconds after which the main thread looks up, so that signals are heard on every system."""


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _gpus() -> list[str]:
    """The names of the GPUs that this process may use, as CUDA_VISIBLE_DEVICES has them."""
    import torch

    named = [name.strip() for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name.strip()]
    return [named[i] if i < len(named) else str(i) for i in range(torch.cuda.device_count())]


class LocalExecutor:
    """Runs as many tasks at a time as there are workers: one per core, or per GPU, unless their number is given."""

    def __init__(self, workers: int | None = None, *, patience: float = _PATIENCE) -> None:
        self._workers, self._patience = workers, patience
        self._pools: dict[tuple[bool, bool], _Pool] = {}

    def __enter__(self) -> LocalExecutor:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for pool in self._pools.values():
            pool.close()

    @property
    def processes(self) -> list[int]:
        """The worker processes that run, by their numbers."""
        return [process.pid for pool in self._pools.values() for process in pool.running()]

    def run(
        self,
        tasks: Tasks[Any, Any, T],
        *,
        progress: Progress,
        finished: Callable[[int, T], None] | None = None,
    ) -> list[T]:
        kind = (tasks.accelerated, tasks.isolated)
        pool = self._pools.get(kind) or self._pool(*kind)
        slots = min(pool.size, len(tasks.items))
        if slots <= 1:
            return InProcess().run(tasks, progress=progress, finished=finished)
        with single_threaded():
            return _Run(pool, tasks, progress, slots).results(finished)

    def _pool(self, accelerated: bool, isolated: bool) -> _Pool:
        if accelerated:
            environments: Sequence[Mapping[str, str]] = [{"CUDA_VISIBLE_DEVICES": name} for name in _gpus()]
            pool = _Pool(environments[: self._workers], patience=0.0, threads=False)
        else:
            patience = 0.0 if isolated else self._patience
            pool = _Pool([{}] * (self._workers or cores()), patience=patience, threads=not isolated)
        self._pools[accelerated, isolated] = pool
        return pool


class _Pool:
    """Worker processes, started when the work has lasted for a while; until then, and if `threads`, there are none."""

    def __init__(self, environments: Sequence[Mapping[str, str]], *, patience: float, threads: bool) -> None:
        self._environments, self.patience, self.threads = environments, patience, threads
        self.size, self.started, self.spent = len(environments), False, 0.0
        self._lock = threading.Lock()
        self._running: dict[WorkerProcess, Mapping[str, str]] = {}
        self._idle: queue.SimpleQueue[WorkerProcess] = queue.SimpleQueue()
        self._common: tuple[object, bytes] | None = None
        self._failure = ""

    def running(self) -> list[WorkerProcess]:
        with self._lock:
            return list(self._running)

    def start(self) -> None:
        """Start all processes; each is used as soon as it is ready."""
        if not self.started:
            self.started = True
            for environment in self._environments:
                self._launch(environment)

    def _launch(self, environment: Mapping[str, str]) -> None:
        process = WorkerProcess(environment)
        with self._lock:
            self._running[process] = environment
        threading.Thread(target=self._welcome, args=(process,), daemon=True).start()

    def _welcome(self, process: WorkerProcess) -> None:
        try:
            process.wait_until_ready()
            self._idle.put(process)
        except ProcessDiedError as died:
            with self._lock:
                self._running.pop(process, None)
            self._failure = str(died)

    def take(self, *, wait: bool) -> WorkerProcess | None:
        """A process that is free; None if there is none yet, unless one is to be waited for."""
        while True:
            try:
                return self._idle.get(timeout=_TICK if wait else 0)
            except queue.Empty:
                if not wait:
                    return None
            if not self.started:
                raise ProcessDiedError("the end of the run")
            if not self.running():
                raise WorkerError(f"worker processes could not be started: {self._failure}")

    def give(self, process: WorkerProcess) -> None:
        self._idle.put(process)

    def replace(self, dead: WorkerProcess) -> None:
        """Start another process in the place of one that died."""
        with self._lock:
            environment = self._running.pop(dead, None)
        if environment is not None and self.started:
            self._launch(environment)

    def close(self) -> None:
        """End all processes."""
        self.started = False
        with self._lock:
            running, self._running = list(self._running), {}
        for process in running:
            process.close()
        self._idle = queue.SimpleQueue()

    def pickled(self, common: object) -> bytes:
        """What all tasks need, as bytes; they are kept for the next tasks that need the same."""
        with self._lock:
            if self._common is None or self._common[0] is not common:
                self._common = (common, cloudpickle.dumps(common))
            return self._common[1]


class _StoppedError(Exception):
    """A task on a thread of this process is not needed any more."""


class _Stoppable(NoProgress):
    """Progress that ends a task on a thread at its next step once the run is over."""

    def __init__(self, progress: Progress, stopping: threading.Event) -> None:
        self._progress, self._stopping = progress, stopping

    def stage(self, text: str) -> None:
        self._progress.stage(text)

    def advance(self, work: int) -> None:
        if self._stopping.is_set():
            raise _StoppedError
        self._progress.advance(work)


class _Run:
    """One call of the executor: a thread per slot runs tasks itself, or has a process run them."""

    def __init__(self, pool: _Pool, tasks: Tasks[Any, Any, Any], progress: Progress, slots: int) -> None:
        self._pool, self._tasks, self._progress, self._slots = pool, tasks, progress, slots
        self._stopping = threading.Event()
        self._jobs: queue.SimpleQueue[tuple[int, int] | None] = queue.SimpleQueue()
        self._done: queue.SimpleQueue[tuple[int, int, Outcome | ProcessDiedError]] = queue.SimpleQueue()
        self._busy: set[WorkerProcess] = set()
        self._portable = True

    def results(self, finished: Callable[[int, T], None] | None) -> list[T]:
        """All results in order; `finished` is called on this thread."""
        for place in range(len(self._tasks.items)):
            self._jobs.put((place, 1))
        threads = [threading.Thread(target=self._work, daemon=True) for _ in range(self._slots)]
        for thread in threads:
            thread.start()
        results: dict[int, T] = {}
        try:
            while len(results) < len(self._tasks.items):
                place, tries, outcome = self._next()
                if isinstance(outcome, ProcessDiedError):
                    self._again(place, tries, outcome)
                    continue
                results[place] = accepted(outcome, self._progress)
                if finished is not None:
                    finished(place, results[place])
        finally:
            self._stop(threads)
        return [results[place] for place in range(len(results))]

    def _next(self) -> tuple[int, int, Outcome | ProcessDiedError]:
        """The next task that ended; if tasks have been waiting for long, processes are started."""
        pool = self._pool
        while True:
            begun = time.monotonic()
            try:
                return self._done.get(timeout=_TICK)
            except queue.Empty:
                continue
            finally:
                pool.spent += time.monotonic() - begun
                if pool.spent > pool.patience and self._portable and not self._jobs.empty():
                    pool.start()

    def _again(self, place: int, tries: int, died: ProcessDiedError) -> None:
        if tries >= TRIES:
            name = self._tasks.names[place]
            raise WorkerError(f"{name}: its worker process died {tries} times, the last time with {died}")
        self._jobs.put((place, tries + 1))

    def _stop(self, threads: Sequence[threading.Thread]) -> None:
        """End the threads, and the processes that still run a task."""
        self._stopping.set()
        if self._busy:
            self._pool.close()
        for _ in threads:
            self._jobs.put(None)
        for thread in threads:
            thread.join()

    # On the threads

    def _work(self) -> None:
        while not self._stopping.is_set():
            job = self._jobs.get()
            if job is None:
                return
            place, tries = job
            try:
                outcome: Outcome | ProcessDiedError = self._perform(place, tries)
            except ProcessDiedError as died:
                outcome = died
            except BaseException as error:  # noqa: BLE001 (raised again on the thread that waits for the result)
                outcome = Outcome(error=error)
            self._done.put((place, tries, outcome))

    def _perform(self, place: int, tries: int) -> Outcome:
        """One task, by a process if one is free; a task that may have killed one is never run by this process."""
        task = self._pickled(place)
        if task is None:
            return self._here(place)
        if not self._pool.threads:
            self._pool.start()
        process = self._pool.take(wait=tries > 1 or not self._pool.threads)
        if process is None:
            return self._here(place)
        self._busy.add(process)
        try:
            outcome = process.call(self._tasks.common, self._pool.pickled(self._tasks.common), task)
        except ProcessDiedError:
            self._pool.replace(process)
            raise
        finally:
            self._busy.discard(process)
        self._pool.give(process)
        return outcome

    def _neighbours(self) -> int:
        return self._slots if self._pool.threads else 1

    def _pickled(self, place: int) -> bytes | None:
        """The task as bytes; None while no process has been asked for, or if it cannot be pickled."""
        if self._pool.threads and not (self._pool.started and self._portable):
            return None
        try:
            self._pool.pickled(self._tasks.common)
            task: bytes = cloudpickle.dumps((self._tasks.function, self._tasks.items[place], self._neighbours()))
        except Exception:
            # Whatever cannot be pickled says so in its own way; threads need no pickling.
            if not self._pool.threads:
                raise
            self._portable = False
            return None
        return task

    def _here(self, place: int) -> Outcome:
        tasks, progress = self._tasks, _Stoppable(self._progress, self._stopping)
        worker = Worker(progress=progress, neighbours=self._neighbours())
        return Outcome(value=tasks.function(tasks.common, tasks.items[place], worker))
