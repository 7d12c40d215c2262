"""A quick look at what attacks reach: smaller where sizes are large, the same attacks, and said in the report."""

from __future__ import annotations

from pathlib import Path

from tests.program import vflpriv
from vflpriv.config.loading import load_config
from vflpriv.config.quick import MOST, quickly_attacked
from vflpriv.report.attacks import read_attacks

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
views = ["device(0)"]
attacks = ["label_similarity"]

[attack.defences.laplace]
defence = "laplace"
strengths = { scale = [0.01] }

[attack.features]
views = ["server"]
candidates = 40
attacks = ["feature_inversion", "feature_membership"]
"""


def test_large_sizes_are_capped_and_small_ones_stay(tmp_path: Path) -> None:
    path = tmp_path / "attack.toml"
    path.write_text(SMALL, encoding="utf-8")
    quick = quickly_attacked(load_config(path))
    assert (quick.attack.seeds, quick.attack.defences) == (2, {})
    assert (quick.attack.features.candidates, quick.attack.features.shadow_models) == (40, MOST["shadow_models"])
    assert quick.system[0].engine["rounds"] == 20
    wide = {"attack.seeds": 9, "attack.features.candidates": 4000, "engine.rounds": 10_000}
    capped = quickly_attacked(load_config(path, wide))
    assert capped.attack.seeds == MOST["seeds"]
    assert capped.attack.features.candidates == MOST["candidates"]
    assert capped.system[0].engine["rounds"] == MOST["rounds"]


def test_the_report_says_that_it_is_a_quick_look_and_is_compared_with_a_baseline(tmp_path: Path) -> None:
    path, out = tmp_path / "attack.toml", tmp_path / "out"
    path.write_text(SMALL, encoding="utf-8")
    done = vflpriv("attack", path, "--quick", "--out", out, "--quiet", "--workers", 1)
    assert done.returncode == 0, done.stderr
    report = read_attacks(out / "attacks.json")
    assert report.quick
    assert {row.defence for row in report.trained} == {"none"}
    assert {cell.attack for cell in (*report.cells, *report.features)} == {
        "label_similarity",
        "feature_inversion",
        "feature_membership",
    }
    assert "A quick look: no defence was tried" in (out / "attacks.md").read_text("utf-8")
    less = {"success": 0.05, "success_low": 0.04, "success_high": 0.06}
    before = report.model_copy(update={"cells": tuple(cell.model_copy(update=less) for cell in report.cells)})
    worse = tmp_path / "before.json"
    worse.write_text(before.to_json(), encoding="utf-8")
    compared = vflpriv("attack", path, "--quick", "--out", out, "--quiet", "--workers", 1, "--baseline", worse)
    assert compared.returncode == 1
    assert "worse than the baseline" in compared.stdout
