"""`vflpriv audit` with a section attack.features: the same section as in `vflpriv attack`, in every format."""

from __future__ import annotations

from functools import partial

import pytest

from tests.cli.test_cli import run
from vflpriv.report.audit import read_report

SMALL = """
[data]
name = "digits"
devices = 2
keep_shape = true
train = 300
[attack]
seeds = 2
[attack.features]
known_records = 60
candidates = 280
sensitive_column = 10
views = ["server", "device(0)"]
[attack.defences.noise]
protection = "embedding"
noise_std = 1.0
[[system]]
key = "split"
[system.engine]
name = "split"
rounds = 12
batch_size = 50
[system.audit]
attacks = []
sensitivity = false
noise = false
state = false
[[system]]
key = "sound"
[system.engine]
name = "dpzv"
rounds = 12
batch_size = 50
embedding = 4
server_update = "joint"
noise = "calibrated"
[system.audit]
attacks = []
trials = 0
sensitivity = false
noise = false
state = false
"""
NO_ATTACK = "feature inference"


@pytest.fixture
def call(monkeypatch, capsys, tmp_path):
    path = tmp_path / "audit.toml"
    path.write_text(SMALL, encoding="utf-8")
    return partial(run, monkeypatch, capsys, "audit", str(path), "-q", "--out", str(tmp_path))


def test_an_audit_shows_what_attacks_on_features_reach(call, tmp_path):
    """Margin: an interval has its own estimate inside."""
    code, out, err = call()
    assert code in (0, 3), err
    report = read_report(tmp_path / "report.json")
    cells = {(c.system, c.attack, c.adversary): c for c in report.features}
    assert {c.defence for c in report.features} == {"none"}
    inversion = cells["split", "feature_inversion", "server"]
    assert inversion.unit == "features"
    assert inversion.epsilon == float("inf")
    assert inversion.success_low > 0.3
    assert len(inversion.columns) == 32
    assert inversion.features_above > 8
    best = inversion.columns[inversion.best_feature]
    assert best.value == max(c.value for c in inversion.columns if c.value is not None)
    assert best.error < best.mean_error
    assert inversion.map.startswith("data:image/png;base64,")
    membership = cells["sound", "feature_membership", "server"]
    assert membership.unit == "record"
    assert 0 < membership.epsilon < float("inf")
    assert (membership.chance, membership.measure) == (0.5, "AUC")
    assert membership.advantage_low <= membership.advantage <= membership.advantage_high
    assert membership.found_low <= membership.found <= membership.found_high
    shadowed = cells["split", "feature_lira", "server"]
    assert shadowed.knows == ("labels", "shadows")
    assert shadowed.guesses == membership.guesses
    assert shadowed.rarely_found is None
    assert cells["split", "feature_membership", "device(0)"].epsilon == float("inf")
    assert not any(NO_ATTACK in line for line in report.not_tested)
    assert "worst leak of features" in " ".join(out.split())
    page, text = ((tmp_path / f"report.{name}").read_text("utf-8") for name in ("html", "md"))
    assert page.count('<img class="sheet" src="data:image/png;base64,') >= 4
    assert "img-src data:" in page
    assert page.count("<script") == 1
    assert "### Membership" in text
    assert "| split | none | feature\\_inversion | server | ∞ |" in text


def test_without_the_section_it_says_that_nothing_was_tried(call, tmp_path):
    start, end = SMALL.index("[attack]"), SMALL.index("[[system]]")
    (tmp_path / "audit.toml").write_text(SMALL[:start] + SMALL[end:], encoding="utf-8")
    code, _, err = call("--only", "split")
    assert code == 0, err
    report = read_report(tmp_path / "report.json")
    assert report.features == ()
    assert any(NO_ATTACK in line for line in report.not_tested)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("attack.features.victim=5", "attack.features.victim = 5: expected a device below 2"),
        ("attack.features.candidates=2", "attack.features.candidates = 2: expected a number >= 8"),
        ("attack.features.shadow_models=2", "attack.features.shadow_models = 2: expected a number >= 4"),
        (
            "system.split.audit.attacks=['feature_esa']",
            "system.split.audit.attacks = 'feature_esa': expected attacks on labels; those on features go into",
        ),
    ],
)
def test_bad_input_is_one_line(call, setting, message):
    code, _, err = call("--set", setting)
    assert code == 2
    assert err.startswith(f"vflpriv: {message}")
    assert err.count("\n") == 1
