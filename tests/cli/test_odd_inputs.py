"""Inputs that are no files, or not what they seem: one line and exit code 2, and never a program that waits."""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path

import pytest
import torch

import vflpriv
from tests.program import vflpriv as program
from tests.recording.transcript_files import unprotected
from vflpriv.cli.main import _failed
from vflpriv.core.ledger import Ledger
from vflpriv.core.units import Unit
from vflpriv.core.views import Adversary
from vflpriv.errors import InputError
from vflpriv.recording.ledger_file import LedgerConfig
from vflpriv.recording.system import read_recording
from vflpriv.report.evidence import ExcessRow
from vflpriv.report.rows import read_row
from vflpriv.run.recorded import audit_recording

LEDGER = '[[release]]\nkind = "embeddings"\nnoise = "none"\n'


def recorded(folder: Path, **sizes: int) -> Path:
    labels, canaries = vflpriv.plant(torch.arange(24) % 2, classes=2, canaries=8, seed=1)
    with vflpriv.record(folder, records=24, **({"devices": 2, "classes": 2} | sizes)) as wire:
        wire.labels(labels, canaries=canaries)
        for t in range(3):
            wire.up(t, 0, "embeddings", {"embedding": torch.randn(4, 3)}, range(4 * t, 4 * t + 4))
    return folder


def pipe(path: Path) -> Path:
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    return path


def link_to_nothing(path: Path) -> Path:
    path.unlink(missing_ok=True)
    path.symlink_to(path.with_name("nothing"))
    return path


def device_file(path: Path) -> Path:
    path.unlink(missing_ok=True)
    path.symlink_to("/dev/zero")
    return path


def deeply_nested(path: Path) -> Path:
    path.write_text("[" * 100_000)
    return path


def link_to_itself(path: Path) -> Path:
    path.unlink(missing_ok=True)
    path.symlink_to(path)
    return path


def too_long(path: Path) -> Path:
    return path.with_name("x" * 5000)


ODD = {"a pipe": pipe, "a link to nothing": link_to_nothing, "a device": device_file}


NO_FILES = ODD | {"nested deeply": deeply_nested, "a link to itself": link_to_itself, "too long": too_long}


def is_one_line(done) -> bool:
    return done.returncode == 2 and done.stderr.count("\n") == 1 and done.stderr.startswith("vflpriv: ")


@pytest.mark.parametrize("odd", NO_FILES)
def test_files_that_are_none_are_one_line(tmp_path, odd):
    """The program would wait for a pipe for ever, and read a device until the memory is full."""
    path = NO_FILES[odd](tmp_path / "audit.toml")
    for command in (["audit", path], ["validate", path], ["account", path], ["audit", "--baseline", path]):
        assert is_one_line(program(*command)), command
    report = NO_FILES[odd](tmp_path / "report.json")
    for command in (
        ["report", report],
        ["compare", report, report],
        ["verify", report],
        ["replay", report],
        ["merge", report, report, "--out", tmp_path / "merged"],
    ):
        assert is_one_line(program(*command)), command


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("name", ["transcript.json", "round-00000000.safetensors", "answers.safetensors"])
@pytest.mark.parametrize("version", [2, 3])
def test_parts_of_a_transcript_that_are_no_files_are_one_line(tmp_path, odd, name, version):
    folder = recorded(tmp_path / "run")
    if version == 2:
        unprotected(folder)
    ODD[odd](folder / name)
    (tmp_path / "ledger.toml").write_text(LEDGER)
    told = ["--transcript", folder, "--ledger", tmp_path / "ledger.toml"]
    assert is_one_line(program("audit", *told, "--out", tmp_path / "out", "--quiet"))


@pytest.mark.parametrize("odd", ODD)
def test_a_party_that_is_no_file_is_not_left_out(tmp_path, odd):
    (tmp_path / "labels.csv").write_text("id,label\n" + "".join(f"{n},{n % 2}\n" for n in range(20)))
    for party in ("a", "b"):
        (tmp_path / f"{party}.csv").write_text("id,x\n" + "".join(f"{n},{n * 0.5}\n" for n in range(20)))
    (tmp_path / "audit.toml").write_text(
        f'[engine]\nname = "split"\nrounds = 2\nbatch_size = 4\n[data]\nname = "csv"\nfolder = "{tmp_path}"\n'
    )
    assert program("account", tmp_path / "audit.toml").returncode == 0
    ODD[odd](tmp_path / "b.csv")
    done = program("account", tmp_path / "audit.toml")
    assert is_one_line(done)
    assert "b.csv" in done.stderr


def test_a_folder_that_is_gone_is_one_line(tmp_path, monkeypatch, capsys):
    """Some library asks for the folder while it is imported, whichever command runs."""
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(SystemExit) as stopped:
        _failed(FileNotFoundError(errno.ENOENT, "No such file or directory"))
    os.chdir(tmp_path)
    shown = capsys.readouterr().err
    assert (stopped.value.code, shown.count("\n"), "is gone" in shown) == (2, 1, True)


def test_a_number_of_too_many_digits_is_no_number(tmp_path):
    assert is_one_line(program("account", "--set", f"seed={'9' * 5000}"))


def test_a_key_that_is_there_twice_is_one_line(tmp_path):
    folder = unprotected(recorded(tmp_path / "run"))
    head = (folder / "transcript.json").read_text()
    (folder / "transcript.json").write_text(head.replace('"devices":', '"devices": 1, "devices":', 1))
    with pytest.raises(InputError, match="'devices' is there twice"):
        vflpriv.read_transcript(folder)
    (tmp_path / "row.json").write_text('{"delta": 1, "accounted": 2, "claimed": 3, "claimed": 4}')
    with pytest.raises(InputError, match="'claimed' is there twice"):
        read_row(ExcessRow, tmp_path / "row.json", "row.json")


def test_kinds_of_messages_have_one_pattern_in_calls_files_and_ledgers(tmp_path):
    with vflpriv.record(tmp_path / "run", devices=1, classes=2, records=4) as wire:
        with pytest.raises(InputError, match="hyphens and underscores"):
            wire.up(0, 0, "e..x..", {"x": [1.0]})
        wire.up(0, 0, "a_kind-2", {"x": [1.0]})
    folder = unprotected(tmp_path / "run")
    text = (folder / "transcript.json").read_text().replace("a_kind-2", "e..x..")
    (folder / "transcript.json").write_text(text)
    with pytest.raises(InputError, match="a name of at most 64 letters"):
        vflpriv.read_transcript(folder)


@pytest.mark.parametrize("name", ["COLUMNS", "LINES"])
@pytest.mark.parametrize("size", ["0", "-3", "1", "²", "wide", ""])
def test_a_terminal_without_a_size_is_none(size, name, monkeypatch):
    monkeypatch.setenv(name, size)
    done = program("audits")
    assert done.returncode == 0
    assert "two-world" in done.stdout


def test_a_head_that_promises_more_classes_than_records_does_not_stall(tmp_path):
    """It took minutes and 1.6 GB: each attack weighed 100000 classes for every record."""
    ledger = LedgerConfig.model_validate({"release": [{"kind": "embeddings", "noise": "none"}]})
    started = time.process_time()
    audited = audit_recording(recorded(tmp_path / "run", classes=100_000), ledger)
    assert time.process_time() - started < 20
    refusals = {attempt.refusal for attempt in audited.attempts if attempt.refusal is not None}
    assert any("100000 classes are more than the 24 records" in refusal for refusal in refusals)


def test_devices_that_see_the_same_rounds_are_accounted_for_once(tmp_path, monkeypatch):
    """The budget of any device took an hour for 10000 devices of which two took part."""
    ledger = LedgerConfig.model_validate(
        {"release": [{"kind": "embeddings", "noise": "gaussian", "scale": 1.0, "sensitivity": {"label": 1.0}}]}
    )
    asked: list[Adversary] = []
    counted = Ledger._exposure
    monkeypatch.setattr(Ledger, "_exposure", lambda self, a, *rest: asked.append(a) or counted(self, a, *rest))
    system = read_recording(recorded(tmp_path / "run", devices=10_000), ledger)
    system.ledger.exposure(Adversary.parse("device"), Unit.LABEL)
    assert [str(a) for a in asked] == ["device(0)", "device(1)"]


def test_the_worst_device_is_the_same_among_all_and_among_those_that_differ(tmp_path, monkeypatch):
    """Leaving out devices that take part like others changes no budget."""
    generator = torch.Generator().manual_seed(1)
    with vflpriv.record(tmp_path / "run", devices=6, classes=2, records=24) as wire:
        for t in range(12):
            for m in (m for m in range(6) if (t * (1 + m % 3)) % 4 < 2):  # devices 3 to 5 are like 0 to 2
                ids = torch.randperm(24, generator=generator)[:6]
                wire.down(t, m, "note", {"x": torch.randn(6, 3, generator=generator)}, ids)
    ledger = LedgerConfig.model_validate(
        {"release": [{"kind": "note", "noise": "gaussian", "scale": 1.0, "sensitivity": {"label": 1.0}}]}
    )
    system, device = read_recording(tmp_path / "run", ledger), Adversary.parse("device")
    few = system.ledger.exposure(device, Unit.LABEL)
    monkeypatch.setattr(Ledger, "_unlike", lambda self, a: list(a.each(self.schedule.devices)))
    every = system.ledger.exposure(device, Unit.LABEL)
    assert few.counts.max() > 1
    assert (few.adversary, few.mu, few.counts.tolist()) == (every.adversary, every.mu, every.counts.tolist())
