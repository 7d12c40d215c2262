"""An audit that is stopped in the middle leaves a folder from which the next run goes on; files are whole or absent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.test_cli import run
from vflpriv.common.files import atomically, write_atomically
from vflpriv.errors import OutputError

# Shards of several kinds: trained with either canary, and replayed. So few trials are not watched as a whole.
CONFIG = """
[data]
name = "digits"
train = 60
[engine]
name = "dpzv"
rounds = 20
batch_size = 8
embedding = 3
server_update = "joint"
noise = "calibrated"
[audit]
trials = 40
full_trials = 16
canaries = ["natural", "worst-case"]
attacks = []
sensitivity = false
noise = false
state = false
"""

# Whatever is written is as short as this many bytes at most: the kernel refuses more, as on a full disk.
FULL = """
import resource, runpy, signal, sys
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv.pop(1)),) * 2)
runpy.run_module("vflpriv", run_name="__main__")
"""

# Killed between the writing of the second shard and its move into place.
KILLED = """
import os, pathlib, runpy, signal
moved, move = [], pathlib.Path.replace
def replace(self, target):
    moved.append(target)
    if len(moved) == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return move(self, target)
pathlib.Path.replace = replace
runpy.run_module("vflpriv", run_name="__main__")
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


@pytest.fixture
def config(tmp_path: Path) -> str:
    path = tmp_path / "audit.toml"
    path.write_text(CONFIG, encoding="utf-8")
    return str(path)


def shards(out: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in out.glob("trials/*.safetensors")}


def child(program: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", program, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


def run_python(program: str, *arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """A program in a process of its own, to its end."""
    command = [sys.executable, "-c", program, *arguments]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def goes_on(monkeypatch, capsys, tmp_path: Path, config: str) -> dict[str, int]:
    """The next run keeps the shards there are, and its report is that of a run that was never stopped: its shards."""
    out, kept = tmp_path / "report", shards(tmp_path / "report")
    arguments = ["audit", config, "-q", "--format", "json"]
    assert run(monkeypatch, capsys, *arguments, "--out", str(out))[0] == 0
    after = shards(out)
    assert {name: after[name] for name in kept} == kept
    whole = tmp_path / "whole"
    run(monkeypatch, capsys, *arguments, "--out", str(whole))
    assert (whole / "report.json").read_bytes() == (out / "report.json").read_bytes()
    assert set(kept) <= set(shards(whole))
    return shards(whole)


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (signal.SIGINT, 130),
        pytest.param(signal.SIGTERM, 143, marks=pytest.mark.slow),
        pytest.param(signal.SIGHUP, 129, marks=pytest.mark.slow),
    ],
)
def test_an_interrupted_audit_goes_on_where_it_stopped(monkeypatch, capsys, tmp_path, config, number, code):
    out = tmp_path / "report"
    words = ("audit", config, "--out", str(out), "-q", "--format", "json")
    done = run_python(STOPPED, str(int(number)), *words, folder=tmp_path)
    assert (done.returncode, done.stderr) == (
        code,
        "vflpriv: stopped; finished trials are kept, run the same command to continue\n",
    )
    assert shards(out)
    assert {path.name for path in out.iterdir()} == {"trials"}
    assert {path.suffix for path in (out / "trials").iterdir()} == {".safetensors"}
    goes_on(monkeypatch, capsys, tmp_path, config)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_signals_that_stop_are_one_line(monkeypatch, capsys, number, code):
    """The command is stopped as soon as it begins, in this process."""
    monkeypatch.setattr("vflpriv.cli.main.app", lambda **_: signal.raise_signal(number))
    assert run(monkeypatch, capsys) == (
        code,
        "",
        "vflpriv: stopped; finished trials are kept, run the same command to continue\n",
    )


def test_a_hang_up_that_was_ignored_stays_ignored(monkeypatch, capsys):
    """`nohup` starts a program so that it survives its terminal."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        monkeypatch.setattr("vflpriv.cli.main.app", lambda **_: signal.raise_signal(signal.SIGHUP) or 0)
        assert run(monkeypatch, capsys) == (0, "", "")
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_kill_in_the_middle_of_a_write_loses_that_write_only(monkeypatch, capsys, tmp_path, config):
    out = tmp_path / "report"
    done = run_python(KILLED, "audit", config, "--out", str(out), "-q", "--format", "json", folder=tmp_path)
    assert done.returncode == -signal.SIGKILL
    assert len(shards(out)) == 1
    assert [path for path in (out / "trials").iterdir() if path.name.startswith(".")], "half of the second"
    assert len(goes_on(monkeypatch, capsys, tmp_path, config)) > 1


@pytest.mark.parametrize(("size", "finished"), [pytest.param(300, False, marks=pytest.mark.slow), (6000, True)])
def test_a_full_disk_is_one_line_and_keeps_what_was_finished(monkeypatch, capsys, tmp_path, config, size, finished):
    """With no room for a shard, and with room for shards but not for the report."""
    out = tmp_path / "report"
    words = ("audit", config, "--out", str(out), "-q", "--format", "json")
    done = run_python(FULL, str(size), *words, folder=tmp_path)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert done.stderr.startswith("vflpriv: ")
    assert "could not be written: " in done.stderr
    assert "File too large" in done.stderr
    assert not any(path.name.startswith(".") for path in out.rglob("*"))
    assert not (out / "report.json").exists()
    kept = set(shards(out))
    assert kept == (set(goes_on(monkeypatch, capsys, tmp_path, config)) if finished else set())


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


def test_a_damaged_shard_is_computed_again(monkeypatch, capsys, tmp_path, config):
    out = tmp_path / "report"
    arguments = ("audit", config, "--out", str(out), "-q", "--format", "json")
    arguments = (*arguments, "--set", "audit.canaries=['worst-case']")
    run(monkeypatch, capsys, *arguments)
    first = (out / "report.json").read_bytes()
    shard = min((out / "trials").iterdir())
    shard.write_bytes(shard.read_bytes()[:50])
    (out / "report.json").unlink()
    error = run(monkeypatch, capsys, *arguments)[2]
    assert error.startswith(f"vflpriv: warning: {shard} ")
    assert error.count("\n") == 1
    assert (out / "report.json").read_bytes() == first


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
