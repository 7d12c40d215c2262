"""An audit that is stopped in the middle leaves a folder from which the next run goes on; files are whole or absent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.surface.test_cli import run
from vflpriv.files import atomically, write_atomically

# Many shards of 128 trials a world: some are finished long before the last.
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
trials = 60000
canaries = ["worst-case"]
attacks = []
sensitivity = false
noise = false
state = false
"""

# `python -m vflpriv`, listening to the signal even if this process runs in the background, where children ignore it.
LISTENING = """
import runpy, signal
signal.signal(signal.SIGINT, signal.default_int_handler)
runpy.run_module("vflpriv", run_name="__main__")
"""


@pytest.fixture
def config(tmp_path: Path) -> str:
    path = tmp_path / "audit.toml"
    path.write_text(CONFIG, encoding="utf-8")
    return str(path)


def shards(out: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in out.glob("trials/*.safetensors")}


def test_an_interrupted_audit_goes_on_where_it_stopped(monkeypatch, capsys, tmp_path, config):
    out = tmp_path / "report"
    arguments = ["audit", config, "--out", str(out), "-q", "--format", "json"]
    program = subprocess.Popen(
        [sys.executable, "-c", LISTENING, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    while not shards(out) and program.poll() is None:
        time.sleep(0.02)
    program.send_signal(signal.SIGINT)
    _, error = program.communicate()
    assert program.returncode == 130
    assert error == "vflpriv: stopped; finished trials are kept, run the same command to go on\n"
    kept = shards(out)
    assert kept
    assert {path.name for path in out.iterdir()} == {"trials"}
    assert {path.suffix for path in (out / "trials").iterdir()} == {".safetensors"}
    few = ("--trials", "300")
    assert run(monkeypatch, capsys, *arguments, *few)[0] == 0
    after = shards(out)
    assert {name: after[name] for name in kept} == kept
    whole = tmp_path / "whole"
    run(monkeypatch, capsys, "audit", config, "--out", str(whole), "-q", "--format", "json", *few)
    assert (whole / "report.json").read_bytes() == (out / "report.json").read_bytes()
    assert set(shards(whole)) & set(kept)


def test_a_damaged_shard_is_computed_again(monkeypatch, capsys, tmp_path, config):
    out = tmp_path / "report"
    arguments = ("audit", config, "--out", str(out), "-q", "--format", "json", "--trials", "40")
    run(monkeypatch, capsys, *arguments)
    first = (out / "report.json").read_bytes()
    (shard,) = (out / "trials").iterdir()
    shard.write_bytes(shard.read_bytes()[:50])
    (out / "report.json").unlink()
    run(monkeypatch, capsys, *arguments)
    assert (out / "report.json").read_bytes() == first


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "report.json"
    write_atomically(path, "old")

    def fail() -> None:
        with atomically(path) as temporary:
            temporary.write_text("half", encoding="utf-8")
            raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        fail()
    assert path.read_text("utf-8") == "old"
    write_atomically(path, b"new")
    assert path.read_text("utf-8") == "new"
    assert list(tmp_path.iterdir()) == [path]
