"""An audit of a recording that was killed goes on with what is missing, to the same report."""

from __future__ import annotations

import json
import shutil

import pytest
import torch

import vflpriv
from tests.run.recorded_systems import recorded
from vflpriv.attacks.label.clusters import LabelGradientClusters
from vflpriv.common.store import Steps
from vflpriv.recording.ledger_file import load_ledger
from vflpriv.run import recorded as recorded_audit

LEDGER = """
[[release]]
kind = "embedding-gradient"
noise = "gaussian"
scale = 0.01

[[claim]]
key = "labels"
unit = "label"
view = "device"
epsilon = 1.0
delta = 1e-5
"""


def gradients(run):
    """Gradients with little noise, which several attacks read, and embeddings that tell the features."""
    block = run.noise(len(run.labels), 3)
    run.wire.features(0, block)
    for t in range(12):
        ids = run.batch()
        run.wire.up(t, 0, "embeddings", {"embedding": block[ids] @ torch.eye(3)}, ids)
        rows = run.gradients(run.labels[ids], ids) + 0.01 * run.noise(len(ids), 5)
        run.wire.down(t, 0, "embedding-gradient", {"gradient": rows}, ids)


@pytest.fixture
def folder(tmp_path):
    recorded(tmp_path / "transcript", gradients, classes=3, canaries=60)
    (tmp_path / "ledger.toml").write_text(LEDGER)
    return tmp_path


def audit(folder, out, **options):
    vflpriv.audit(
        transcript=folder / "transcript", ledger=folder / "ledger.toml", out=folder / out, formats=["json"], **options
    )
    return (folder / out / "report.json").read_bytes()


class Counting:
    """Counts what is computed, and is interrupted at a number."""

    def __init__(self, monkeypatch, limit=None):
        self.count, self.limit = 0, limit
        result = Steps.result

        def counted(steps, name, form, compute, *, work=0):
            def once():
                if self.count == self.limit:
                    raise KeyboardInterrupt
                self.count += 1
                return compute()

            return result(steps, name, form, once, work=work)

        monkeypatch.setattr(Steps, "result", counted)


def test_a_killed_audit_goes_on_where_it_was(folder, monkeypatch):
    with monkeypatch.context() as patch:
        everything = Counting(patch)
        whole = audit(folder, "whole")
        assert everything.count >= 6
    with monkeypatch.context() as patch:
        Counting(patch, limit=4)
        with pytest.raises(KeyboardInterrupt):
            audit(folder, "killed")
    with monkeypatch.context() as patch:
        missing = Counting(patch)
        assert audit(folder, "killed") == whole
        assert missing.count == everything.count - 4
    with monkeypatch.context() as patch:
        nothing = Counting(patch, limit=0)
        assert audit(folder, "killed") == whole
        assert nothing.count == 0
    with monkeypatch.context() as patch:
        again = Counting(patch)
        assert audit(folder, "killed", fresh=True) == whole
        assert again.count == everything.count


@pytest.mark.parametrize("changed", ["transcript", "ledger"])
def test_results_of_another_transcript_or_ledger_are_not_used(folder, changed, monkeypatch):
    audit(folder, "report")
    if changed == "ledger":
        (folder / "ledger.toml").write_text(LEDGER.replace("0.01", "0.02"))
    else:
        shutil.rmtree(folder / "transcript")
        recorded(folder / "transcript", gradients, classes=3, canaries=60, seed=3)
    with monkeypatch.context() as patch:
        everything = Counting(patch)
        audit(folder, "report")
        assert everything.count >= 6


def test_progress_ends_with_all_of_the_work(folder):
    class Progress:
        def __init__(self):
            self.done, self.stages = 0, []

        def stage(self, text):
            self.stages.append(text)

        def advance(self, work):
            self.done += work

    expected, progress = [], Progress()
    steps = Steps(progress=progress, expect=expected.append)
    recorded_audit.audit_recording(folder / "transcript", load_ledger(folder / "ledger.toml"), steps=steps)
    assert expected == [progress.done]
    assert progress.done > 0
    stages = {"noise of embedding-gradient", "label_batch, device(0)", "features of device 0"}
    assert stages <= set(progress.stages)


def test_an_attack_on_a_sample_is_named(folder, monkeypatch):
    monkeypatch.setattr(LabelGradientClusters, "most", 100)
    report = json.loads(audit(folder, "report"))
    text = json.dumps(report, ensure_ascii=False)
    assert "label_gradient_clusters on all records: it was made on a sample of " in text
    assert "label_batch on all records" not in text
