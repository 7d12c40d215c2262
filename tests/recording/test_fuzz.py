"""Whatever the ledger and the transcript: a valid report, or one line that says what is wrong."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.cli.fuzzing import call
from tests.cli.test_fuzz import REPORT, is_one_line
from tests.recording.fuzzing import LEDGER, damage, ledgers, record_small
from vflpriv.report.audit import read_report

RELAXED = [HealthCheck.too_slow, HealthCheck.large_base_example, HealthCheck.data_too_large]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return record_small(tmp_path_factory.mktemp("recorded") / "transcript")


def ends_well(transcript: Path, ledger: bytes) -> int:
    with tempfile.TemporaryDirectory() as folder:
        path, out = Path(folder) / "ledger.toml", Path(folder) / "out"
        path.write_bytes(ledger)
        told = ("audit", "--transcript", str(transcript), "--ledger", str(path), "--out", str(out))
        code, _, error = call(*told, "--format", "json", "--format", "md", "--quiet")
        assert code in (0, 1, 2, 3), error
        if code == 2:
            assert is_one_line(error)
        else:
            assert read_report(out / "report.json").exit_code == code
            assert REPORT.is_valid(json.loads((out / "report.json").read_text("utf-8")))
            assert "\x1b" not in (out / "report.md").read_text("utf-8")
        return code


def damaged(recorded: Path, data: st.DataObject) -> int:
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "transcript"
        shutil.copytree(recorded, copy)
        data.draw(damage(copy))
        return ends_well(copy, LEDGER.encode())


def test_without_damage_there_is_a_report(recorded: Path) -> None:
    assert ends_well(recorded, LEDGER.encode()) in (0, 1, 3)


def test_twelve_hostile_ledgers_end_well(recorded: Path) -> None:
    """Some are audited and some are refused: the fuzzing reaches what it is for."""
    refused: Counter[bool] = Counter()

    @settings(max_examples=12, suppress_health_check=RELAXED)
    @given(ledger=ledgers())
    def look(ledger: bytes) -> None:
        refused[ends_well(recorded, ledger) == 2] += 1

    look()
    assert min(refused[True], refused[False]) >= 1


def test_twelve_damaged_transcripts_end_well(recorded: Path) -> None:
    refused: Counter[bool] = Counter()

    @settings(max_examples=12, suppress_health_check=RELAXED)
    @given(data=st.data())
    def look(data: st.DataObject) -> None:
        refused[damaged(recorded, data) == 2] += 1

    look()
    assert min(refused[True], refused[False]) >= 1


@pytest.mark.slow
@settings(max_examples=500, suppress_health_check=RELAXED)
@given(ledger=ledgers())
def test_five_hundred_hostile_ledgers_end_well(recorded: Path, ledger: bytes) -> None:
    ends_well(recorded, ledger)


@pytest.mark.slow
@settings(max_examples=500, suppress_health_check=RELAXED)
@given(data=st.data())
def test_five_hundred_damaged_transcripts_end_well(recorded: Path, data: st.DataObject) -> None:
    damaged(recorded, data)
