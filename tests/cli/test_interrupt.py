"""An audit that is stopped in the middle leaves a folder from which the next run goes on; files are whole or absent."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import CompletedProcess
from unittest import mock

import pytest
from safetensors import safe_open

from tests.cli.test_cli import run
from tests.program import vflpriv
from vflpriv.audits.two_world.whole_view import feature_key
from vflpriv.common.files import atomically, write_atomically
from vflpriv.errors import OutputError

# Shards of several kinds: trained with a canary in the data and watched as a whole, trained at the clip, and replayed.
CONFIG = """
[data]
name = "digits"
train = 60
[engine]
name = "dpzv"
rounds = 6
batch_size = 8
embedding = 3
server_update = "joint"
noise = "calibrated"
[audit]
trials = 12
min_trials = 6
full_trials = 4
canaries = ["natural", "worst-case"]
attacks = []
sensitivity = false
noise = false
state = false
"""

# `python -m vflpriv`, listening to the signal even if this process runs in the background, where children ignore it.
LISTENING = """
import runpy, signal
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
runpy.run_module("vflpriv", run_name="__main__")
"""

# The signal comes as soon as the first shard is in its place.
STOPPED = f"""
import os, pathlib, sys
number, moved, move = int(sys.argv.pop(1)), [], pathlib.Path.replace
def replace(self, target):
    moved.append(move(self, target))
    if len(moved) == 1:
        os.kill(os.getpid(), number)
    return moved[-1]
pathlib.Path.replace = replace
{LISTENING}
"""


STOPPED_LINE = "vflpriv: stopped; finished trials are kept, run the same command to continue\n"
Audit = Callable[[Path], CompletedProcess[str]]


@pytest.fixture(scope="module", autouse=True)
def few_trees() -> Iterator[None]:
    """Forests of whole views are small, in the run that is never stopped as in the others."""
    with mock.patch("vflpriv.audits.learned.learners._TREES", 4):
        yield


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("config") / "audit.toml"
    path.write_text(CONFIG, encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def audit(config: Path) -> Audit:
    return lambda out: vflpriv("audit", config, "-q", "--format", "json", "--out", out)


@pytest.fixture(scope="module")
def whole(audit: Audit, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run that was never stopped."""
    out = tmp_path_factory.mktemp("whole")
    assert audit(out).returncode == 0
    return out


def shards(out: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in out.glob("trials/*.safetensors")}


def watched(out: Path) -> list[Path]:
    """The shards that hold features of whole views."""
    found = []
    for path in out.glob("trials/*.safetensors"):
        with safe_open(path, framework="pt") as shard:
            found += [path] * any(name.endswith(feature_key("")) for name in shard.keys())  # noqa: SIM118
    return found


def child(program: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", program, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


def goes_on(audit: Audit, out: Path, whole: Path) -> None:
    """The next run keeps the shards there are, and its report is that of a run that was never stopped: its shards."""
    kept = shards(out)
    assert audit(out).returncode == 0
    after = shards(out)
    assert {name: after[name] for name in kept} == kept
    assert set(after) == set(shards(whole))
    assert (whole / "report.json").read_bytes() == (out / "report.json").read_bytes()


@contextmanager
def moves(then: Callable[[int], object], before: Callable[[int], object] = lambda _: None) -> Iterator[None]:
    """Call these with the number of a file before it is moved into its place, and after that."""
    move, moved = Path.replace, []

    def replace(self: Path, target: Path) -> Path:
        before(len(moved) + 1)
        moved.append(move(self, target))
        then(len(moved))
        return moved[-1]

    with mock.patch.object(Path, "replace", replace):
        yield


@contextmanager
def heard(*numbers: int) -> Iterator[None]:
    """Signals mean what they mean to a program in the foreground; those of this one may be ignored."""
    before = {number: signal.getsignal(number) for number in numbers}
    try:
        for number in numbers:
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def test_shards_are_of_several_kinds(whole):
    assert len(shards(whole)) > len(watched(whole)) >= 1


@pytest.mark.parametrize(
    ("number", "code", "finished"),
    [(signal.SIGINT, 130, 1), (signal.SIGTERM, 143, 2), (signal.SIGHUP, 129, 3)],
)
def test_an_interrupted_audit_goes_on_where_it_stopped(tmp_path, audit, whole, number, code, finished):
    """The signal comes as soon as so many shards are in their places."""
    assert len(shards(whole)) > finished
    out = tmp_path / "report"
    with heard(number), moves(lambda moved: moved == finished and signal.raise_signal(number)):
        done = audit(out)
    assert (done.returncode, done.stderr) == (code, STOPPED_LINE)
    assert len(shards(out)) == finished
    assert {path.name for path in out.iterdir()} == {"trials"}
    assert {path.suffix for path in (out / "trials").iterdir()} == {".safetensors"}
    goes_on(audit, out, whole)


def test_shards_of_whole_views_are_among_those_that_are_kept(tmp_path, audit, whole):
    """The signal comes right after the first of them."""
    out = tmp_path / "report"
    with heard(signal.SIGINT), moves(lambda _: watched(out) and signal.raise_signal(signal.SIGINT)):
        assert audit(out).returncode == 130
    assert len(watched(out)) == 1
    assert len(shards(out)) < len(shards(whole))
    goes_on(audit, out, whole)


@pytest.mark.slow
def test_an_interrupted_program_ends_in_the_same_way(tmp_path, audit, whole, config):
    """The same in a process of its own."""
    out = tmp_path / "report"
    with child(STOPPED, str(int(signal.SIGINT)), "audit", str(config), "--out", str(out), "-q") as program:
        assert program.communicate()[1] == STOPPED_LINE
        assert program.returncode == 130
    goes_on(audit, out, whole)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_signals_that_stop_are_one_line(monkeypatch, capsys, number, code):
    """The command is stopped as soon as it begins, in this process."""
    monkeypatch.setattr("vflpriv.cli.main.run", lambda _: signal.raise_signal(number))
    with heard(number):
        assert run(monkeypatch, capsys) == (code, "", STOPPED_LINE)


def test_a_hang_up_that_was_ignored_stays_ignored(monkeypatch, capsys):
    """`nohup` starts a program so that it survives its terminal."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        monkeypatch.setattr("vflpriv.cli.main.run", lambda _: signal.raise_signal(signal.SIGHUP) or 0)
        assert run(monkeypatch, capsys) == (0, "", "")
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_kill_in_the_middle_of_a_write_loses_that_write_only(tmp_path, audit, whole):
    """What a kill leaves is what lies in the folder then: it is copied between a shard's write and its move."""
    out, left = tmp_path / "report", tmp_path / "left"
    with moves(lambda _: None, before=lambda number: number == 2 and shutil.copytree(out, left)):
        audit(out)
    assert len(shards(left)) == 1
    assert [path for path in (left / "trials").iterdir() if path.name.startswith(".")], "half of the second"
    goes_on(audit, left, whole)


@contextmanager
def full_after(size: int) -> Iterator[None]:
    """Files may be as long as this many bytes: the kernel refuses more, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)


@pytest.mark.parametrize("finished", [False, True])
def test_a_full_disk_is_one_line_and_keeps_what_was_finished(tmp_path, audit, whole, finished):
    """With no room for a shard, and with room for shards but not for the report."""
    out, largest = tmp_path / "report", max(path.stat().st_size for path in (whole / "trials").iterdir())
    assert 300 < largest < (whole / "report.json").stat().st_size
    with full_after(largest if finished else 300):
        done = audit(out)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert done.stderr.startswith("vflpriv: ")
    assert "could not be written: " in done.stderr
    assert "File too large" in done.stderr
    assert not any(path.name.startswith(".") for path in out.rglob("*"))
    assert not (out / "report.json").exists()
    assert set(shards(out)) == (set(shards(whole)) if finished else set())
    goes_on(audit, out, whole)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no device that is always full")
@pytest.mark.parametrize("command", ["--help", "data", "schema"])
def test_a_full_standard_output_is_one_line(command):
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "vflpriv", command], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    expected = "vflpriv: standard output could not be written: No space left on device\n"
    assert (done.returncode, done.stderr) == (2, expected)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no device that is always full")
def test_a_full_standard_error_keeps_the_exit_code():
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([sys.executable, "-m", "vflpriv", "audit", "no.toml"], stderr=full, check=False)
    assert done.returncode == 2


@pytest.mark.parametrize("command", ["data", "schema"])
def test_a_reader_that_goes_away_is_no_bug(command):
    with child(LISTENING, command) as program:
        assert program.stdout is not None
        assert program.stderr is not None
        program.stdout.close()
        assert program.stderr.read() == ""
        assert program.wait() == 141


def test_a_damaged_shard_is_computed_again(tmp_path, audit, whole):
    out = tmp_path / "report"
    shutil.copytree(whole, out)
    shard = min((out / "trials").iterdir())
    shard.write_bytes(shard.read_bytes()[:50])
    (out / "report.json").unlink()
    error = audit(out).stderr
    assert error.startswith(f"vflpriv: warning: {shard} ")
    assert error.count("\n") == 1
    assert (out / "report.json").read_bytes() == (whole / "report.json").read_bytes()


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "report.json"
    write_atomically(path, "old")

    def fail() -> None:
        with atomically(path) as temporary:
            temporary.write_text("half", encoding="utf-8")
            raise OSError("disk full")

    with pytest.raises(OutputError, match=r"report\.json could not be written: disk full"):
        fail()
    assert path.read_text("utf-8") == "old"
    write_atomically(path, b"new")
    assert path.read_text("utf-8") == "new"
    assert list(tmp_path.iterdir()) == [path]
