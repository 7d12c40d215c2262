"""An attack in someone else's package is listed, tried by `vflpriv attack` and by `vflpriv audit`, and reported."""

from __future__ import annotations

import json

import pytest

from tests.seams.plugins import Plugin

SOURCE = '''
"""Labels by the largest entry of the negated gradient, without any class of `vflpriv.attacks`."""

import torch

from vflpriv.core.attack import Guess


class NegatedGradient:
    name = "negated_gradient"
    summary = "takes the largest entry of the negated gradient"
    target = "labels"
    needs = frozenset({"logit-gradient"})
    auxiliary = False
    conduct = None
    heavy = False

    def refusal(self, view):
        return None if view.kinds & self.needs else "needs gradients of logits"

    def run(self, view, auxiliary):
        last = view.of_kind("logit-gradient")[-1]
        return Guess(last.records, (-last.tensors["gradient"]).argmax(-1))

    def blind(self, view, auxiliary):
        return None
'''
CONFIG = """
seed = 1
[data]
name = "digits"
train = 60
[attack]
seeds = 2
views = ["device(0)"]
[[system]]
key = "split"
[system.engine]
name = "split"
aggregation = "sum"
rounds = 4
batch_size = 8
[system.audit]
attacks = ["negated_gradient"]
sensitivity = false
noise = false
state = false
[[system]]
key = "concat"
[system.engine]
name = "split"
rounds = 4
batch_size = 8
[system.audit]
attacks = ["negated_gradient"]
sensitivity = false
noise = false
state = false
"""


@pytest.fixture
def plugin(tmp_path):
    package = Plugin(tmp_path / "package", "vflpriv.attacks", "NegatedGradient", SOURCE)
    (package.folder / "run.toml").write_text(CONFIG, encoding="utf-8")
    return package


def test_it_is_listed_beside_ours(plugin):
    listed = plugin.command("attacks")
    assert listed.returncode == 0, listed.stderr
    (line,) = [line for line in listed.stdout.splitlines() if "negated_gradient" in line]
    assert "takes the largest entry of the negated gradient" in line
    assert "label_direct" in listed.stdout


def test_vflpriv_attack_tries_it_and_reports_its_figure_with_an_interval(plugin):
    chosen = ("--set", 'attack.attacks=["negated_gradient"]')
    done = plugin.command("attack", "run.toml", "-q", "--out", "matrix", "--format", "json", *chosen)
    assert done.returncode == 0, done.stderr
    report = json.loads((plugin.folder / "matrix" / "attacks.json").read_text("utf-8"))
    cells = {cell["system"]: cell for cell in report["cells"]}
    assert {cell["attack"] for cell in report["cells"]} == {"negated_gradient"}
    tried = cells["split"]
    assert tried["success"] == 1.0
    assert tried["low"] <= tried["leakage"] <= tried["high"]
    assert tried["leakage"] == pytest.approx(1 - tried["chance"])
    assert cells["concat"]["not_applicable"] == "needs gradients of logits"


def test_vflpriv_audit_tries_it_too(plugin):
    done = plugin.command("audit", "run.toml", "-q", "--out", "audit", "--format", "json")
    assert done.returncode in (0, 1), done.stderr
    report = json.loads((plugin.folder / "audit" / "report.json").read_text("utf-8"))
    rows = {
        system["key"]: row
        for system in report["systems"]
        for row in system["attacks"]
        if (row["attack"], row["adversary"]) == ("negated_gradient", "device(0)")
    }
    assert rows["split"]["success"] == 1.0
    assert rows["split"]["low"] < 1.0 == rows["split"]["high"]
    assert rows["concat"]["not_applicable"] == "needs gradients of logits"
