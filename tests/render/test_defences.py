"""The picture of privacy against utility, and its sentence in every format."""

from __future__ import annotations

import io
import re

from rich.console import Console

from tests.rendered import markdown_of, page_of
from tests.report.defended import report_of
from vflpriv.render.plots.defences import defence_plot
from vflpriv.render.terminal import print_result
from vflpriv.report.defences import defence_frontiers

VARIANTS = {
    "none": (0.94, 0.9),
    "good": (0.93, 0.2, 1.4),
    "near": (0.932, 0.201),
    "grey": (0.8, 0.5),
    "worse": (0.7, 0.6),
}
REPORT = report_of(VARIANTS)
[FRONTIER] = defence_frontiers(REPORT)


def marks(picture: str, colour: str) -> int:
    """Marks of this colour; lines have another class."""
    return len(re.findall(rf'<path transform="[^"]*" class="{colour}"', picture))


def test_dominated_points_are_grey_and_the_others_numbered():
    picture = defence_plot(FRONTIER).svg
    assert [marks(picture, colour) for colour in ("natural", "worst-case", "crafted", "claimed")] == [2, 1, 1, 1]
    assert "leakage of the best attack, points" in picture
    assert "test accuracy" in picture
    texts = re.findall(r"<text[^>]*>([^<]*)</text>", picture)
    assert "2 3" in texts
    assert "1" in texts


def test_it_says_what_it_shows():
    plot = defence_plot(FRONTIER)
    label = re.search(r'aria-label="([^"]*)"', plot.svg)
    assert label is not None
    assert "good leaks +20.0 points at an accuracy of 93.0 %" in label[1]
    assert "2 of 5 defences are dominated" in label[1]
    assert plot.caption == FRONTIER.advice
    assert len(plot.rows) == len(VARIANTS)
    assert plot.rows[-1][-1] == "yes"


def test_every_format_has_the_sentence():
    out = io.StringIO()
    print_result(REPORT, Console(file=out, width=400))
    page = page_of(REPORT)
    for text in (out.getvalue(), page, markdown_of(REPORT)):
        assert FRONTIER.advice in text
    assert page.count("<div class=frontier>") == 1
    assert "<span class=whole>ε ≤ 1.40</span><li>" in page or "<span class=whole>ε ≤ 1.40</span></ol>" in page


def test_without_defences_there_is_no_section():
    report = report_of({"none": (0.94, 0.9)})
    assert "Which defence" not in page_of(report) + markdown_of(report)
