"""Every format says how many trials were trained and how many replay a release path, or why none does."""

from __future__ import annotations

import html
import io
import re
from typing import Any

import pytest
from rich.console import Console

from tests.rendered import markdown_of, page_of
from tests.report.rows import measured
from vflpriv.render.shared import trial_sentences
from vflpriv.render.statement import statement
from vflpriv.render.terminal import print_result
from vflpriv.report.audit import Report

REPLAYED = (
    "Worst-case canary: of 2 × 400 trials, 2 × 128 were trained in full, the others replay the release path; the "
    "2 × 128 have the same scores both ways"
)
REFUSED = "Worst-case canary: all 2 × 400 trials were trained in full, since noise cannot be drawn again"


def with_trials(report: Report, **fields: Any) -> Report:
    """The report whose first claim has one worst-case measurement with these fields."""
    system = report.systems[0]
    row = measured("worst-case", 0.75, (131, 128), **fields)
    claim = system.claims[0].model_copy(update={"measurements": (row,)})
    changed = system.model_copy(update={"claims": (claim, *system.claims[1:])})
    return report.model_copy(update={"systems": (changed, *report.systems[1:])})


def terminal(report: Report) -> str:
    console = Console(file=io.StringIO(), width=400, _environ={})
    print_result(report, console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [({"notes": (REPLAYED,)}, REPLAYED), ({"notes": (REFUSED,)}, REFUSED)],
)
def test_every_format_says_how_trials_were_made(report: Report, fields: dict[str, Any], sentence: str) -> None:
    changed = with_trials(report, **fields)
    page = html.unescape(re.sub(r"\s+", " ", page_of(changed)))
    for text in (terminal(changed), markdown_of(changed).replace("\\", ""), page):
        assert f"{sentence}." in text


def test_nothing_is_said_where_all_trials_were_to_be_trained(report: Report) -> None:
    assert not [s for s in trial_sentences(with_trials(report).systems[0].claims[0]) if "trained in full" in s]


def test_the_statement_counts_trainings_and_replays(report: Report) -> None:
    effort = (
        "worst-case canary, likelihood ratio: 128 trainings and 272 replays of their releases in each of two worlds"
    )
    changed = with_trials(report, effort=effort)
    system = changed.systems[0]
    lines = dict(statement(changed, system, system.claims[0]))["Attacks and trials"]
    assert lines[0] == effort
