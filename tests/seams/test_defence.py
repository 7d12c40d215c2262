"""A defence in someone else's package is listed, changes what engines send, and stands in the matrix of attacks."""

from __future__ import annotations

import json

import pytest

from tests.seams.plugins import Plugin

SOURCE = '''
"""Gradients of the batch's mean: no record is told anything of its own."""

from pydantic import Field

from vflpriv.core.kinds import Content
from vflpriv.training.defence import Defence, Guard, Protected


class Averaged(Defence):
    """Every record is sent the mean gradient of its batch, `share` of the way."""

    name = "averaged"
    summary = "the server sends every record the mean gradient"
    source = "nobody"
    content = Content.GRADIENT
    share: float = Field(1.0, description="how far gradients are moved to their mean")

    def guard(self, stream):
        return Mean(self.share)


class Mean(Guard):
    def __init__(self, share):
        self._share = share

    def protect(self, values, exchange):
        return Protected(values=values.lerp(values.mean(1, keepdim=True).expand_as(values), self._share))
'''
CONFIG = """
seed = 1
[data]
name = "digits"
train = 60
[attack]
seeds = 2
views = ["device(0)"]
attacks = ["label_direct"]
[attack.defences.half]
defence = { name = "averaged", share = 0.5 }
[attack.defences.whole]
defence = "averaged"
[[system]]
key = "split"
[system.engine]
name = "split"
aggregation = "sum"
rounds = 4
batch_size = 8
[[system]]
key = "fdml"
[system.engine]
name = "fdml"
rounds = 4
batch_size = 8
"""


@pytest.fixture
def plugin(tmp_path):
    package = Plugin(tmp_path / "package", "vflpriv.defences", "Averaged", SOURCE)
    (package.folder / "run.toml").write_text(CONFIG, encoding="utf-8")
    return package


def test_it_is_listed_and_decides_what_attacks_reach(plugin):
    """Margin: an average of eight records names their commonest class: 0.375 of them."""
    assert "averaged" in plugin.command("defences").stdout
    done = plugin.command("attack", "run.toml", "-q", "--out", "matrix", "--format", "json")
    assert done.returncode == 0, done.stderr
    report = json.loads((plugin.folder / "matrix" / "attacks.json").read_text("utf-8"))
    success = {cell["defence"]: cell["success"] for cell in report["cells"] if cell["system"] == "split"}
    assert success["none"] == success["half"] == 1.0, "half of the way every label is still the smallest entry"
    assert success["whole"] < 0.5
    rows = {(row["system"], row["defence"]): row for row in report["trained"]}
    assert rows["split", "whole"]["settings"]["defence"] == {"name": "averaged", "share": 1.0}
    assert rows["fdml", "whole"]["not_applicable"].startswith("needs messages with gradient, found ")


@pytest.mark.parametrize(
    ("setting", "complaint"),
    [
        ('"nothing"', "vflpriv: system.split.engine.defence = 'nothing': expected one of alibi, averaged, "),
        ('{ name = "averaged", share = "much" }', "system.split.engine.defence.share = 'much': expected"),
        ("{ share = 0.5 }", "expected the name of a defence"),
    ],
)
def test_what_is_wrong_is_one_line(plugin, setting, complaint):
    done = plugin.command("audit", "run.toml", "-q", "--only", "split", "--set", f"system.0.engine.defence={setting}")
    assert done.returncode == 2
    assert complaint in done.stderr
    assert done.stderr.count("\n") == 1
