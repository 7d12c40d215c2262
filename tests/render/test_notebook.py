"""Results as a notebook shows them: the verdict and its numbers, every name as text."""

from __future__ import annotations

import html
from html.parser import HTMLParser

from tests.report.conftest import HOSTILE, attack, build, dpzv
from vflpriv.report.audit import Report


class Page(HTMLParser):
    """Tags and texts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        assert not {name for name, _ in attrs} - {"class", "scope"}

    def handle_data(self, data):
        self.text += data


KNOWN = {"div", "style", "table", "thead", "tbody", "tr", "th", "td"}


def test_a_report_shows_itself():
    report = build(dpzv())
    assert repr(report) == str(report) == f"<Report: {report.headline}; exit code 1>"
    page, text = Page(report._repr_html_()), report._repr_markdown_()
    assert set(page.tags) == KNOWN
    for claim in report.claims:
        assert claim.key in page.text
        assert claim.key in text
    assert "2 of 3 claims are violated" in page.text
    assert "0.750" in page.text
    assert Report.model_validate(report.to_dict()) == report
    claim = report.claims[0]
    assert repr(claim) == "<ClaimRow: dpzv-vi5-device, seen by device: violated>"
    assert claim.reason in Page(claim._repr_html_()).text
    lone = build(dpzv().model_copy(update={"claims": (), "checks": ()}))
    assert "No claim to check" in lone._repr_html_()
    assert "label_zo" in lone._repr_html_()


def test_hostile_names_stay_text(hostile):
    attacked = dpzv().model_copy(update={"claims": (), "attacks": (attack(HOSTILE, HOSTILE, 0.5, 0.1),), "key": "k"})
    for shown in (hostile, hostile.claims[0], build(attacked)):
        page = Page(shown._repr_html_())
        assert set(page.tags) <= KNOWN
        assert html.escape("<script>") not in page.text
        for line in shown._repr_markdown_().split("\n"):
            assert "<script" not in line
            assert not line.startswith("#")
        assert "\x1b" not in repr(shown)
