"""Plots and tables over all systems, and those of a claim's spending: complete, in words too, and never misleading."""

from __future__ import annotations

import math
from xml.etree import ElementTree as ET

import numpy as np
import pytest

from tests.render.test_plots import words
from tests.rendered import page_of
from tests.report.rows import attack, one_run, spending
from vflpriv.render.document import PAGE, Bullets, Cell, Fold, Table, plain
from vflpriv.render.plots.budgets import _bars, records_plot, rounds_plot
from vflpriv.render.plots.overview import traffic_plot, utility_plot
from vflpriv.render.plots.tradeoff import tradeoff_plot
from vflpriv.render.results.systems import attack_matrix
from vflpriv.report.audit import ClaimRow, Report


@pytest.fixture(scope="module")
def claim(report: Report) -> ClaimRow:
    return report.systems[0].claims[0]


def test_rounds(claim: ClaimRow) -> None:
    plot = rounds_plot(claim)
    assert plot is not None
    assert "rigorous: ε ≤ 39,500 in the end" in words(plot.svg)
    assert "paper’s reading: ε ≤ 2.90 in the end" in words(plot.svg)
    assert "claimed: ε = 1.00" in words(plot.svg)
    assert "ε at δ = 1e-3" in words(plot.svg)
    assert "ε 0.80 after round 374, 2.90 after round 1122" in plot.svg
    assert plot.header == ("Rounds", "Reading", "ε")
    assert plot.rows[-1] == ("1,122", "paper’s reading", "2.9")
    assert rounds_plot(claim.model_copy(update={"spending": ()})) is None
    odd = claim.model_copy(update={"spending": (spending("rigorous", (0.0, math.inf)),)})
    ET.fromstring((rounds_plot(odd) or plot).svg)


def test_records(claim: ClaimRow) -> None:
    plot = records_plot(claim, claim.spending[1])
    assert plot is not None
    assert "1437 records spend between 2.67 and 2.90." in plot.svg
    assert "worst: 2.90" in words(plot.svg)
    assert plot.rows[0] == ("2.668", "2.668", "389")
    assert records_plot(claim, claim.spending[1].model_copy(update={"records": ()})) is None
    for bins in (((0.0, 0.0, 4), (0.0, 0.0, 2)), ((0.0, 1.0, 3), (1.0, 1.0 + 1e-9, 2))):
        some = records_plot(claim, claim.spending[1].model_copy(update={"records": bins}))
        assert some is not None
        assert "nan" not in some.svg


def test_a_histogram_of_one_value_is_a_sentence(report: Report) -> None:
    system = report.systems[0]
    spent = system.claims[0].spending[0].model_copy(update={"records": ((1.5, 1.5, 9),)})
    assert records_plot(system.claims[0], spent) is None
    claims = (system.claims[0].model_copy(update={"spending": (spent,)}),)
    page = page_of(report.model_copy(update={"systems": (system.model_copy(update={"claims": claims}),)}))
    assert "In the rigorous reading each of 9 records spends ε = 1.5 by itself." in page
    assert "device (rigorous): each of 1,437 records takes part 281 times" in page


def test_bars_that_would_cover_each_other_are_added_up() -> None:
    places, numbers = np.array([1.0, 1.0 + 1e-6, 2.0]), np.array([5.0, 7.0, 1.0])
    where, heights, width = _bars(places, numbers)
    assert (heights[0], heights.sum()) == (12.0, 13.0)
    assert np.diff(where).min() > width
    where, heights, _ = _bars(places[[0, 2]], numbers[[0, 2]])
    assert heights.tolist() == [5.0, 1.0]


def test_one_run_is_a_measurement(claim: ClaimRow) -> None:
    once = claim.model_copy(update={"measurements": (one_run(0.62),)})
    plot = tradeoff_plot(once)
    assert "not measured" not in plot.svg
    assert "one run shows μ at least 0.620" in plot.svg
    assert "measured, one run: μ ≥ 0.620 (95 % confidence)" in words(plot.svg)
    assert plot.header[-1] == "At most, by one run: false-negative rate"
    assert "not measured" in tradeoff_plot(once.model_copy(update={"measurements": ()})).svg


def test_the_trade_off_in_figures(claim: ClaimRow) -> None:
    plot = tradeoff_plot(claim)
    assert len(plot.header) == len(plot.rows[0]) == 4
    rates = [[float(text.removesuffix(" %")) for text in row] for row in plot.rows]
    assert all(row[1] >= row[2] >= row[3] for row in rates)
    assert rates == sorted(rates)


def test_privacy_against_utility(report: Report) -> None:
    plot = utility_plot(report)
    assert plot is not None
    assert "accounted ε (record, seen by device)" in words(plot.svg)
    assert "dpzv: ε ≤ 39,500, violated" in words(plot.svg)
    assert [row[:2] for row in plot.rows] == [("dpzv", "39,500"), ("joint", "1.00")]
    alone = report.model_copy(update={"systems": report.systems[2:]})
    labels = utility_plot(alone)
    assert labels is not None
    assert labels.rows[0][:2] == ("split", "∞")
    assert "∞" in words(labels.svg)
    untrained = tuple(s.model_copy(update={"utility": None}) for s in report.systems)
    assert utility_plot(report.model_copy(update={"systems": untrained})) is None


def test_systems_at_the_same_place_do_not_cover_each_other(report: Report) -> None:
    third = report.systems[2]
    same = tuple(third.model_copy(update={"key": f"s{i}"}) for i in range(4))
    plot = utility_plot(report.model_copy(update={"systems": same}))
    assert plot is not None
    numbers = [t for t in ET.fromstring(plot.svg).iter("{http://www.w3.org/2000/svg}text") if t.text in set("1234")]
    assert len({t.get("x") for t in numbers}) == 4


def test_communication(report: Report) -> None:
    plot = traffic_plot(report)
    assert plot is not None
    assert plot.rows[0] == ("dpzv", "1,122", "576.0 MB", "9.0 kB", "574.5 kB", "576.6 MB", "513.9 kB")
    assert "split 15.1 MB per round" in plot.svg
    assert len(plot.rows) == 2
    silent = tuple(s.model_copy(update={"traffic": None}) for s in report.systems)
    assert traffic_plot(report.model_copy(update={"systems": silent})) is None


def matrix(report: Report) -> tuple[list[str], dict[str, list[Cell]], list[str]]:
    """The attacks, the cells of each system, and the reasons why some attacks do not apply."""
    blocks = list(attack_matrix(report))
    table = next(block for block in blocks if isinstance(block, Table))
    columns, rows = table.shown(PAGE)
    folds = [block.blocks[0] for block in blocks if isinstance(block, Fold)]
    reasons = [plain(item) for block in folds if isinstance(block, Bullets) for item in block.items]
    return [column.title for column in columns[2:]], {plain(row[0].text): row[2:] for row in rows}, reasons


def test_the_matrix_has_colours_and_reasons(report: Report) -> None:
    attacks, cells, reasons = matrix(report)
    assert attacks == ["label_zo", "label_gradient"]
    assert [plain(c.text) for c in cells["dpzv"]] == ["+1.6", "n/a"]
    assert cells["dpzv"][0].tone == "leak0"
    assert cells["split"][1].tone == "leak4"
    assert reasons == ["needs gradients, dpzv sends one scalar", "not tried on this system"]
    page = page_of(report)
    assert "<td class=leak4>+90.0" in page
    assert '<a href=#why-2 aria-label="why: reason 2">2</a>' in page
    assert "<li id=why-1>needs gradients, dpzv sends one scalar<li" in page
    assert list(attack_matrix(report.model_copy(update={"systems": ()}))) == []


def test_the_view_that_gains_most_stands_for_an_attack(report: Report) -> None:
    both = (attack("label_zo", "device(0)", 0.2, 0.1), attack("label_zo", "eavesdropper", 0.6, 0.1))
    system = report.systems[0].model_copy(update={"attacks": both})
    _, cells, _ = matrix(report.model_copy(update={"systems": (system,)}))
    (best,) = cells["dpzv"]
    assert (best.detail, best.tone) == (("60.0 %, eavesdropper",), "leak3")


def test_views_with_the_same_reason_share_a_row(report: Report) -> None:
    twice = tuple(attack("label_dual", view, None, None, "needs duals") for view in ("device(0)", "eavesdropper"))
    system = report.systems[0].model_copy(update={"attacks": twice})
    page = page_of(report.model_copy(update={"systems": (system,)}))
    assert "label_dual, seen by device(0), eavesdropper: needs duals" in page
