"""Rounds are those that the training counts, however many messages each has; a recording says what was signed."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import vflpriv
from tests.run.recorded_systems import audited, gaussian_totals
from vflpriv.common.registry import find
from vflpriv.recording.system import read_recording
from vflpriv.recording.transcripts import read_hash
from vflpriv.run.account import account_system

ROUNDS, DEVICES, RECORDS = 5, 3, 8


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("recorded")
    noise = torch.Generator().manual_seed(0)
    with vflpriv.record(path, devices=DEVICES, classes=2, records=RECORDS) as wire:
        for round_ in range(ROUNDS):
            for device in range(DEVICES):
                wire.down(round_, device, "totals", {"sum": torch.randn(1, generator=noise)}, torch.arange(RECORDS))
    return path


def test_budgets_count_every_message_and_show_rounds(folder: Path) -> None:
    system = read_recording(folder, gaussian_totals(1.0))
    assert system.schedule.rounds == ROUNDS * DEVICES
    row = account_system(system, find("accountant", "auto")(), None, system.claims)
    assert row.rounds == ROUNDS
    assert [system.rounds_after(turns) for turns in (1, 3, 4, 15)] == [1, 1, 2, 5]


def test_the_report_shows_rounds_hashes_and_the_scale_that_keeps_the_claim(folder: Path) -> None:
    report = audited(folder, gaussian_totals(1.0))
    (system,) = report.systems
    (claim,) = system.claims
    assert system.rounds == claim.spending[0].rounds[-1] == ROUNDS
    assert {p.name: p.sha256 for p in report.fingerprints}["transcript"] == read_hash(folder)
    change = claim.changes[0]
    assert change.sentence.startswith("Calibrate the noise for known batches: scale of totals 1 → ")
    after = audited(folder, gaussian_totals(float(change.settings["totals.scale"])))
    assert after.claims[0].accounted.epsilon_upper <= claim.epsilon
