"""A law of another package: a ledger file names it, accountants bound it, and the report of an audit shows it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.seams.plugins import Plugin

SOURCE = """
    from dataclasses import dataclass

    from vflpriv.core.law import Law
    from vflpriv.laws.pairs import PurePair

    @dataclass(frozen=True)
    class Staircase(Law):
        scale: float
        stairs: int = 1
        name = "staircase"
        summary = "noise that falls in steps"
        norm = 1

        def __str__(self):
            return f"Staircase(scale={self.scale:g}, stairs={self.stairs})"

        def strength(self, sensitivity):
            return sensitivity / self.scale

        def pair(self, sensitivity):
            return PurePair(self.strength(sensitivity), bound=True)
"""

RECORD = """
    import torch
    import vflpriv

    with vflpriv.record("run", devices=1, classes=2, records=40) as wire:
        wire.labels(torch.arange(40) % 2)
        for t in range(3):
            wire.up(t, 0, "embeddings", {"embedding": torch.randn(40, 4)}, range(40))
    result = True
"""

LEDGER = """
key = "stairs"
attacks = []
model_follows_releases = true

[[release]]
kind = "embeddings"
noise = "staircase"
scale = 4.0
law = { stairs = 3 }
sensitivity = { features = 1.0 }
leak = "none"

[[claim]]
key = "published"
unit = "features"
view = "server"
epsilon = 1.0
delta = 1e-5
"""


@pytest.fixture(scope="module")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Plugin:
    made = Plugin(tmp_path_factory.mktemp("plugin"), "vflpriv.laws", "Staircase", SOURCE)
    (made.folder / "ledger.toml").write_text(LEDGER, encoding="utf-8")
    assert made.python(RECORD)
    return made


def test_the_ledger_names_it_and_the_report_bounds_it(plugin: Plugin) -> None:
    done = plugin.command("audit", "--transcript", "run", "--ledger", "ledger.toml", "--out", "out", "--format", "json")
    assert done.returncode == 3, done.stdout + done.stderr  # unmeasured: only the ledger speaks for the claim
    report = (
        (plugin.folder / "out" / "report.json").read_text("utf-8") if not done.stdout.startswith("{") else done.stdout
    )
    assert "Staircase(scale=4, stairs=3)" in report
    assert _numbers_near(json.loads(report), 0.75), "three releases of ε = 1/4"


def test_wrong_settings_of_a_law_are_one_line(plugin: Plugin) -> None:
    wrong = plugin.folder / "wrong.toml"
    wrong.write_text(LEDGER.replace("stairs = 3", "steps = 3"), encoding="utf-8")
    done = plugin.command("audit", "--transcript", "run", "--ledger", "wrong.toml", "--out", "out")
    assert done.returncode != 0
    assert "stairs" in done.stderr
    assert "steps" in done.stderr


def _numbers_near(tree: object, value: float) -> bool:
    """Whether a number of a report is this, up to what accountants leave open."""
    if isinstance(tree, dict):
        return any(_numbers_near(inner, value) for inner in tree.values())
    if isinstance(tree, list):
        return any(_numbers_near(inner, value) for inner in tree)
    return isinstance(tree, float) and abs(tree - value) < 1e-3


def test_without_the_package_the_line_lists_the_laws_there_are(tmp_path: Path) -> None:
    from vflpriv.errors import InputError
    from vflpriv.recording.ledger_file import load_ledger

    (tmp_path / "ledger.toml").write_text(LEDGER, encoding="utf-8")
    with pytest.raises(InputError, match=r"release\.0\.noise.*staircase.*one of alibi"):
        load_ledger(tmp_path / "ledger.toml")
