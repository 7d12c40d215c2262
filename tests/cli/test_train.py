"""`vflpriv train`: one training, what it cost, and models that can be read back."""

from __future__ import annotations

import json
import os

import pytest
import torch
from safetensors.torch import load_file

from tests.cli.test_cli import run
from tests.support import ENGINES, make_system
from tests.tiny import TINY
from vflpriv.core.wire import Wire
from vflpriv.report.audit import read_report
from vflpriv.report.train import TrainReport
from vflpriv.run import train


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "audit.toml"
    path.write_text(TINY, encoding="utf-8")
    return str(path)


def test_it_trains_once_and_keeps_the_models(monkeypatch, capsys, tmp_path, config):
    folder = tmp_path / "models"
    again = ("train", config, "--save", str(folder), "-q", "--reproducible")
    code, printed, _ = run(monkeypatch, capsys, *again)
    assert code == 0
    assert "13.3 %" in printed
    assert "anyone with the seed can subtract the noise" in " ".join(printed.split())
    assert {path.name for path in folder.iterdir()} == {"sound.safetensors", "split.safetensors", "train.json"}
    report = TrainReport.model_validate_json((folder / "train.json").read_text("utf-8"))
    sound, split = report.systems
    tensors = load_file(folder / "sound.safetensors")
    assert {name.split(".")[0] for name in tensors} == {"device", "server"}
    assert sum(t.numel() for t in tensors.values()) == sound.parameters
    assert sound.staleness is not None
    assert split.staleness is None
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    code, printed, _ = run(monkeypatch, capsys, *again, "--format", "json")
    assert json.loads(printed) == json.loads(before["train.json"])
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


SOUND = ("--only", "sound", "-q", "--format", "json")


def test_noise_is_new_in_every_training_and_its_key_is_nowhere_afterwards(monkeypatch, capsys, tmp_path, config):
    keys = []
    monkeypatch.setattr(os, "urandom", lambda size, real=os.urandom: keys.append(real(size)) or keys[-1])
    trained = []
    for folder in (tmp_path / "first", tmp_path / "second"):
        code, _, _ = run(monkeypatch, capsys, "train", config, "--save", str(folder), *SOUND)
        assert code == 0
        assert {path.name for path in folder.iterdir()} == {"sound.safetensors", "train.json"}
        report = TrainReport.model_validate_json((folder / "train.json").read_text("utf-8"))
        assert report.systems[0].noise_source.startswith("noise of releases: ChaCha20 under a key of 256 bits")
        written = b"".join(path.read_bytes() for path in folder.iterdir())
        assert not [key for key in keys if key in written or key.hex().encode() in written]
        trained.append(load_file(folder / "sound.safetensors"))
    assert [key for key in keys if len(key) == 32]
    assert not all(torch.equal(value, trained[1][name]) for name, value in trained[0].items())


def test_a_killed_training_is_made_again_with_the_same_noise(monkeypatch, capsys, tmp_path, config):
    """It is killed when its models are written, and before its report is."""
    folder, kept = tmp_path / "models", []
    whole = train.write_atomically

    def killed(path, content):
        whole(path, content)
        kept.append((oct((folder / "secret.key").stat().st_mode & 0o777), load_file(folder / "sound.safetensors")))
        raise KeyboardInterrupt

    monkeypatch.setattr(train, "write_atomically", killed)
    run(monkeypatch, capsys, "train", config, "--save", str(folder), *SOUND)
    run(monkeypatch, capsys, "train", config, "--save", str(folder), *SOUND)
    run(monkeypatch, capsys, "train", config, "--save", str(folder), *SOUND, "--set", "system.sound.engine.rounds=7")
    (mode, first), (_, again), (_, other) = kept
    assert mode == "0o600"
    assert all(torch.equal(value, again[name]) for name, value in first.items())
    assert not any(torch.equal(value, other[name]) for name, value in first.items() if value.any())


def test_a_reproducible_training_of_secret_noise_is_refused(monkeypatch, capsys, config):
    secret = ("--set", "system.sound.engine.secure_noise=true")
    code, _, printed = run(monkeypatch, capsys, "train", config, *SOUND, *secret, "--reproducible")
    assert code == 2
    assert "system.sound.engine.secure_noise" in printed
    assert "gives all its noise away" in printed


def test_it_trains_what_an_audit_trains(monkeypatch, capsys, tmp_path, config):
    only = ("--only", "split", "-q")
    run(monkeypatch, capsys, "audit", config, "--out", str(tmp_path / "report"), *only)
    (audited,) = read_report(tmp_path / "report" / "report.json").systems
    code, printed, _ = run(monkeypatch, capsys, "train", config, *only, "--format", "json")
    (trained,) = TrainReport.model_validate_json(printed).systems
    assert code == 0
    assert (trained.utility, trained.traffic, trained.settings) == (audited.utility, audited.traffic, audited.settings)


def test_validation_accuracy_stands_beside_test_accuracy(monkeypatch, capsys, config):
    """Margin: an interval has its own estimate inside."""
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
