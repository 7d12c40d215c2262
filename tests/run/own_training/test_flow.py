"""Training functions are followed operation by operation: exact figures of the two worlds, and lines of the user's."""

from __future__ import annotations

import pytest

from tests.run.own_training.support import audited, claim
from tests.run.own_training.systems import ROUNDS, STD
from vflpriv.core.claims import Verdict

pytestmark = pytest.mark.usefixtures("few_trees")


def flow(report, key="labels"):
    return next(f for f in report.systems[0].evidence.findings if f.audit == "flow" and f.claim == key)


def flows(tmp_path, name):
    return flow(audited(tmp_path, name, count=0))


@pytest.mark.parametrize(("name", "std"), [("sound", STD), ("tenth", STD / 10)])
def test_the_figure_is_that_of_the_noise(tmp_path, name, std):
    finding = flows(tmp_path, name)
    assert finding.figures.mu == pytest.approx(ROUNDS**0.5 / std, rel=1e-5)
    assert finding.figures.exact
    assert finding.verdict is (Verdict.VIOLATED if name == "tenth" else Verdict.CONSISTENT)


def test_a_label_without_noise_is_named_with_its_line(tmp_path):
    finding = flows(tmp_path, "in_clear")
    assert finding.verdict is Verdict.VIOLATED
    assert finding.sentence.startswith("systems.py:29: answer is sent without noise")


@pytest.mark.parametrize("name", ["low_bit", "branching"])
def test_what_torch_does_not_show_is_not_called_consistent(tmp_path, name):
    assert flows(tmp_path, name).verdict is not Verdict.CONSISTENT


def test_functions_that_hand_nothing_over_are_followed_by_their_world(tmp_path):
    assert flows(tmp_path, "untold").verdict is Verdict.CONSISTENT


def test_noise_of_global_generators_is_followed_in_either_library(tmp_path):
    finding = flows(tmp_path, "global_noise")
    assert finding.verdict is Verdict.CONSISTENT
    assert finding.figures.mu == pytest.approx((ROUNDS / 2) ** 0.5 / STD, rel=1e-5)


def test_worlds_of_labels_say_nothing_of_features(tmp_path):
    report = audited(tmp_path, "sound", count=0, claim=[claim("features", unit="features"), claim("labels")])
    assert flow(report, "features").figures is None
    assert flow(report, "labels").verdict is Verdict.CONSISTENT


def test_functions_without_torch_are_left_to_trials(tmp_path):
    finding = flows(tmp_path, "of_arrays")
    assert finding.verdict is Verdict.NOT_APPLICABLE
    assert "no tensors of torch" in finding.sentence
