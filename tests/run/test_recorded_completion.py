"""Model completion on a recording: a device's features and the embeddings that it sent stand for its model."""

from __future__ import annotations

import pytest
import torch

import vflpriv
from tests.run.recorded_systems import audited
from vflpriv.attacks.label.trained.completion import QUICK, LabelCompletionPassive
from vflpriv.config.errors import parse_settings
from vflpriv.recording.ledger_file import LedgerConfig

RECORDS, WIDTH = 240, 10
NAME = "label_completion_passive"


@pytest.fixture(autouse=True)
def _as_by_default(monkeypatch):
    monkeypatch.setattr(LabelCompletionPassive, "completion", QUICK)


def recorded(folder, *, learnt: float, features=(0, 1), **options):
    """Linear embeddings of features of noise, with the label in them by as much as the device's model has learnt."""
    generator = torch.Generator().manual_seed(4)
    rows = torch.randn(2, RECORDS, WIDTH, generator=generator)
    labels, weights = torch.arange(RECORDS) % 3, torch.randn(2, WIDTH, 5, generator=generator)
    spoken = torch.randn(3, 5, generator=generator)
    with vflpriv.record(folder, devices=2, classes=3, records=RECORDS, fresh=True) as wire:
        wire.labels(labels)
        for m in features:
            wire.features(m, rows[m], **options)
        for t in range(4):
            ids = torch.arange(RECORDS)[t % 2 :: 2]
            for m in range(2):
                sent = rows[m][ids] @ weights[m] + learnt * spoken[labels[ids]]
                wire.up(t, m, "embeddings", {"embedding": sent}, ids)
    return folder


def attempts(folder):
    config = parse_settings(LedgerConfig, {"release": [{"kind": "embeddings", "noise": "none"}]}, "ledger")
    (system,) = audited(folder, config).systems
    return {row.adversary: row for row in system.attacks if row.attack == NAME}


def test_embeddings_that_hold_labels_tell_more_than_features(tmp_path):
    """Margin: all labels are read; without the embeddings 0.32."""
    found = attempts(recorded(tmp_path / "run", learnt=8.0))
    for adversary in ("device(0)", "devices(all)"):
        assert found[adversary].success > found[adversary].blind + 0.3
        assert found[adversary].low > 0.6
    assert found["eavesdropper"].not_applicable == "needs a model of its own; this adversary trains none"


def test_embeddings_of_an_untrained_model_tell_no_more_than_features(tmp_path):
    """Margin: the attack is at chance, of which the lower end of its interval lies a sixth below."""
    for row in attempts(recorded(tmp_path / "run", learnt=0.0)).values():
        if row.success is not None:
            assert row.low <= max(row.chance, row.blind)


def test_without_features_there_is_no_baseline_and_it_is_not_tried(tmp_path):
    found = attempts(recorded(tmp_path / "run", learnt=8.0, features=(1,)))
    for adversary in ("device(0)", "devices(all)"):
        assert f"features of {adversary} itself were not recorded" in found[adversary].not_applicable
