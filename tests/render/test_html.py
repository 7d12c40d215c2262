"""The page: complete, self-contained, well-formed, safe with any name, legible in both colour schemes."""

from __future__ import annotations

import base64
import hashlib
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

import vflpriv
from tests.browser.pages import attacks_page
from tests.rendered import page_of
from vflpriv.render.plots.chart import COLOURS
from vflpriv.report.audit import Report, Staleness

VOID = {"meta", "br", "link", "img", "hr", "input", "wbr"}
CELLS = {"td", "th", "tr", "tbody"}
ENDED_BY = {"dt": {"dt", "dd"}, "dd": {"dt", "dd"}, "li": {"li"}, "td": CELLS, "th": CELLS} | {
    "tr": {"tr", "tbody"},
    "thead": {"tbody"},
    "tbody": set(),
}
"""Elements that need no end tag, each with those that may follow it; the end of what they are in ends them, too."""
XMLNS = ("http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink")


class Page(HTMLParser):
    """Fails on an element that is not closed where it should be; keeps what the tests look at."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        while self.open and tag in ENDED_BY.get(self.open[-1], ()):
            self.open.pop()
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        while self.open and self.open[-1] in ENDED_BY and self.open[-1] != tag:
            self.open.pop()
        assert self.open.pop() == tag, f"</{tag}> at {self.getpos()}"

    def handle_data(self, data: str) -> None:
        if not {"style", "script"} & set(self.open):
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attrs for name, attrs in self.tags if name == tag]


@pytest.fixture(scope="module")
def page(report: Report) -> str:
    return page_of(report)


def test_the_numbers_are_there(page: str) -> None:
    text = Page(page).text
    for expected in (
        "2 of 5 claims are violated",
        "5 claims checked: 1 consistent, 2 violated, 1 unsupported, 1 not applicable",
        "39,500",
        "0.939",
        "6.71",
        "no useful bound",
        "What any one device can see tells one record apart more surely than claimed: μ ≥ 0.750 was measured.",
        "Taken on trust",
        "Residual risk",
        "Sign-off",
        "95 % confidence",
        "worst record takes part 13 times",
        "∞ because model (the server's parameters) carries no noise",
        "label_gradient, seen by device(0): needs gradients, dpzv sends one scalar",
        "not applicable: the server holds the labels",
        "label_gradient (device(0)) gets 100.0 % of the labels right, 10.0 % without the protocol",
        "vflpriv audit dpzv.toml --claim dpzv-vi5-device --seed 7",
        "Not refuted is never verified.",
        "timing of messages",
        "576.0 MB up",
        "1.6e-8",
    ):
        assert expected in text


_ADDRESSES = ("href", "src", "xlink:href")


def test_nothing_is_fetched_and_only_our_script_runs(page: str, hostile: Report) -> None:
    for text in (page, page_of(hostile)):
        parsed = Page(text)
        assert not {"link", "iframe", "object", "base", "form"} & {tag for tag, _ in parsed.tags}
        assert all(attrs["src"].startswith("data:image/png;base64,") for attrs in parsed.all("img"))
        (script,) = re.findall(r"<script>(.*?)</script>", text, flags=re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        assert f"script-src 'sha256-{digest}'\">" in text
        assert parsed.all("script") == [{}]
        for _, attrs in parsed.tags:
            assert not any(name.startswith("on") for name in attrs)
            assert all((attrs.get(name) or "#").startswith(("#", "data:image/png")) for name in _ADDRESSES)
        assert "url(" not in re.sub(r"url\(#[\w-]+\)", "", text)
        assert "@import" not in text
        assert "default-src 'none'" in text


def test_no_address_but_the_names_of_svg(page: str) -> None:
    for name in XMLNS:
        page = page.replace(name, "")
    assert "http://" not in page
    assert "https://" not in page


def test_names_are_escaped(hostile: Report) -> None:
    text = page_of(hostile)
    assert text.count("<script") == 1
    assert "&lt;script&gt;" in text
    assert "\x1b" not in text
    Page(text)


def test_same_report_same_page(report: Report, page: str) -> None:
    assert page_of(report) == page
    assert page_of(Report.model_validate_json(report.to_json())) == page


def test_ids_are_unique_and_links_lead_somewhere(page: str) -> None:
    parsed = Page(page)
    ids = [attrs["id"] for _, attrs in parsed.tags if "id" in attrs]
    assert len(ids) == len(set(ids))
    named = {attrs[key] for _, attrs in parsed.tags for key in ("aria-labelledby",) if key in attrs}
    assert named <= set(ids)
    assert {(attrs.get("href") or "")[1:] for attrs in parsed.all("a")} <= set(ids)


def test_the_page_of_attacks_is_whole_too() -> None:
    page = attacks_page()
    test_ids_are_unique_and_links_lead_somewhere(page)
    parsed = Page(page)
    assert len(parsed.all("caption")) == len(parsed.all("table")) == 7
    assert "leakage>0.05: label_direct on split, defence none" in parsed.text
    assert "label_direct : needs gradients, dpzv sends one scalar (dpzv)" in parsed.text
    assert [(attrs["src"] or "")[:22] for attrs in parsed.all("img")] == 3 * ["data:image/png;base64,"]


def test_tables_and_plots_speak(page: str) -> None:
    parsed = Page(page)
    assert len(parsed.all("caption")) == len(parsed.all("table")) > 8
    # What heads a column or a row is plain by its place, and needs no scope.
    for head, body in re.findall(r"<thead>(.*?)<tbody>(.*?)</table>", page, flags=re.DOTALL):
        assert "<td" not in head
        assert all(row.startswith(("<th", "<td colspan=")) for row in re.split(r"<tr[^>]*>", body)[1:])
        assert not re.search(r"<t[hd][^>]*>(?:(?!<t[rhd]).)*<th", body, flags=re.DOTALL)
    assert all(attrs.get("role") == "img" and attrs.get("aria-label") for attrs in parsed.all("svg"))
    assert {"main", "header", "nav", "footer"} <= {tag for tag, _ in parsed.tags}
    assert parsed.all("html") == [{"lang": "en"}]


def test_an_empty_report_is_a_page(report: Report) -> None:
    empty = report.model_copy(update={"systems": (), "not_tested": (), "config": {}, "exit_code": 0})
    assert "No claim to check" in Page(page_of(empty)).text


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_contrast_is_enough(scheme: str) -> None:
    """WCAG AA: 4.5 for text, 3 for lines of a plot."""
    css = (Path(vflpriv.__file__).parent / "render" / "html" / "templates" / "report.css.j2").read_text(
        encoding="utf-8"
    )
    light, dark = css.split("@media screen and (prefers-color-scheme: dark)", maxsplit=1)
    colours = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})\b", light if scheme == "light" else dark.split("\n}", 1)[0]))
    for ink in ("ink", "muted", "link", "red", "amber", "green", "grey"):
        for paper in ("page", "card", "soft"):
            assert contrast(colours[ink], colours[paper]) >= 4.5, (ink, paper)
    for ink in ("red", "amber", "green", "grey"):
        assert contrast(colours[ink], colours[f"{ink}-soft"]) >= 4.5, ink
    for paper in ("red-soft", "amber-soft", "green-soft", "deep"):
        assert contrast(colours["ink"], colours[paper]) >= 4.5, paper
    plots = {k: v for k, v in colours.items() if k.startswith("plot-")}
    if scheme == "light":
        plots = COLOURS
    assert len(plots) >= 7
    assert all(contrast(line, colours["card"]) >= 3 for line in plots.values()), plots
    assert all(contrast("#ffffff", band) >= 4.5 for band in re.findall(r"\.banner[^{]*{[^}]*background: (#\w{6})", css))


def test_staleness_and_importance_are_shown_where_there_are_any(report: Report) -> None:
    first = report.systems[0]
    stale = Staleness(reads=1000, never_sent=0.25, median=3, largest=17)
    system = first.model_copy(update={"staleness": stale, "importance": (0.5, 2.0, 0.1)})
    page = page_of(report.model_copy(update={"systems": (system,)}))
    assert "<strong>3</strong> rounds old in the median, 17 at most" in page
    assert "25.0 % of 1,000 reads were of records that had not been sent yet" in page
    assert "Device 1 weighs most, 2; device 2 least, 0.1." in page
    assert "rounds old" not in page_of(report.model_copy(update={"systems": (first,)}))


def test_a_sentence_stands_where_a_picture_of_importance_would_mislead(report: Report) -> None:
    norms = {"importance": (0.5, 2.0, 0.1), "importance_caveat": "The heads have hardly moved: by 0.1 %."}
    system = report.systems[0].model_copy(update=norms)
    page = page_of(report.model_copy(update={"systems": (system,)}))
    assert "The heads have hardly moved: by 0.1 %." in page
    assert "weighs most" not in page


def test_a_page_of_many_claims_stays_small(report: Report) -> None:
    """What three systems with five claims add: 66 kB, 88 before sentences stood once and plots shared their axes."""
    copies = [s.model_copy(update={"key": f"{s.key}-{n}"}) for n in range(3) for s in report.systems]
    page = page_of(report.model_copy(update={"systems": tuple(copies)}))
    added = (len(page.encode()) - len(page_of(report).encode())) / 2
    assert added < 70_000
