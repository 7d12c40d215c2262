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


def test_a_script_has_no_trials(tmp_path):
    script = shutil.copy(SCRIPTS / "hook_noise.py", tmp_path / "train.py")
    with pytest.raises(InputError, match="--ledger"):
        api.audit(script)
    (tmp_path / "ledger.toml").write_text(LEDGER.format(epsilon=3.0))
    with pytest.raises(InputError, match="--trials"):
        api.audit(script, trials=3)
