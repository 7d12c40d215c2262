"""Recorded systems: a tensor that no release of the ledger covers is named, and counts as exact."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import vflpriv
from vflpriv.core.claims import Verdict
from vflpriv.core.units import Unit
from vflpriv.core.views import Adversary
from vflpriv.recording.ledger_file import LedgerConfig
from vflpriv.run.recorded import audit_recording

RELEASE: dict[str, Any] = {"kind": "mine", "noise": "gaussian", "scale": 1.0, "sensitivity": {"label": 1.0}}


@pytest.fixture(scope="module")
def transcript(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A noised number, with the labels of its batch beside it."""
    folder = tmp_path_factory.mktemp("two") / "transcript"
    with vflpriv.record(folder, devices=2, classes=2, records=8) as wire:
        for round_ in range(4):
            labels = (torch.arange(8) % 2).float()
            received = wire.down(round_, round_ % 2, "mine", {"value": torch.randn(1), "labels": labels}, range(8))
            assert torch.equal(received["labels"], labels)
    return folder


def found(transcript: Path, **release: Any) -> tuple[list[Any], float]:
    """The wire audit's findings, and the ε accounted for a device."""
    audited = audit_recording(transcript, LedgerConfig.model_validate({"release": [{**RELEASE, **release}]}))
    exposure = audited.ledger.exposure(Adversary.parse("device"), Unit.LABEL)
    return [f for f in audited.findings if f.audit == "wire"], len(exposure.unprotected)


def test_a_tensor_that_the_ledger_does_not_list_is_named_and_counts(transcript: Path) -> None:
    (finding,), unprotected = found(transcript, tensors=["value"])
    assert (finding.subject, finding.verdict) == ("mine/labels", Verdict.UNSUPPORTED)
    assert "tensor labels of 4 mine messages (first in round 0, server → device(0)) is not in the ledger" in (
        finding.sentence
    )
    assert finding.decides_alone
    assert unprotected == 1


def test_of_a_kind_of_ones_own_with_several_tensors_each_must_be_listed(transcript: Path) -> None:
    findings, unprotected = found(transcript)
    assert [f.subject for f in findings] == ["mine/labels", "mine/value"]
    assert unprotected == 2


def test_nothing_is_said_where_all_are_listed(transcript: Path) -> None:
    assert found(transcript, tensors=["value", "labels"]) == ([], 0)


def test_those_who_see_it_although_the_ledger_leaves_them_out_count(transcript: Path) -> None:
    (finding,), _ = found(transcript, tensors=["value", "labels"], seen_by=["eavesdropper", "outsider"])
    assert finding.verdict is Verdict.UNSUPPORTED
    assert finding.sentence.startswith("mine messages go to devices, so that device, devices see them")
    assert finding.undeclared[0].seen_by == {"device", "devices"}
