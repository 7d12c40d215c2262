"""Whatever the ledger and the transcript: a valid report, or one line that says what is wrong."""

from __future__ import annotations

import shutil
import tempfile
import tomllib
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import vflpriv
from tests.surface.fuzzing import call, mutated, to_toml
from vflpriv.report import read_report

LEDGER = """
[[release]]
kind = "logits"
noise = "gaussian"
scale = 2.0
sensitivity = { label = 1.0, record = 1.0 }

[[claim]]
key = "labels"
unit = "label"
view = "device"
epsilon = 1.0
delta = 1e-5
"""


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("recorded") / "transcript"
    labels = torch.arange(12) % 3
    with vflpriv.record(str(folder), devices=2, classes=3, records=12) as wire:
        wire.labels(labels)
        for round_ in range(2):
            ids = torch.arange(6) + 6 * round_
            for m in range(2):
                wire.up(round_, m, "logits", {"embedding": torch.randn(6, 3)}, ids)
    return folder


def ends_well(transcript: Path, ledger: str) -> int:
    with tempfile.TemporaryDirectory() as folder:
        path, out = Path(folder) / "ledger.toml", Path(folder) / "out"
        path.write_bytes(ledger.encode("utf-8", "surrogatepass"))
        told = ("audit", "--transcript", str(transcript), "--ledger", str(path), "--out", str(out), "--format", "json")
        code, _, error = call(*told)
        assert code in (0, 1, 2, 3), error
        if code == 2:
            assert (error.count("\n"), error.startswith("vflpriv: ")) == (1, True)
        else:
            assert read_report(out / "report.json").exit_code == code
        return code


def test_without_damage_there_is_a_report(recorded: Path) -> None:
    assert ends_well(recorded, LEDGER) in (0, 1, 3)


@settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_hostile_ledgers_end_well(recorded: Path, data: st.DataObject) -> None:
    ends_well(recorded, to_toml(data.draw(mutated(tomllib.loads(LEDGER)))))


@settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_damaged_transcripts_end_well(recorded: Path, data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "transcript"
        shutil.copytree(recorded, copy)
        path = data.draw(st.sampled_from(sorted(p for p in copy.rglob("*") if p.is_file())))
        content = bytearray(path.read_bytes())
        place = data.draw(st.integers(0, len(content) - 1))
        if data.draw(st.booleans()):
            content[place] = data.draw(st.integers(0, 255))
        else:
            del content[place:]
        path.write_bytes(content)
        ends_well(copy, LEDGER)
