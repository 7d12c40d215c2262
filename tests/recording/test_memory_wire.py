"""The wire that keeps a training in memory takes every call that a recording takes."""

from __future__ import annotations

import pytest
import torch

from vflpriv.errors import InputError
from vflpriv.recording.checked_wire import MemoryWire
from vflpriv.recording.recorder import RecordingWire

OF_FILES = {"abandon", "end_with_program", "finish", "write_beside"}


def calls(wire):
    return {name for name in dir(wire) if not name.startswith("_") and callable(getattr(wire, name))}


@pytest.fixture
def wire():
    return MemoryWire(devices=1, classes=2, records=4)


def test_a_training_can_be_given_either_wire():
    assert calls(RecordingWire) - OF_FILES <= calls(MemoryWire)


def test_labels_are_known_for_all_records_or_for_some(wire):
    assert wire.known_labels is None
    wire.labels([0, 1, 1, 0], canaries=None)
    assert wire.known_labels.tolist() == [0, 1, 1, 0]
    wire.labels(torch.tensor([1.0, 0.0]), records=[3, 1])
    assert wire.known_labels.tolist() == [-1, 0, -1, 1]
    wire.accuracy(0.9, tests=10)
    with pytest.raises(InputError, match="one label for each of 4 records"):
        wire.labels([0, 1])


def test_targets_of_a_regression_are_no_labels():
    wire = MemoryWire(devices=1, classes=None, records=2)
    wire.labels([0.5, 1.5])
    assert wire.known_labels is None
