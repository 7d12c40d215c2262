"""Evaluation of an engine's models."""

from __future__ import annotations

from dataclasses import replace

import torch

from tests.support import make_system, toy_data
from vflpriv.core.wire import Wire


def test_evaluating_in_chunks_of_records_changes_nothing(monkeypatch):
    engine = make_system("split-concat").train((0, 1))
    whole = engine.evaluate()
    monkeypatch.setattr("vflpriv.training.engine._RECORDS_TOGETHER", 7)
    pieces = engine.evaluate()
    torch.testing.assert_close(pieces.loss, whole.loss)
    assert torch.equal(pieces.accuracy, whole.accuracy)


def test_the_validation_part_is_evaluated_when_it_is_asked_for():
    data = toy_data()
    data = replace(data, validation_blocks=data.test_blocks, validation_labels=(data.test_labels + 1) % data.classes)
    engine = make_system("split-concat", data=data).train((0, 1))
    engine.run(Wire())
    logits = engine.predicted(data.test_blocks, 2)
    right = (logits.argmax(-1) == data.validation_labels).float().mean(1)
    validated, tested = engine.evaluate(part="validation"), engine.evaluate()
    assert torch.equal(validated.accuracy, right)
    assert not torch.equal(validated.accuracy, tested.accuracy)
    assert torch.equal(validated.loss, tested.loss)


def test_the_auc_is_that_of_the_test_logits_of_every_replica():
    engine = make_system("split-concat", data=toy_data(classes=2)).train((0, 1))
    logits = engine.predict(engine.data.test_blocks, 2)
    ones = engine.data.test_labels == 1
    margins = logits[..., 1] - logits[..., 0]
    wins = (margins[:, ones].unsqueeze(2) > margins[:, ~ones].unsqueeze(1)).float().mean((1, 2))
    torch.testing.assert_close(engine.evaluate().auc(), wins)
    assert make_system("split-concat").train((0, 1)).evaluate().auc().shape == (2,)
