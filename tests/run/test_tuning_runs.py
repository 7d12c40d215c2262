"""Tuning runs in a ledger file and in a configuration: budgets count them, and reports say whether they do."""

from __future__ import annotations

import math

import pytest
import torch

import vflpriv
from vflpriv.config.errors import parse_settings
from vflpriv.errors import InputError
from vflpriv.recording.ledger_file import LedgerConfig
from vflpriv.run.audit import audit_transcript

ANSWER = {"kind": "answer", "noise": "gaussian", "scale": 4.0, "sensitivity": {"label": 1.0}, "leak": "none"}
CLAIM = {"key": "labels", "unit": "label", "view": "device", "epsilon": 2.0, "delta": 1e-5}
ENGINE = {
    "data": {"name": "digits", "devices": 2, "train": 40},
    "engine": {"name": "dpzv", "rounds": 8, "batch_size": 8, "noise": "given", "noise_std": 3.0},
}


@pytest.fixture(scope="module")
def transcript(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tuned") / "run"
    with vflpriv.record(folder, devices=1, classes=2, records=4) as wire:
        for t in range(3):
            wire.down(t, 0, "answer", {"x": 4.0 * torch.randn(4)}, torch.arange(4))
    return folder


def audited(transcript, **fields):
    config = parse_settings(LedgerConfig, {"release": [ANSWER], "claim": [CLAIM], "attacks": [], **fields}, "ledger")
    return audit_transcript(transcript, config, command="")


def test_a_recorded_system_spends_what_all_of_its_trainings_spend(transcript):
    alone, tuned = audited(transcript), audited(transcript, tuning_runs=3)
    mu = [report.systems[0].claims[0].accounted.mu for report in (alone, tuned)]
    assert mu == pytest.approx([math.sqrt(3) / 4, math.sqrt(12) / 4])
    assert [report.systems[0].claims[0].verdict.value for report in (alone, tuned)] == ["unmeasured", "unsupported"]


def test_the_report_says_whether_tuning_was_counted(transcript):
    alone, tuned = audited(transcript), audited(transcript, tuning_runs=20)
    uncounted = "hyper-parameter tuning was not counted"
    assert [any(uncounted in line for line in report.not_tested) for report in (alone, tuned)] == [True, False]
    assumptions = [report.systems[0].claims[0].accounted.assumptions for report in (alone, tuned)]
    assert [any("20 tuning runs" in note for note in notes) for notes in assumptions] == [False, True]


def test_an_engine_spends_what_all_of_its_trainings_spend():
    alone, tuned = (
        {(b.adversary, b.unit, b.reading): b.mu for b in vflpriv.account({**ENGINE, **fields}).systems[0].budgets}
        for fields in ({}, {"tuning_runs": 3})
    )
    known = [key for key, mu in alone.items() if mu is not None and mu > 0]
    assert known
    assert [tuned[key] for key in known] == pytest.approx([2 * alone[key] for key in known])


@pytest.mark.parametrize("runs", [-1, 1.5, "many"])
def test_a_wrong_number_is_named(transcript, runs):
    with pytest.raises(InputError, match=r"ledger\.tuning_runs = "):
        audited(transcript, tuning_runs=runs)


def test_values_that_all_trainings_share_are_released_once(transcript):
    with pytest.raises(InputError, match="once = true beside redrawn = false"):
        audited(transcript, release=[ANSWER | {"redrawn": False}])
