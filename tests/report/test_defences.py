"""Which defences are dominated, which one to take, and what is said where none helps."""

from __future__ import annotations

import pytest

from tests.report.attack_report import attack_report
from tests.report.defended import report_of
from vflpriv.report.defences import defence_capabilities, defence_frontiers

PLAIN = {"none": (0.94, 0.9)}


def only(report):
    [frontier] = defence_frontiers(report)
    return frontier


def test_a_point_is_the_best_attack_on_labels_and_the_test_accuracy():
    point = only(report_of({**PLAIN, "rr": (0.91, 0.12, 1.0)})).points[1]
    assert (point.defence, point.attack, point.adversary) == ("rr", "label_batch", "device(0)")
    assert (point.accuracy, point.accuracy_low, point.accuracy_high) == (0.91, 0.89, pytest.approx(0.93))
    assert (point.leakage, point.high, point.epsilon) == (0.12, pytest.approx(0.12 + 0.02776), 1.0)


def test_an_epsilon_that_allows_everything_is_not_shown():
    points = only(report_of({**PLAIN, "rr": (0.91, 0.12, 8.0), "noise": (0.9, 0.3, 2e5)})).points
    assert [p.epsilon for p in points] == [None, 8.0, None]


def test_the_capability_score_is_that_of_vflair():
    """1/(1 + √(AP²/2 + lost²/2)): accuracy that is gained counts for nothing, and so does the reason of a refusal."""
    report = report_of({**PLAIN, "rr": (0.90, 0.12, 1.0), "better": (0.97, 0.3)})
    alone = report.model_copy(update={"cells": tuple(c for c in report.cells if c.attack == "label_batch")})
    scores = defence_capabilities(alone)
    assert set(scores) == {("split", "none"), ("split", "rr"), ("split", "better")}
    for defence, lost in (("none", 0.0), ("rr", 0.04), ("better", 0.0)):
        success = max(c.success for c in alone.cells if c.defence == defence and c.success is not None)
        assert scores["split", defence] == pytest.approx(1 / (1 + (success**2 / 2 + lost**2 / 2) ** 0.5))
    assert defence_capabilities(report)["split", "none"] > scores["split", "none"], "the mean over all attacks"


def test_a_point_is_dominated_by_one_that_is_as_good_in_both_and_better_in_one():
    variants = {**PLAIN, "worse": (0.90, 0.9), "better": (0.92, 0.3), "strong": (0.80, 0.1), "weak": (0.92, 0.31)}
    frontier = only(report_of(variants))
    assert {p.defence for p in frontier.points if p.dominated} == {"worse", "weak"}
    assert [p.defence for p in frontier.named] == ["none", "better", "strong"]


def test_equal_points_and_leakage_below_zero_do_not_dominate():
    frontier = only(report_of({**PLAIN, "a": (0.9, -0.05), "b": (0.9, -0.01), "c": (0.9, 0.0)}))
    assert not any(p.dominated for p in frontier.points)


def test_the_advice_is_the_least_leakage_that_is_affordable_and_names_what_it_costs():
    variants = {**PLAIN, "cheap": (0.93, 0.5), "good": (0.9, 0.12, 1.4), "dear": (0.6, 0.0)}
    frontier = only(report_of(variants))
    assert frontier.advised is not None
    assert frontier.advice == (
        "Take good, label ε ≤ 1.40: the best attack’s leakage goes from +90.0 to +12.0 points (+9.2 to +14.8), "
        "test accuracy from 94.0 % to 90.0 % (88.0 – 92.0 %)."
    )
    cheap = only(report_of(variants, loss=0.02))
    assert cheap.advice.startswith("Take cheap, though most of the leak is left: ")
    assert only(report_of(variants, loss=0.5)).advised.defence == "dear"


def test_a_defence_that_may_not_help_is_not_taken():
    assert only(report_of({**PLAIN, "unsure": (0.94, 0.86)}, error=0.01)).advised is None
    frontier = only(report_of({**PLAIN, "unsure": (0.94, 0.5)}, error=0.2))
    assert frontier.advised is None
    assert frontier.advice.startswith("No defence tried is sure to lower the leakage of +90.0 points")
    assert frontier.advice.endswith("or at any cost.")


def test_a_defence_that_costs_too_much_is_named_with_its_cost():
    frontier = only(report_of({**PLAIN, "dear": (0.6, 0.0, 0.5)}))
    assert frontier.advised is None
    assert frontier.advice == (
        "No defence tried is sure to lower the leakage of +90.0 points (+87.2 to +92.8) for at most 5 points of test "
        "accuracy; dear, label ε ≤ 0.50 lowers it to +0.0 points (-2.8 to +2.8), at an accuracy of 60.0 % instead of "
        "94.0 %."
    )


def test_without_a_sure_leak_no_defence_is_needed():
    frontier = only(report_of({"none": (0.94, 0.02), "rr": (0.93, -0.3)}))
    assert frontier.advised is None
    assert frontier.advice.startswith("No defence is needed against the attacks tried")


def test_systems_without_a_defence_or_without_an_attack_have_no_frontier():
    assert defence_frontiers(report_of(PLAIN)) == ()
    assert [f.system for f in defence_frontiers(attack_report())] == ["split"]
