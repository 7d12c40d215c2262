"""Plots: valid SVG, the same bytes each time, legible on any background, safe with any name."""

from __future__ import annotations

import math
import re
from xml.etree import ElementTree as ET

import pytest

from tests.rendered import page_of
from tests.report.examples import whole
from vflpriv.render.plots.budgets import participation_plot
from vflpriv.render.plots.chart import alone, decades, shares
from vflpriv.render.plots.tradeoff import tradeoff_svg
from vflpriv.report.audit import ClaimRow, Report

SVG = "{http://www.w3.org/2000/svg}"


def words(svg: str) -> str:
    return " ".join("".join(text.itertext()) for text in ET.fromstring(svg).iter(f"{SVG}text"))


@pytest.fixture(scope="module")
def violated(report: Report) -> ClaimRow:
    return report.systems[0].claims[0]


def test_the_legend_has_all_numbers(violated: ClaimRow) -> None:
    shown = words(tradeoff_svg(violated))
    for label in (
        "blind guessing",
        "claimed μ=0.388 (ε=1.00 at δ=1e-3)",
        "below the claimed curve: refutes the claim",
        "accounted, paper’s reading: ε ≤ 2.90 (μ=0.939)",
        "accounted, rigorous: ε ≤ 39,500 (μ=278.0)",
        "measured, worst-case: μ ≥ 0.750 (95 % confidence)",
        "false-positive rate",
        "false-negative rate",
    ):
        assert label in shown


def test_same_claim_same_bytes_and_no_date(violated: ClaimRow) -> None:
    svg = tradeoff_svg(violated)
    assert svg == tradeoff_svg(violated)
    assert "<metadata" not in svg
    assert "<style" not in svg
    assert not re.search(r"20\d\d-\d\d", svg)


def test_a_title_for_those_who_cannot_see_it(violated: ClaimRow) -> None:
    root = ET.fromstring(tradeoff_svg(violated))
    assert root.get("role") == "img"
    assert "worst-case canary’s test has 32.8 %" in (root.get("aria-label") or "")
    assert root.findtext(f"{SVG}title") == "Trade-off curve of claim dpzv-vi5-device"


def test_colours_follow_the_page(violated: ClaimRow) -> None:
    svg = tradeoff_svg(violated)
    page = page_of(whole())
    assert 'class="line claimed"' in svg
    assert "fill: currentColor" in page
    assert ".chart .claimed { --plot: var(--plot-claimed); }" in page
    assert "--plot-claimed: #0072b2;" in page
    assert "#010203" not in svg
    assert not re.search(r"fill: #(fff|ffffff|000|000000)\b", svg)


def test_it_has_no_ids(violated: ClaimRow) -> None:
    """A page holds several plots, and ids are unique on a page."""
    assert " id=" not in tradeoff_svg(violated)


def test_budgets_that_are_infinite_or_have_no_mu(violated: ClaimRow, report: Report) -> None:
    assert "rigorous: ε ≤ ∞" in words(tradeoff_svg(report.systems[0].claims[2]))
    for bound in (3.0, 1e6, math.inf):
        lines = violated.accounted.model_copy(update={"mu": None, "epsilon_upper": bound})
        svg = tradeoff_svg(violated.model_copy(update={"accounted": lines, "mu": math.inf, "epsilon": math.inf}))
        assert "nan" not in svg
        assert "claimed μ=∞" in words(svg)
    assert "accounted" not in words(tradeoff_svg(report.systems[1].claims[1]))


def test_names_are_never_markup(hostile: Report) -> None:
    claim = hostile.systems[0].claims[0]
    svg = tradeoff_svg(claim)
    assert "<script" not in svg
    assert "script" in words(svg)
    named = claim.measurements[0].model_copy(update={"subject": "自然", "curve": ()})
    ET.fromstring(tradeoff_svg(claim.model_copy(update={"measurements": (claim.measurements[0], named)})))


def test_participations(violated: ClaimRow) -> None:
    assert violated.paper_reading is not None
    plot = participation_plot([violated.paper_reading])
    assert "1437 records take part between 11 and 13 times." in plot.svg
    assert "participations" in words(plot.svg)
    assert plot.rows == [("11", "11", "389"), ("12", "12", "802"), ("13", "13", "246")]
    many = violated.accounted.model_copy(update={"participation_histogram": dict.fromkeys(range(0, 100_000, 7), 1)})
    wide = participation_plot([many])
    assert len(wide.svg) < 30_000
    assert sum(int(row[2].replace(",", "")) for row in wide.rows) == len(range(0, 100_000, 7))


@pytest.mark.parametrize("limits", [(0.72, 0.92), (0.969, 0.976), (0.0, 1.0)])
def test_shares_on_an_axis_stand_where_they_say(limits: tuple[float, float]) -> None:
    axis = shares(*limits, "accuracy")
    labels = [axis.text(tick) for tick in axis.ticks]
    assert len(labels) >= 3
    assert [float(label.removesuffix(" %")) for label in labels] == pytest.approx([100 * t for t in axis.ticks])


@pytest.mark.parametrize(("low", "high"), [(0.5, 8.0), (1e-12, 0.5), (10.0, 10.0), (3.0, 3e9)])
def test_a_logarithmic_axis_holds_what_it_is_of(low: float, high: float) -> None:
    axis = decades(low, high, "ε")
    assert axis.low <= low <= high <= axis.high
    assert 2 <= len(axis.ticks) <= 6
    assert [float(axis.text(tick)) for tick in axis.ticks] == pytest.approx(axis.ticks)


def test_a_picture_as_a_file_has_its_colours_in_itself(violated: ClaimRow) -> None:
    svg = alone(tradeoff_svg(violated))
    (style,) = ET.fromstring(svg).iter(f"{SVG}style")
    assert ".line.claimed{fill:none;stroke:#0072b2}" in (style.text or "")
    assert "background:#fff" in (style.text or "")
