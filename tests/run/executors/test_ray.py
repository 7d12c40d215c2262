"""The Ray executor on real clusters of this machine: the same report as here, and nothing lost when something dies."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.run.executors import work
from tests.tree import ROOT
from vflpriv.errors import InputError
from vflpriv.run.executors.outcomes import TRIES, WorkerError
from vflpriv.run.executors.ray import RayExecutor

ray = pytest.importorskip("ray", reason="needs Ray: pip install 'vflpriv[ray]'")
# Ray leaves sockets and files to the end of the process.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")

CONFIG = """
seed = 1
[data]
name = "digits"
train = 60
[[system]]
key = "sound"
[system.engine]
name = "dpzv"
rounds = 12
batch_size = 8
embedding = 3
server_update = "joint"
noise = "calibrated"
[system.audit]
trials = 200
min_trials = 4
canaries = ["natural", "worst-case"]
attacks = []
sensitivity = false
noise = false
state = false
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A cluster of two nodes with one core each, beside the head, which has none."""
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    for _ in range(2):
        made.add_node(num_cpus=1)
    made.wait_for_nodes()
    yield made
    made.shutdown()


@pytest.fixture
def executor(cluster: Any, monkeypatch: Any) -> Iterator[RayExecutor]:
    monkeypatch.setenv("RAY_ADDRESS", cluster.address)
    with RayExecutor() as connected:
        yield connected


def begun(folder: Path) -> Counter[str]:
    return Counter(path.name.partition("-")[0] for path in folder.iterdir())


def test_ray_that_is_not_installed_is_one_line(monkeypatch: Any) -> None:
    monkeypatch.setattr("vflpriv.run.executors.ray.find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"pip install 'vflpriv\[ray\]'"):
        RayExecutor()


def test_an_address_that_does_not_answer_is_one_line() -> None:
    with pytest.raises(InputError, match=r"--workers = 'ray://127.0.0.1:9': expected a Ray cluster that answers"):
        RayExecutor("ray://127.0.0.1:9").__enter__()


@pytest.mark.slow
def test_results_progress_errors_and_warnings(executor: RayExecutor) -> None:
    told, seen = work.Told(), []
    found = executor.run(
        work.tasks(work.slow_square, range(8)), progress=told, finished=lambda place, value: seen.append((place, value))
    )
    assert found == [n * n for n in range(8)]
    assert sorted(seen) == [(n, n * n) for n in range(8)]
    assert sum(told.work) == sum(range(8))
    assert executor.run(work.tasks(work.square, []), progress=told) == []
    with pytest.raises(InputError, match="field = 3: expected another number"):
        executor.run(work.tasks(work.fail, range(5)), progress=told)
    with pytest.warns(UserWarning, match="item 1 is odd"):
        executor.run(work.tasks(work.warn, [1]), progress=told)


@pytest.mark.slow
def test_the_task_of_a_dead_worker_is_run_again(executor: RayExecutor, tmp_path: Path) -> None:
    told = work.Told()
    assert executor.run(work.tasks(work.die_once, range(5), str(tmp_path)), progress=told) == [0, 1, 4, 9, 16]
    assert begun(tmp_path) == Counter("012234")
    assert sum(told.work) == sum(range(5))


@pytest.mark.slow
def test_a_task_that_kills_every_worker_is_named(executor: RayExecutor) -> None:
    with pytest.raises(WorkerError, match=f"task 2: Ray gave up after {TRIES} tries"):
        executor.run(work.tasks(work.die, range(3)), progress=work.Told())
    assert executor.run(work.tasks(work.square, range(3)), progress=work.Told()) == [0, 1, 4]


@pytest.mark.slow
def test_tasks_of_a_lost_node_are_run_again(cluster: Any, executor: RayExecutor) -> None:
    node, lost = cluster.add_node(num_cpus=2), []

    def remove(place: int, value: Any) -> None:
        if not lost:
            lost.append(place)
            cluster.remove_node(node, allow_graceful=False)

    found = executor.run(work.tasks(work.slow_square, range(30)), progress=work.Told(), finished=remove)
    assert found == [n * n for n in range(30)]


def command(out: Path, *more: str) -> list[str]:
    config = out.parent / "audit.toml"
    config.parent.mkdir(exist_ok=True)
    config.write_text(CONFIG, encoding="utf-8")
    options = ["-q", "--format", "json", "--out", str(out), *more]
    return [sys.executable, "-m", "vflpriv", "audit", str(config), *options]


def audited(out: Path, *more: str) -> tuple[bytes, dict[str, int]]:
    """The report without the path of its folder, and the time at which each shard was written."""
    done = subprocess.run(command(out, *more), cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1, 3), done.stderr
    assert not done.stderr
    json.loads((out / "report.json").read_text("utf-8"))
    return (out / "report.json").read_bytes(), shards(out)


def shards(out: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in (out / "trials").glob("*.safetensors")}


@pytest.mark.slow
def test_the_report_is_that_of_this_machine_and_survives_a_killed_driver(
    cluster: Any, monkeypatch: Any, tmp_path: Path
) -> None:
    alone, expected = audited(tmp_path / "one" / "out", "--workers", "1")
    monkeypatch.setenv("RAY_ADDRESS", cluster.address)
    out = tmp_path / "ray" / "out"
    with subprocess.Popen(command(out, "--workers", "ray"), cwd=ROOT, stderr=subprocess.DEVNULL) as driver:
        deadline = time.monotonic() + 120
        while len(shards(out)) < 2 and driver.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
        os.kill(driver.pid, signal.SIGKILL)
    kept = shards(out)
    assert 0 < len(kept) < len(expected), "it was killed in the middle"
    resumed, stored = audited(out, "--workers", "ray")
    assert resumed.replace(b"/ray/", b"/one/") == alone
    assert stored.keys() == expected.keys(), "nothing is lost, and nothing was trained under another key"
    assert {name: stored[name] for name in kept} == kept, "what was finished was not trained again"
