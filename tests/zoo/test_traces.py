"""Scripts as strangers write them, traced: the right states, the guilty line, sound ones not accused."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.program import vflpriv
from vflpriv import api

SCRIPTS = Path(__file__).parent / "scripts"
SOUND = {
    "noised_gradients": (0.02 / 0.13, 4),
    "hook_noise": (0.02 / 0.1, 3),
    "bf16": (0.02 / 0.2, 3),
    "accumulation": (0.04 * 2**0.5 / 0.1, 4),
}
"""Script: the most that one message to all devices can cost in μ, and how many there are."""
BROKEN = {
    "class_trainer": "class_trainer.py:31",
    "frozen_text": "frozen_text.py:35",
    "numpy_labels": "numpy_labels.py:28",
    "poisson": "poisson.py:49",
    "three_parties": "three_parties.py:32",
}


def traced(name, **options):
    return api.trace(SCRIPTS / f"{name}.py", quiet=True, **options)


def rows(report, kind="embedding-gradient"):
    return [row for row in report.messages if row.kind == kind]


def _names(names, fast):
    return [name if name in fast else pytest.param(name, marks=pytest.mark.slow) for name in names]


@pytest.mark.parametrize("name", _names(SOUND, {"hook_noise"}))
def test_sound_scripts_are_sealed_and_cost_what_their_noise_says(name):
    report = traced(name)
    assert report.exit_code == 0, [row for row in report.messages if row.why]
    assert {row.state for row in rows(report)} == {"sealed"}
    assert all("Gaussian" in row.noise and f"{name}.py:" in row.where for row in rows(report))
    most, count = SOUND[name]
    assert 0 < report.pairs[-1].mu <= most * count**0.5 * 2**0.5


@pytest.mark.parametrize("name", _names(BROKEN, {"numpy_labels"}))
def test_broken_scripts_are_bare_and_the_line_is_named(name):
    report = traced(name)
    assert report.exit_code == 1
    assert {row.where for row in report.messages if row.state == "bare" and row.kind == "embedding-gradient"} == {
        BROKEN[name]
    }
    assert any(line.startswith(f"{BROKEN[name]}: embedding-gradient leaves without noise") for line in report.advice)
    assert report.pairs[-1].epsilon == float("inf")


@pytest.mark.slow
def test_randomised_response_costs_its_odds():
    report = traced("randomised_response")
    assert report.exit_code == 0
    assert report.pairs[-1].epsilon == pytest.approx(1.0, rel=1e-5)
    assert "once = true" in report.ledger
    assert "scale = 1.0\n" in report.ledger


@pytest.mark.slow
def test_noise_on_embeddings_seals_features_and_not_what_comes_back():
    report = traced("embeddings_noised", units=["features"])
    assert {row.state for row in rows(report, "embeddings")} == {"sealed"}
    assert {row.state for row in rows(report) if row.view == "server"} == {"bare"}


@pytest.mark.slow
def test_only_the_party_without_noise_is_shown_labels():
    states = {row.view: row.state for row in rows(traced("three_parties"))}
    assert states == {"device(0)": "sealed", "device(1)": "bare", "device(2)": "sealed", "devices(0, 1, 2)": "bare"}


@pytest.mark.slow
def test_a_seed_that_is_fixed_is_said():
    assert any("hook_noise.py:9: the seed is fixed" in note for note in traced("hook_noise", rounds=1).notes)


@pytest.mark.slow
def test_labels_that_come_another_way_are_not_called_clean(tmp_path):
    text = (SCRIPTS / "noised_gradients.py").read_text().replace(" + STD * torch.randn_like(grad)", "")
    text = text.replace("wire =", "listed = [int(label) for label in Y]\nwire =")
    (tmp_path / "lists.py").write_text(text.replace("Y[ids])", "torch.tensor([listed[i] for i in ids]))"))
    report = api.trace(tmp_path / "lists.py", rounds=2, quiet=True)
    assert report.exit_code == 1
    assert {row.state for row in report.messages if row.kind == "embedding-gradient"} == {"bare"}


@pytest.mark.slow
def test_the_command_prints_states_writes_the_ledger_and_says_what_is_wrong(tmp_path, monkeypatch):
    shutil.copy(SCRIPTS / "numpy_labels.py", tmp_path / "train.py")
    monkeypatch.chdir(tmp_path)
    done = vflpriv("trace", "train.py", "--rounds", "2", "--ledger", "ledger.toml", "-q")
    assert done.returncode == 1
    assert "BARE" in done.stdout
    assert "train.py:28" in done.stdout
    assert 'noise = "none"' in (tmp_path / "ledger.toml").read_text()
    assert vflpriv("trace", "train.py", "--ledger", "ledger.toml").returncode == 2


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "a file that exists"),
        ("x = = 1", "Python code"),
        ("print(1)", "vflpriv.watch"),
        ("import vflpriv\nvflpriv.watch(2, labels=[0, 1], classes=2)", "a script that sends"),
        ("import vflpriv\nvflpriv.watch(2, labels=[0, 1], classes=2)\nraise KeyError(3)", "train.py, line 3"),
    ],
)
def test_bad_input_is_one_line(tmp_path, monkeypatch, text, said):
    monkeypatch.chdir(tmp_path)
    if text is not None:
        Path("train.py").write_text(text)
    done = vflpriv("trace", "train.py", "-q")
    assert done.returncode == 2
    assert said in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


@pytest.mark.slow
def test_a_script_with_a_block_is_traced_when_it_ends(tmp_path):
    text = (SCRIPTS / "hook_noise.py").read_text()
    text = text.replace("wire = vflpriv.watch([a, b], labels=y, classes=2)", "")
    head, loop = text.split("for _ in range(3):")
    inside = "".join(f"    {line}\n" for line in f"for _ in range(3):{loop}".splitlines())
    (tmp_path / "block.py").write_text(
        f"{head}with vflpriv.trace(labels=y, bottoms=[a, b], classes=2) as wire:\n{inside}"
    )
    done = subprocess.run([sys.executable, "block.py"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "all that leaves is clean or sealed" in done.stdout
