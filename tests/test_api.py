"""The library does what the commands do: the same bytes, as objects that show themselves."""

from __future__ import annotations

import subprocess
import sys
import tomllib

import numpy as np
import pytest
import torch

import vflpriv
from tests.cli.test_cli import run
from tests.tiny import TINY
from vflpriv.common.toml import toml_file, toml_value
from vflpriv.config.loading import load_config
from vflpriv.core.claims import Verdict
from vflpriv.errors import InputError


@pytest.fixture
def config(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "audit.toml").write_text(TINY, encoding="utf-8")
    return tmp_path / "audit.toml"


def test_an_audit_gives_the_bytes_of_the_command(monkeypatch, capsys, tmp_path, config):
    flags = ("--set", "system.sound.engine.rounds=5", "--trials", "3", "-q")
    code, _, _ = run(monkeypatch, capsys, "audit", "audit.toml", "--out", "cli", *flags)
    report = vflpriv.audit("audit.toml", overrides={"system.sound.engine.rounds": 5}, trials=3)
    assert capsys.readouterr() == ("", "")
    assert report.exit_code == code
    assert report.to_json().encode() == (tmp_path / "cli" / "report.json").read_bytes()
    assert not (tmp_path / "vflpriv-report").exists()
    report.save("saved", formats=["json", "html"])
    for name in ("report.json", "report.html"):
        assert (tmp_path / "saved" / name).read_bytes() == (tmp_path / "cli" / name).read_bytes()


def test_a_mapping_is_a_configuration_and_can_be_run_again(monkeypatch, capsys, tmp_path, config):
    given = tomllib.loads(TINY)
    before = tomllib.loads(TINY)
    report = vflpriv.audit(given, out="here", overrides={"system.sound.engine.rounds": 5}, trials=3, only=["sound"])
    assert given == before
    assert report.claims[0].reproduce == "vflpriv audit here/config.toml --only sound"
    first = (tmp_path / "here" / "report.json").read_bytes()
    run(monkeypatch, capsys, *report.claims[0].reproduce.split()[1:], "--out", "again", "-q", "--format", "json")
    assert (tmp_path / "again" / "report.json").read_bytes() == first
    assert vflpriv.audit(load_config(tmp_path / "here" / "config.toml")).systems[0].claims[0].mu == report.claims[0].mu


def test_attacks_budgets_and_trainings_are_those_of_the_commands(monkeypatch, capsys, tmp_path, config):
    run(monkeypatch, capsys, "attack", "audit.toml", "--only", "split", "--seeds", "3", "--out", "cli", "-q")
    seeds = {"attack.seeds": 3}
    matrix = vflpriv.attack("audit.toml", overrides=seeds, only=["split"], out="lib", fail_on=["leakage>0.05"])
    assert (tmp_path / "lib" / "attacks.html").exists()
    assert matrix.exit_code == 1
    assert matrix.model_copy(update={"limits": (), "breaches": (), "tests": 0, "nearly": 0}).to_json() == (
        tmp_path / "cli" / "attacks.json"
    ).read_text("utf-8")
    _, printed, _ = run(monkeypatch, capsys, "account", "audit.toml", "--format", "json", "--delta", "0.001")
    accounts = vflpriv.account(config, delta=0.001)
    assert accounts.to_json() == printed.rstrip("\n")
    _, printed, _ = run(monkeypatch, capsys, "train", "audit.toml", "--reproducible", "--format", "json", "-q")
    trained = vflpriv.train(config, save="models", reproducible=True)
    assert (
        trained.model_copy(
            update={"systems": tuple(s.model_copy(update={"models": None}) for s in trained.systems)}
        ).to_json()
        == printed
    )
    assert (tmp_path / "models" / "split.safetensors").exists()
    for result in (matrix, accounts, trained):
        assert "\n" not in repr(result)
        assert "split" in result._repr_html_()
        assert "split" in result._repr_markdown_()
    capsys.readouterr()


PROFILE = """
title = "A table"
source = "A paper, Table I"
chosen = "as printed"
seeds = 1
data = { name = "digits", devices = 2, train = 100 }
engine = { rounds = 4, batch_size = 16 }

[[row]]
key = "split"
paper = { accuracy = 80.0 }
engine = { name = "split" }
"""
QUESTION = """
epsilons = [8.0]
seeds = 1
trials = 20
audit_records = 40
data = { name = "digits", devices = 2, train = 100 }

[[candidate]]
key = "send-once"
engine = { name = "send-once", rounds = 3, server_rate = 10.0 }
"""


@pytest.mark.parametrize(
    ("name", "text", "file"), [("reproduce", PROFILE, "reproduction.json"), ("frontier", QUESTION, "frontier.json")]
)
def test_experiments_are_those_of_the_commands(monkeypatch, capsys, tmp_path, name, text, file):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "profile.toml").write_text(text, encoding="utf-8")
    run(monkeypatch, capsys, name, "profile.toml", "--out", "cli", "--format", "json", "-q")
    report = getattr(vflpriv, name)("profile.toml")
    assert capsys.readouterr() == ("", "")
    assert report.to_json().encode() == (tmp_path / "cli" / file).read_bytes()


def test_a_transcript_is_audited(monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    labels = torch.arange(40) % 4
    with vflpriv.record("wire", devices=1, classes=4, records=40) as wire:
        wire.labels(labels)
        gradient = torch.full((40, 4), 0.25) - torch.nn.functional.one_hot(labels, 4)
        wire.down(0, 0, "logit-gradient", {"gradient": gradient}, range(40))
    (tmp_path / "ledger.toml").write_text(
        '[[release]]\nkind = "logit-gradient"\nnoise = "none"\n'
        '[[claim]]\nkey = "labels"\nunit = "label"\nview = "device"\nepsilon = 1.0\ndelta = 1e-5\n'
    )
    report = vflpriv.audit(transcript="wire", ledger="ledger.toml")
    flags = ("--transcript", "wire", "--ledger", "ledger.toml", "--out", "cli")
    code, _, _ = run(monkeypatch, capsys, "audit", *flags)
    assert report.exit_code == code
    assert report.to_json().encode() == (tmp_path / "cli" / "report.json").read_bytes()
    (claim,) = report.claims
    assert claim.verdict is report.verdict is Verdict.UNSUPPORTED
    report.save("saved")
    assert tomllib.loads((tmp_path / "saved" / "ledger.toml").read_text("utf-8"))["claim"][0]["key"] == "labels"
    with pytest.raises(InputError, match=r"--ledger = 'nothing'"):
        vflpriv.audit(transcript="wire")
    with pytest.raises(InputError, match="nothing beside --transcript"):
        vflpriv.audit("audit.toml", transcript="wire", ledger="ledger.toml")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: vflpriv.audit({"seed": -1}), "seed = -1: expected a number >= 0"),
        (lambda: vflpriv.audit(only=["nobody"]), "--only = 'nobody': expected one of "),
        (lambda: vflpriv.audit(trials=True), "--trials = True: expected a whole number >= 0"),
        (lambda: vflpriv.attack(fail_on=["leakage"]), "--fail-on = 'leakage'"),
        (lambda: vflpriv.account(delta=2.0), "--delta = 2.0"),
        (lambda: vflpriv.train("missing.toml"), "config = 'missing.toml'"),
        (lambda: vflpriv.audit({"engine": {"name": "split", "rounds": np.zeros(2)}}), "rounds"),
    ],
)
def test_bad_input_is_one_line(call, message):
    with pytest.raises(ValueError, match=r"^[^\n]*$") as caught:
        call()
    assert message in str(caught.value)


def test_configurations_survive_toml():
    for text in (TINY, None):
        config = load_config(tomllib.loads(text) if text else None)
        assert load_config(tomllib.loads(toml_file(config.model_dump(mode="json")))) == config
    odd = {"a": {'b" \\ \n\x7f é': ["\u2028", True, -1.5e-9, {}]}}
    assert tomllib.loads(toml_file(odd)) == odd
    assert tomllib.loads(f"value = {toml_value(odd)}")["value"] == odd


def test_a_folder_does_not_hide_an_embedded_configuration(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "papers").mkdir()  # what `vflpriv audit papers --out papers` leaves
    assert load_config("papers").system[0].key == "dpzv-clip"


def test_the_package_is_imported_without_torch():
    code = (
        "import sys, vflpriv; dir(vflpriv); print([n for n in ('torch', 'matplotlib', 'opacus') if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    assert {"audit", "attack", "account", "train", "reproduce", "frontier", "record", "plant"} <= set(dir(vflpriv))
