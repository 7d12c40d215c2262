"""The ledger that a trace derives has the ε that accountants have for the same noise; broken scripts have none."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from vflpriv import api
from vflpriv.core.budgets import epsilon_of
from vflpriv.recording.ledger_file import load_ledger

SCRIPTS = Path(__file__).parent / "scripts"


def traced(name, **options):
    return api.trace(SCRIPTS / f"{name}.py", quiet=True, **options)


def ledger_of(report, folder):
    """What a report derives, as any ledger file is read."""
    (folder / "ledger.toml").write_text(report.ledger)
    ledger = load_ledger(folder / "ledger.toml")
    assert ledger.key == ledger.title == report.script  # one name in all tables
    return {release.kind: release for release in ledger.release}


def test_private_sgd_of_opacus_has_the_epsilon_of_its_noise(tmp_path):
    """Three epochs of a clip of 0.5, noise of 2 × 0.5, one replaced label, batches that are known.

    Margin: the figure of the pair lies 8e-7 of it below what is accounted, and moves by 2e-8 between CPUs.
    """
    report = traced("opacus_head")
    assert report.exit_code == 0
    for pair in report.pairs:
        assert pair.accounted == pytest.approx(epsilon_of(math.sqrt(3) * 1.0 / 1.0, 1e-5), rel=1e-6)
        assert pair.epsilon <= pair.accounted * (1 + 1e-6)
    release = ledger_of(report, tmp_path)["head-gradient"]
    assert (release.noise, release.scale, release.shared, release.leak) == ("gaussian", 1.0, True, "none")
    assert release.sensitivity["label"] == pytest.approx(1.0)


@pytest.mark.slow
def test_parameters_that_opacus_clips_one_by_one_cost_each_a_clip(tmp_path):
    text = (SCRIPTS / "opacus_head.py").read_text().replace("DPOptimizer", "DPPerLayerOptimizer")
    (tmp_path / "layers.py").write_text(text.replace("max_grad_norm=0.5", "max_grad_norm=[0.5, 0.5]"))
    report = api.trace(tmp_path / "layers.py", quiet=True)
    release = ledger_of(report, tmp_path)["head-gradient"]
    assert release.sensitivity["label"] == pytest.approx(math.sqrt(2) * 2 * 0.5, rel=1e-6)


@pytest.mark.slow
def test_responses_that_are_drawn_once_cost_their_epsilon_once(tmp_path):
    report = traced("randomised_response")
    assert [pair.accounted for pair in report.pairs] == pytest.approx([1.0] * 3, rel=1e-4)
    release = ledger_of(report, tmp_path)["embedding-gradient"]
    assert (release.noise, release.scale, release.once) == ("rr", 1.0, True)


@pytest.mark.slow
def test_responses_that_are_drawn_in_every_epoch_are_more_than_the_claim_of_one(tmp_path):
    claim = '[[claim]]\nkey = "labels"\nunit = "label"\nview = "devices(all)"\nepsilon = 1.0\ndelta = 1e-5\n'
    declared = '[[release]]\nkind = "embedding-gradient"\nnoise = "rr"\nscale = 1.0\nsensitivity = { label = 1.0 }\n'
    (tmp_path / "ledger.toml").write_text(f"{declared}once = true\n{claim}")
    report = traced("responses_each_epoch", against=tmp_path / "ledger.toml")
    assert report.exit_code == 3  # gradients are made of them, and may tell less
    assert report.pairs[-1].claimed == 1.0
    assert report.pairs[-1].epsilon == pytest.approx(3.0, rel=1e-5)
    assert report.pairs[-1].accounted >= 3.0 * (1 - 1e-4)
    assert any("once = true" in line and "in several rounds" in line for line in report.differences)


@pytest.mark.slow
def test_noised_embeddings_have_the_epsilon_of_their_noise(tmp_path):
    report = traced("sent_embeddings", units=["features"])
    towards_server = [pair for pair in report.pairs if pair.view == "server"]
    assert [pair.accounted for pair in towards_server] == pytest.approx([epsilon_of(2 / 1.5, 1e-5)] * 2, rel=1e-6)
    assert all(pair.epsilon <= pair.accounted for pair in towards_server)
    release = ledger_of(report, tmp_path)["embeddings"]
    assert (release.noise, release.scale) == ("gaussian", 1.5)


@pytest.mark.slow
def test_state_that_learns_from_own_rows_is_a_leak(tmp_path):
    release = ledger_of(traced("embeddings_noised", units=["features"]), tmp_path)["embeddings"]
    assert release.sensitivity["features"] == pytest.approx(2.0)
    assert release.leak.own
    assert release.leak.sensitivity["features"] == pytest.approx(2.0 * math.sqrt(25))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "clip", "std", "count"), [("guarded", 0.02, 0.15, 4), ("hook_noise", 0.01, 0.1, 6)])
def test_sound_guards_are_proved(tmp_path, name, clip, std, count):
    report = traced(name)
    assert report.exit_code == 0
    release = ledger_of(report, tmp_path)["embedding-gradient"]
    assert (release.scale, release.leak) == (std, "none")
    assert release.sensitivity["label"] == pytest.approx(2 * clip)
    most = epsilon_of(2 * clip / std * math.sqrt(count), 1e-5)
    assert 0 < report.pairs[-1].epsilon < report.pairs[-1].accounted <= most * (1 + 1e-6)
    assert any("noise of std" in line and f"instead of {std:g}" in line for line in report.advice)


@pytest.mark.slow
def test_a_branch_on_the_loss_that_skips_noise_is_seen_or_leaves_the_epsilon_open():
    report = traced("noise_by_loss")
    assert report.exit_code in (1, 3)
    short = traced("noise_by_loss", rounds=1)
    assert short.exit_code == 3
    assert short.pairs[-1].accounted is None
    assert "noise_by_loss.py:25: a comparison of a private value decides what happens" in short.pairs[-1].open[0]


def test_an_exact_loss_that_is_sent_is_named():
    report = traced("loss_sent", rounds=1)
    assert report.exit_code == 1
    assert {row.where for row in report.messages if row.state == "bare"} == {"loss_sent.py:31"}
    assert {row.kind for row in report.messages if row.state == "bare"} == {"loss"}
    assert all(pair.accounted == math.inf for pair in report.pairs)


@pytest.mark.slow
def test_the_attack_that_reads_what_is_bare_is_shown():
    """Margin: all labels are read, and a guess by chance has no more than most of them."""
    best = max(traced("numpy_labels", rounds=2).attacks, key=lambda row: row.success)
    assert best.success == 1.0
    assert best.chance < best.success
