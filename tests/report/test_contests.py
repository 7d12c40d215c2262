"""Static and adaptive attacks side by side: who is compared, which defence is marked, and that old files are read."""

from __future__ import annotations

import json
from io import StringIO

import pytest
from rich.console import Console

from tests.rendered import markdown_of, page_of, summary_of
from tests.report.attack_report import attack_report, cell, member
from vflpriv.render.terminal import print_result
from vflpriv.report.attacks import ONLY_STATIC, AttackReport, TrainedRow, contests_of


def contest(static: float, adaptive: float, *, before: float = 0.6, error: float = 0.01):
    """The contest of a defence that leaves static and adaptive attacks so much of what the former had before."""
    cells = [
        cell("label_direct", before),
        cell("label_direct", static, defence="laplace", error=error),
        cell("label_norm", static - 0.2, defence="laplace", error=error),
        cell("label_rounds", adaptive, defence="laplace", error=error, adaptive=True),
        cell("label_rounds", adaptive - 0.1, defence="laplace", error=error, adaptive=True, adversary="eavesdropper"),
    ]
    (found,) = contests_of(cells)
    return found


def test_the_best_attack_of_each_kind_is_compared():
    found = contest(0.2, 0.5)
    assert (found.static.attack, found.adaptive.adversary) == ("label_direct", "device(0)")
    assert found.undefended.leakage == 0.6


@pytest.mark.parametrize(
    ("static", "adaptive", "marked"),
    [
        (0.0, 0.5, True),  # nothing is left to static attacks
        (0.2, 0.5, True),  # less than half of 0.6
        (0.4, 0.6, False),  # static attacks are not stopped
        (0.2, 0.21, False),  # the intervals overlap
        (-0.1, 0.0, False),  # nothing is left to anybody
        (0.5, 0.1, False),
    ],
)
def test_a_defence_is_marked_where_it_stops_static_attacks_alone(static, adaptive, marked):
    assert contest(static, adaptive).only_static is marked


def test_wide_intervals_mark_nothing():
    assert not contest(0.0, 0.5, error=0.2).only_static


def test_measures_are_not_mixed_and_without_adaptive_attacks_there_is_no_contest():
    features = [member(), member(attack="feature_inversion_white", measure="R²", adaptive=True)]
    (found,) = contests_of(features)
    assert found.static is None
    assert not found.only_static
    assert contests_of([member()]) == ()


def with_contest() -> AttackReport:
    plain = attack_report()
    row = TrainedRow(system="split", title="split", engine="split", defence="laplace", settings={}, accuracy=0.9)
    fought = (
        cell("label_norm", 0.0, defence="laplace"),
        cell("label_rounds", 0.5, defence="laplace", adaptive=True),
    )
    return plain.model_copy(update={"trained": (*plain.trained, row), "cells": (*plain.cells, *fought)})


def test_every_format_shows_both_and_the_mark_with_its_legend():
    report = with_contest()
    console = Console(width=160, record=True, file=StringIO())
    print_result(report, console)
    texts = [console.export_text(), markdown_of(report), page_of(report), summary_of(report)]
    for text in (" ".join(t.split()) for t in texts):
        assert "+50.0 (label" in text
        assert "+0.0 (label" in text
        assert ONLY_STATIC.removeprefix("† ") in text
    assert "label\\_rounds (adaptive)" in texts[1] or "label_rounds (adaptive)" in texts[1]


def test_without_adaptive_attacks_nothing_is_added():
    assert "know the defence" not in markdown_of(attack_report())


def test_a_file_of_before_is_read():
    old = json.loads(attack_report().to_json())
    for c in (*old["cells"], *old["features"]):
        del c["adaptive"]
    assert not any(c.adaptive for c in AttackReport.model_validate(old).cells)
