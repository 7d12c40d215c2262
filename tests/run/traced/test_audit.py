"""`vflpriv audit train.py`: a script is recorded once, audited as a transcript, and traced for its claims."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from vflpriv import api
from vflpriv.errors import InputError

SCRIPTS = Path(__file__).parents[2] / "zoo" / "scripts"
LEDGER = """
attacks = []

[[release]]
kind = "embeddings"
noise = "none"
independent_of = ["label"]

[[release]]
kind = "embedding-gradient"
noise = "gaussian"
scale = 0.1
sensitivity = {{ label = 0.0283 }}
leak = "none"

[[claim]]
key = "labels"
unit = "label"
view = "devices(all)"
epsilon = {epsilon}
delta = 1e-5

[[claim]]
key = "rows"
unit = "features"
view = "server"
epsilon = 3.0
delta = 1e-5
"""


@pytest.mark.usefixtures("few_trees")
def test_claims_of_a_script_have_what_its_trace_says(tmp_path):
    script = shutil.copy(SCRIPTS / "hook_noise.py", tmp_path / "train.py")
    (tmp_path / "ledger.toml").write_text(LEDGER.format(epsilon=3.0))
    report = api.audit(script, quiet=True)
    (system,) = report.systems
    assert [str(row.verdict) for row in system.claims] == ["consistent", "violated"]
    assert system.claims[0].measurements[0].exact
    sentences = [finding.sentence for finding in system.evidence.findings if finding.audit == "flow"]
    assert any(said.startswith("train.py:27: embeddings is sent without noise") for said in sentences)
    assert any("train.py:9: the seed is fixed" in line for line in report.not_tested)
    assert report.exit_code == 1


@pytest.mark.slow
@pytest.mark.usefixtures("few_trees")
def test_what_a_ledger_declares_better_than_it_was_seen_counts_as_seen(tmp_path):
    """With the declared noise the claim would hold, with the noise that the script draws it does not."""
    script = shutil.copy(SCRIPTS / "hook_noise.py", tmp_path / "train.py")
    better = LEDGER.format(epsilon=1.5).replace("scale = 0.1", "scale = 0.2").replace("0.0283", "0.015")
    (tmp_path / "ledger.toml").write_text(better.partition('[[claim]]\nkey = "rows"')[0])
    report = api.audit(script, quiet=True)
    (claim,) = report.systems[0].claims
    assert claim.accounted.epsilon > 1.5
    assert claim.verdict != "consistent"
    said = " ".join(report.not_tested)
    assert "scale = 0.2, and train.py:21 draws 0.1; what was seen counts" in said
    assert "sensitivity.label = 0.015, and what comes before the noise at train.py:21 bounds it by 0.02" in said


@pytest.mark.slow
@pytest.mark.usefixtures("few_trees")
def test_a_claim_about_a_script_with_a_branch_on_private_values_is_not_consistent(tmp_path):
    script = shutil.copy(SCRIPTS / "noise_by_loss.py", tmp_path / "train.py")
    (tmp_path / "ledger.toml").write_text(LEDGER.format(epsilon=300.0).partition('[[claim]]\nkey = "rows"')[0])
    (claim,) = api.audit(script, quiet=True).systems[0].claims
    assert claim.verdict != "consistent"


def test_a_script_has_no_trials(tmp_path):
    script = shutil.copy(SCRIPTS / "hook_noise.py", tmp_path / "train.py")
    with pytest.raises(InputError, match="--ledger"):
        api.audit(script)
    (tmp_path / "ledger.toml").write_text(LEDGER.format(epsilon=3.0))
    with pytest.raises(InputError, match="--trials"):
        api.audit(script, trials=3)
