"""`vflpriv attack --malicious`: what is tried with it and not without, and how reports and comparisons show it."""

from __future__ import annotations

from pathlib import Path

from tests.program import vflpriv
from vflpriv.config.loading import load_config
from vflpriv.report.attacks import read_attacks
from vflpriv.report.changes import Tolerance
from vflpriv.report.compare import compare_attacks
from vflpriv.run.attack import AttackPlan
from vflpriv.run.systems import load_data

SMALL = """
[data]
name = "digits"
devices = 2
train = 120

[engine]
name = "split"
rounds = 20
batch_size = 20

[attack]
seeds = 2
views = ["device(0)", "eavesdropper"]
attacks = ["label_similarity"]

[attack.features]
views = ["server"]
known_records = 20
attacks = ["feature_hijack"]
"""
EXTRA = {"integrity_backdoor", "integrity_noisy_samples", "integrity_replay"}


def test_dishonest_parties_are_tried_where_they_are_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "attack.toml"
    path.write_text(SMALL.replace('attacks = ["feature_hijack"]', ""), encoding="utf-8")
    for malicious in (False, True):
        config = load_config(path, {"attack.malicious": malicious})
        plan = AttackPlan.of(config, load_data(config))
        assert {attack.name for attack in plan.dishonest} == (EXTRA if malicious else set())
        assert ("feature_hijack" in {attack.name for attack in plan.features.attacks}) == malicious


def test_reports_and_comparisons_show_them(tmp_path: Path) -> None:
    path, out = tmp_path / "attack.toml", tmp_path / "out"
    path.write_text(SMALL, encoding="utf-8")
    done = vflpriv("attack", path, "--malicious", "--out", out, "--quiet", "--workers", 1)
    assert done.returncode == 0, done.stderr
    report = read_attacks(out / "attacks.json")
    assert {(cell.attack, cell.adversary) for cell in report.integrity} == {(name, "device(0)") for name in EXTRA}
    assert all(cell.main is not None and cell.main_honest is not None for cell in report.integrity)
    assert report.features[0].success is not None
    assert "| integrity\\_replay |" in (out / "attacks.md").read_text("utf-8")
    none = tuple(cell.model_copy(update={"success": 0.0}) for cell in report.integrity)
    rose = compare_attacks(report.model_copy(update={"integrity": none}), report, Tolerance())
    assert any("integrity_replay" in change.where for change in rose.regressions)
