"""Markdown: tables that stay tables whatever the names, and a size that CI accepts."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from tests.rendered import markdown_of
from vflpriv.render.markdown import LIMIT, escape
from vflpriv.report.audit import Report


def cells(row: str) -> int:
    """How many cells a reader of Markdown sees."""
    return len(re.findall(r"(?<!\\)(?:\\\\)*\|", row)) - 1


def tables(text: str) -> list[list[str]]:
    blocks = (block.split("\n") for block in text.split("\n\n"))
    return [block for block in blocks if block[0].startswith("|")]


def test_headline_and_claims_come_first(report: Report) -> None:
    lines = markdown_of(report).split("\n")
    assert lines[0] == "# 2 of 5 claims are violated"
    assert lines[2].startswith("**split: label\\_")
    assert lines[2].endswith("100.0 % of the labels right, 10.0 % without the protocol**")
    assert lines[8] == (
        "| ❌ **violated** | dpzv | “The whole training is μ-GDP when σ = 2C√T/(Dμ).” (dpzv-journal, Theorem VI.5) "
        "| device | record | ε = 1.00 (μ = 0.388) | no useful bound (ε ≤ 39,500); as in the paper ε ≤ 2.90 "
        "| μ ≥ 0.750 (ε ≥ 0.35) | 1e-3 |"
    )


def test_every_section_is_there(report: Report) -> None:
    text = markdown_of(report)
    for expected in (
        "| worst-case | likelihood ratio | 400 | 32.8 % | 32.0 % | 0.35 | 2.21 | 0.750 | – | 80 % | 1.6e-8 | **yes** |",
        "| label\\_gradient | device(0) | labels | 100.0 % | 98.4 – 100.0 % | 10.0 % | – |",
        "seen by device(0): needs gradients, dpzv sends one scalar",
        "| sensitivity | scalar, clip = paper | record | min\\{δ, C\\} has no lower bound: δ = −1e6 passes |",
        "```sh\nvflpriv replay witnesses/dpzv-scalar-record-published.json\n```",
        "| ∞ (1e-3) | – | secret | – | model (the server's parameters) carries no noise |",
        "- timing of messages",
        "```sh\nvflpriv audit dpzv.toml --claim dpzv-vi5-device --seed 7\n```",
        "Not refuted is never verified.",
    ):
        assert expected in text


def test_rows_have_as_many_cells_as_their_header(report: Report, hostile: Report) -> None:
    for one in (report, hostile):
        found = tables(markdown_of(one))
        assert len(found) >= 5
        for rows in found:
            assert {cells(row) for row in rows} == {cells(rows[0])}


def test_hostile_names_stay_names(hostile: Report) -> None:
    text = markdown_of(hostile)
    fences = re.findall(r"^(`{3,})sh\n.*\n\1$", text, flags=re.MULTILINE)
    assert fences
    outside = re.sub(r"^(`{3,})sh\n.*\n\1$", "", text, flags=re.MULTILINE)
    assert "<script" not in outside
    assert "http://" not in outside
    assert "[x](" not in outside
    assert "\x1b" not in text


def test_a_command_cannot_close_its_fence(report: Report) -> None:
    system = report.systems[0]
    claim = system.claims[0].model_copy(update={"reproduce": "echo ```` x"})
    text = markdown_of(report.model_copy(update={"systems": (system.model_copy(update={"claims": (claim,)}),)}))
    assert "\n`````sh\necho ```` x\n`````\n" in text


@given(st.text())
def test_escaped_text_is_one_cell(text: str) -> None:
    line = escape(text)
    assert "\n" not in line
    assert "<" not in line
    assert cells(f"| {line} |") == 1


def test_a_long_report_is_cut_and_says_so(report: Report) -> None:
    many = report.model_copy(update={"systems": report.systems * 150})
    text = markdown_of(many)
    assert LIMIT // 2 < len(text.encode()) <= LIMIT
    assert text.endswith("`report.json` has all of it.\n")
    assert text.startswith("# 300 of 750 claims are violated")
    assert text.count("<details>") == text.count("</details>")


def test_same_report_same_text(report: Report) -> None:
    assert markdown_of(Report.model_validate_json(report.to_json())) == markdown_of(report)


def test_a_claim_that_holds_shows_its_three_numbers_and_how_sure_they_are(report: Report) -> None:
    system = next(system for system in report.systems if any(c.verdict == "consistent" for c in system.claims))
    claim = next(claim for claim in system.claims if claim.verdict == "consistent")
    one = report.model_copy(update={"systems": (system.model_copy(update={"claims": (claim,)}),)})
    second = markdown_of(one).split("\n\n")[1]
    assert second.startswith("ε claimed ")
    assert ", accounted " in second
    assert second.endswith(f"of {len(system.attacks)} attacks applied")
    assert ("would pass with" in second) == (claim.deciding is not None and claim.deciding.power is not None)
