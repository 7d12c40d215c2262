"""Evaluation of an engine's models."""

from __future__ import annotations

import torch

from tests.support import make_system


def test_evaluating_in_chunks_of_records_changes_nothing(monkeypatch):
    engine = make_system("split-concat").train((0, 1))
    whole = engine.evaluate()
    monkeypatch.setattr("vflpriv.training.engine._RECORDS_TOGETHER", 7)
    pieces = engine.evaluate()
    torch.testing.assert_close(pieces.loss, whole.loss)
    assert torch.equal(pieces.accuracy, whole.accuracy)
