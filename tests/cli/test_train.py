"""`vflpriv train`: one training, what it cost, and models that can be read back."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import load_file

from tests.cli.test_cli import run
from tests.support import ENGINES, make_system
from tests.tiny import TINY
from vflpriv.core.wire import Wire
from vflpriv.report.audit import read_report
from vflpriv.report.train import TrainReport


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "audit.toml"
    path.write_text(TINY, encoding="utf-8")
    return str(path)


def test_it_trains_once_and_keeps_the_models(monkeypatch, capsys, tmp_path, config):
    folder = tmp_path / "models"
    code, printed, _ = run(monkeypatch, capsys, "train", config, "--save", str(folder), "-q")
    assert code == 0
    assert "13.3 %" in printed
    assert {path.name for path in folder.iterdir()} == {"sound.safetensors", "split.safetensors", "train.json"}
    report = TrainReport.model_validate_json((folder / "train.json").read_text("utf-8"))
    sound, split = report.systems
    tensors = load_file(folder / "sound.safetensors")
    assert {name.split(".")[0] for name in tensors} == {"device", "server"}
    assert sum(t.numel() for t in tensors.values()) == sound.parameters
    assert sound.staleness is not None
    assert split.staleness is None
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    code, printed, _ = run(monkeypatch, capsys, "train", config, "--save", str(folder), "-q", "--format", "json")
    assert json.loads(printed) == json.loads(before["train.json"])
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_it_trains_what_an_audit_trains(monkeypatch, capsys, tmp_path, config):
    only = ("--only", "split", "-q")
    run(monkeypatch, capsys, "audit", config, "--out", str(tmp_path / "report"), *only)
    (audited,) = read_report(tmp_path / "report" / "report.json").systems
    code, printed, _ = run(monkeypatch, capsys, "train", config, *only, "--format", "json")
    (trained,) = TrainReport.model_validate_json(printed).systems
    assert code == 0
    assert (trained.utility, trained.traffic, trained.settings) == (audited.utility, audited.traffic, audited.settings)


def test_validation_accuracy_stands_beside_test_accuracy(monkeypatch, capsys, config):
    only = ("--only", "split", "-q", "--set", "data.validation=0.25")
    code, printed, _ = run(monkeypatch, capsys, "train", config, *only)
    assert code == 0
    assert "validation" in printed
    code, printed, _ = run(monkeypatch, capsys, "train", config, *only, "--format", "json")
    report = TrainReport.model_validate_json(printed)
    (row,) = report.systems
    assert (report.data["records"], report.data["validation"], row.validation.records) == (45, 15, 15)
    assert row.validation.accuracy_low <= row.validation.accuracy <= row.validation.accuracy_high


def test_it_stops_when_the_validation_accuracy_no_longer_improves(monkeypatch, capsys, config):
    chosen = {"data.validation": 0.25, "train.patience": 2, "train.evaluate_every": 3, "system.split.engine.rounds": 60}
    options = [part for name, value in chosen.items() for part in ("--set", f"{name}={value}")]
    code, printed, _ = run(monkeypatch, capsys, "train", config, "--only", "split", "-q", *options, "--format", "json")
    (row,) = TrainReport.model_validate_json(printed).systems
    assert code == 0
    assert row.rounds == 60
    assert row.stopping.trained_rounds == row.stopping.best_round + 2 * 3 < 60
    assert set(row.traffic.messages.values()) == {4 * row.stopping.trained_rounds}
    code, printed, _ = run(monkeypatch, capsys, "train", config, "--only", "split", "-q", *options)
    assert f"{row.stopping.trained_rounds} of 60" in printed


@pytest.mark.parametrize("variant", ENGINES)
def test_every_engine_says_what_it_trained(variant):
    """Putting the saved values back into another run's models gives the same predictions."""
    system = make_system(variant, rounds=2)
    engine, other = system.train([0]), system.train([1])
    engine.run(Wire())
    saved = {name: value.clone() for name, value in engine.trained().items()}
    assert all(bool(torch.isfinite(value).all()) for value in saved.values())
    for name, value in other.trained().items():
        value.copy_(saved[name])
    blocks = system.data.test_blocks
    assert torch.equal(other.predict(blocks, 1), engine.predict(blocks, 1))
