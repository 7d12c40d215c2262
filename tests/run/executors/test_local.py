"""The local executor: results in order, progress, errors and dead workers; threads first, processes if work lasts."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import cloudpickle
import pytest
import torch

from tests.run.executors import work
from tests.tree import ROOT
from vflpriv.common.tasks import InProcess, NoProgress
from vflpriv.errors import InputError
from vflpriv.run.executors import local, process
from vflpriv.run.executors.local import LocalExecutor
from vflpriv.run.executors.outcomes import TRIES, WorkerError
from vflpriv.run.executors.table import executor_of

CODE = process._CODE


@pytest.fixture(scope="module")
def processes() -> Iterator[LocalExecutor]:
    """Two worker processes that are ready, in place of threads; none of them imports torch before a task does."""
    with work.light_workers(), LocalExecutor(2, patience=0.0) as executor:
        executor.run(work.tasks(work.slow_square, range(40)), progress=NoProgress())
        yield executor


def run(executor: Any, function: Any, items: Any, common: Any = None, **options: Any) -> list[Any]:
    result: list[Any] = executor.run(work.tasks(function, items, common), progress=NoProgress(), **options)
    return result


@pytest.mark.parametrize("executor", [InProcess(), LocalExecutor(1), LocalExecutor(3)])
def test_results_are_in_order_and_come_as_they_finish(executor: Any) -> None:
    seen, told = [], work.Told()
    found = executor.run(
        work.tasks(work.slow_square, range(10)),
        progress=told,
        finished=lambda place, value: seen.append((place, value)),
    )
    assert found == [n * n for n in range(10)]
    assert sorted(seen) == [(n, n * n) for n in range(10)]
    assert sum(told.work) == sum(range(10))
    assert executor.run(work.tasks(work.square, []), progress=told) == []


def test_small_work_stays_in_this_process() -> None:
    with LocalExecutor(2) as executor:
        assert {pid for pid, _ in run(executor, work.whereabouts, range(6))} == {os.getpid()}
        assert executor.processes == []


def test_lasting_work_goes_to_processes_that_end_with_the_executor(processes: LocalExecutor) -> None:
    work.wait_for_processes(processes)
    assert set(run(processes, work.whereabouts, range(8))) == {(pid, 2) for pid in processes.processes}
    seen, told = [], work.Told()
    found = processes.run(
        work.tasks(work.slow_square, range(10)),
        progress=told,
        finished=lambda place, value: seen.append((place, value)),
    )
    assert found == [n * n for n in range(10)]
    assert sorted(seen) == [(n, n * n) for n in range(10)]
    assert sum(told.work) == sum(range(10))


def test_what_all_tasks_need_is_sent_once_to_each_process(processes: LocalExecutor, monkeypatch: Any) -> None:
    work.wait_for_processes(processes)
    common, sent = [torch.full((50_000,), float(n)) for n in range(6)], []
    send = local.WorkerProcess._send

    def counted(self: local.WorkerProcess, kind: bytes, content: bytes) -> None:
        sent.append(len(content))
        send(self, kind, content)

    monkeypatch.setattr(local.WorkerProcess, "_send", counted)
    for _ in range(2):
        assert run(processes, work.mean_of, range(6), common) == [0, 1, 2, 3, 4, 5]
    assert 1 <= sum(size > 1_000_000 for size in sent) <= 2


def test_an_error_of_a_task_is_raised_here_as_it_was(processes: LocalExecutor) -> None:
    work.wait_for_processes(processes)
    for executor in (processes, LocalExecutor(2)):
        with pytest.raises(InputError, match="field = 3: expected another number"):
            run(executor, work.fail, range(12))
    assert run(processes, work.square, range(4)) == [0, 1, 4, 9]


def test_a_worker_has_loaded_what_most_tasks_need_and_computes_on_one_thread(monkeypatch: Any) -> None:
    """As users have it, rather than light."""
    monkeypatch.setattr(process, "_CODE", CODE)
    worker = process.WorkerProcess({})
    try:
        worker.wait_until_ready()
        task = cloudpickle.dumps((work.loaded, "vflpriv.audits.two_world", 1))
        assert worker.call(None, b"", task).value == (True, 1)
    finally:
        worker.close()


def test_warnings_of_a_task_are_given_here(processes: LocalExecutor) -> None:
    work.wait_for_processes(processes)
    with pytest.warns(UserWarning, match="item 1 is odd"):
        run(processes, work.warn, (1, 1))


def test_the_task_of_a_dead_process_is_run_again(processes: LocalExecutor, tmp_path: Any) -> None:
    work.wait_for_processes(processes)
    before, told = set(processes.processes), work.Told()
    found = processes.run(work.tasks(work.die_once, range(6), str(tmp_path)), progress=told)
    assert found == [n * n for n in range(6)]
    begun = sorted(path.name.partition("-")[0] for path in tmp_path.iterdir())
    assert begun == ["0", "1", "2", "2", "3", "4", "5"]
    assert sum(told.work) == sum(range(6))
    assert len(before - set(processes.processes)) == 1


def test_a_task_that_kills_every_process_is_named(processes: LocalExecutor) -> None:
    work.wait_for_processes(processes)
    with pytest.raises(WorkerError, match=rf"task 2: its worker process died {TRIES} times, .* signal 9"):
        run(processes, work.die, range(3))
    assert run(processes, work.square, range(4)) == [0, 1, 4, 9]


def test_what_cannot_be_pickled_runs_on_threads(processes: LocalExecutor) -> None:
    work.wait_for_processes(processes)
    assert {pid for pid, _ in run(processes, work.whereabouts, range(4), threading.Lock())} == {os.getpid()}


def test_isolated_tasks_are_not_run_on_threads(monkeypatch: Any) -> None:
    monkeypatch.setattr("vflpriv.run.executors.process._CODE", "raise SystemExit(7)")
    isolated = replace(work.tasks(work.square, range(4)), isolated=True)
    with LocalExecutor(2) as executor, pytest.raises(WorkerError, match="could not be started: exit code 7"):
        executor.run(isolated, progress=NoProgress())


def test_processes_that_cannot_start_leave_the_work_to_threads(monkeypatch: Any) -> None:
    monkeypatch.setattr("vflpriv.run.executors.process._CODE", "raise SystemExit(7)")
    with LocalExecutor(2, patience=0.0) as executor:
        assert run(executor, work.slow_square, range(30)) == [n * n for n in range(30)]
        with pytest.raises(WorkerError, match="could not be started: exit code 7"):
            executor._pools[False, False].take(wait=True)


# A program that was started in the background ignores Ctrl-C, and so would this one.
DRIVER = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from tests.run.executors import work
from vflpriv.common.tasks import NoProgress
from vflpriv.run.executors.local import LocalExecutor
with work.light_workers(), LocalExecutor(2, patience=0.0) as executor:
    work.wait_for_processes(executor)
    print(*executor.processes, flush=True)
    executor.run(work.tasks(work.whereabouts, range(10_000)), progress=NoProgress())
"""


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_no_process_outlives_the_program(number: signal.Signals) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", DRIVER], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as driver:
        assert driver.stdout is not None
        started = [int(pid) for pid in driver.stdout.readline().split()]
        assert len(started) == 2
        driver.send_signal(number)
        try:
            driver.wait(60)
        finally:
            driver.kill()
    deadline = time.monotonic() + 60
    while any(map(alive, started)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(map(alive, started))


def test_each_gpu_has_a_process_that_sees_no_other(monkeypatch: Any) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,GPU-abc,7")
    started: queue.SimpleQueue[str] = queue.SimpleQueue()

    class Pretended:
        pid = 0

        def __init__(self, environment: Any) -> None:
            self.gpu = environment["CUDA_VISIBLE_DEVICES"]
            started.put(self.gpu)

        def wait_until_ready(self) -> None: ...
        def close(self) -> None: ...

        def call(self, common: Any, common_bytes: bytes, task: bytes) -> Any:
            time.sleep(0.05)
            return local.Outcome(value=self.gpu)

    monkeypatch.setattr(local, "WorkerProcess", Pretended)
    for workers, expected in ((None, {"5", "GPU-abc", "7"}), (2, {"5", "GPU-abc"})):
        many = work.tasks(work.square, range(12))
        with LocalExecutor(workers) as executor:
            found = executor.run(local.Tasks(**{**vars(many), "accelerated": True}), progress=NoProgress())
        assert set(found) == expected


@pytest.mark.parametrize("workers", [0, -1, 1.5, True, "rays", "ray://", "ray://host", "tcp://host:1", "", [2]])
def test_workers_that_are_none_are_refused(workers: Any) -> None:
    with pytest.raises(InputError, match="--workers"):
        executor_of(workers)
