"""Targets of a regression, off the gradients of its first tree: all of them in clear, none under noise."""

from __future__ import annotations

import numpy as np
import pytest

import vflpriv
from vflpriv.core.claims import Verdict

LEDGER = """
[[release]]
kind = "tree-gradients"
noise = "none"

[[claim]]
key = "targets"
unit = "label"
view = "device"
epsilon = 1.0
delta = 1e-5
"""


def audited(folder, *, noise=0.0, factor=1.0, records=80):
    """Two trees of a regression; the loss is `factor` times half the squared error, and starts from the mean."""
    generator = np.random.default_rng(0)
    targets = generator.normal(50.0, 10.0, records)
    wire = vflpriv.watch(1, labels=targets, classes=None, folder=folder)
    for tree in range(2):
        predicted = targets.mean() + tree * generator.normal(size=records)
        gradient = factor * (predicted - targets) + noise * generator.normal(size=records)
        sent = {"gradient": gradient, "hessian": np.full(records, factor)}
        wire.down(tree, 0, "tree-gradients", sent, np.arange(records))
    wire.finish()
    (folder / "ledger.toml").write_text(LEDGER)
    report = vflpriv.audit(transcript=folder, ledger=folder / "ledger.toml", quiet=True)
    (found,) = [a for a in report.systems[0].attacks if a.attack == "label_boosting" and a.adversary == "device(0)"]
    return report, found


@pytest.mark.parametrize("factor", [1.0, 2.0])
def test_targets_in_clear_are_all_found(tmp_path, factor):
    report, found = audited(tmp_path, factor=factor)
    assert (found.target, found.success, found.guesses) == ("targets", 1.0, 76)
    assert found.chance < 0.1
    assert report.systems[0].claims[0].verdict is Verdict.UNSUPPORTED
    others = [a for a in report.systems[0].attacks if a.attack != "label_boosting"]
    assert all("classes" in a.not_applicable for a in others)


def test_noise_hides_them(tmp_path):
    """Margin: no target of 76 is read, and seven may be."""
    _, found = audited(tmp_path, noise=30.0)
    assert found.success < 0.1


def test_a_constant_needs_a_few_known_targets(tmp_path):
    _, found = audited(tmp_path, records=4)
    assert found.not_applicable == "needs more than 4 recorded targets"
