"""Names and labels come from elsewhere: whatever they are, no format lets them be more than text.

Each format is read by a parser of its own, and must have the structure that the same report has with harmless names.
"""

from __future__ import annotations

import io
import json
import re
import unicodedata
from collections.abc import Callable
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from hypothesis import Phase, given, settings
from markdown_it import MarkdownIt
from rich.console import Console

from tests.render.renaming import HOSTILE, names, renamed
from tests.render.test_html import Page
from tests.rendered import markdown_of, page_of, summary_of
from tests.report.attack_report import attack_report
from vflpriv.core.claims import Verdict
from vflpriv.render.console import print_line
from vflpriv.render.document import Badge, Paragraph, Span
from vflpriv.render.formats.junit import render_junit
from vflpriv.render.formats.sarif import render_sarif
from vflpriv.render.html.blocks import BlockWriter, escape
from vflpriv.render.html.notebook import HtmlDisplay, MarkdownDisplay
from vflpriv.render.html.page import environment
from vflpriv.render.terminal import print_result
from vflpriv.report.audit import CheckRow, Report
from vflpriv.report.compare import Comparison, Tolerance, compare

MARKDOWN = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
# The names are short as they are: no time is spent on the smallest that fails.
FEW = settings(max_examples=8, phases=[Phase.explicit, Phase.generate])
# All of them in one report, each time in other places.
MIXED = [(*HOSTILE[first:], *HOSTILE[:first]) for first in range(0, len(HOSTILE), 4)]


@pytest.fixture(scope="module")
def whole(report: Report) -> Report:
    """With premises, too."""
    words = {"audit": "noise", "subject": "scalar", "unit": "record", "figure": 0.5, "reproduce": "vflpriv audit"}
    checks = tuple(CheckRow(**words, verdict=word, reason=f"it is {word}.") for word in Verdict)
    first, *rest = report.systems
    return report.model_copy(update={"systems": (first.model_copy(update={"checks": checks}), *rest)})


def worse(report: Report) -> Comparison:
    """The report against a better one, of which one system is gone and one is new."""
    better = [
        s.model_copy(update={"attacks": tuple(a.model_copy(update={"success": 0.01}) for a in s.attacks)})
        for s in report.systems
    ]
    return compare(report.model_copy(update={"systems": tuple(better)}), report, Tolerance())


def page(text: str) -> list[tuple[str, tuple[str, ...]]]:
    """Elements and the names of their attributes, in order; but for places where an underscore lets a line break."""
    return [(tag, tuple(attributes)) for tag, attributes in Page(text).tags if tag != "wbr"]


def markdown(text: str) -> list[str]:
    """Everything that is not plain text, in order."""
    found = []
    for token in MARKDOWN.parse(text):
        found.append(token.type)
        found += [child.type + child.content * (child.type == "html_inline") for child in token.children or ()]
    return [kind for kind in found if kind not in ("text", "softbreak")]


def no_address(text: str) -> bool:
    """Whether no address or mention in it becomes a link by itself; commands are in fences, where none does."""
    outside = re.sub(r"^(`{3,})sh\n.*\n\1$", "", text, flags=re.MULTILINE)
    return not re.search(r"https?://|ftp://|\bwww\.\w|\w@\w|(?<!\w)@\w", outside, flags=re.IGNORECASE)


def is_text(text: str) -> bool:
    """Whether nothing in it steers a terminal, hides, or runs from right to left."""
    return all(unicodedata.category(c) not in ("Cc", "Cf", "Cs", "Zl", "Zp") for c in text.replace("\n", ""))


def printed(show: Callable[[Console], None]) -> str:
    out = io.StringIO()
    show(Console(file=out, width=110, _environ={}))
    return out.getvalue()


@pytest.mark.parametrize("hostile", MIXED[::4])
def test_a_page_keeps_its_elements(small: Report, hostile: tuple[str, ...]) -> None:
    """Every name is another one: a page takes a while."""
    found = page_of(renamed(small, *hostile))
    assert page(found) == page(page_of(renamed(small, "name")))
    assert not any(unicodedata.category(c) in ("Cc", "Cf", "Cs") for c in found.replace("\n", ""))
    report = attack_report()
    assert page(page_of(renamed(report, *hostile))) == page(page_of(renamed(report, "name")))


@given(name=names())
def test_a_name_in_any_place_of_a_page_is_text(name: str) -> None:
    template = environment().from_string('<p title="{{ x }}">{{ x }}</p>')
    assert page(template.render(x=name)) == [("p", ("title",))]
    text = Paragraph((name, Span(name, "strong", exact=name), Badge(None, name)))
    assert page(BlockWriter(str).blocks([text]))[:2] == [("p", ()), ("strong", ("title",) if escape(name) else ())]


def check_markdown(whole: Report, *chosen: str) -> None:
    def texts(*names: str) -> list[str]:
        report, attacks = renamed(whole, *names), renamed(attack_report(), *names)
        shown = [MarkdownDisplay().render(one) for one in (report, attacks)]
        summaries = [summary_of(report, worse(report)), summary_of(attacks)]
        return [markdown_of(report), markdown_of(attacks), markdown_of(worse(report)), *shown, *summaries]

    for hostile, harmless in zip(texts(*chosen), texts("name"), strict=True):
        assert markdown(hostile) == markdown(harmless)
        assert is_text(hostile.replace("\u2060", ""))
        assert no_address(hostile)


def test_markdown_keeps_its_tables_and_paragraphs(whole: Report) -> None:
    for chosen in MIXED:
        check_markdown(whole, *chosen)


@FEW
@given(name=names())
def test_markdown_keeps_them_with_any_name(whole: Report, name: str) -> None:
    check_markdown(whole, name)


def check_terminal(whole: Report, *chosen: str) -> None:
    report, attacks = renamed(whole, *chosen), renamed(attack_report(), *chosen)
    for show in (
        lambda console: print_result(report, console),
        lambda console: print_result(attacks, console),
        lambda console: print_result(worse(report), console),
        lambda console: print_line(console, f"wrote {chosen[0]}"),
    ):
        assert is_text(printed(show))


def test_a_terminal_shows_names_and_obeys_none(whole: Report) -> None:
    for chosen in MIXED:
        check_terminal(whole, *chosen)


@FEW
@given(name=names())
def test_a_terminal_obeys_no_name_at_all(whole: Report, name: str) -> None:
    check_terminal(whole, name)


@given(name=names())
def test_a_notebook_keeps_its_elements(name: str) -> None:
    def shown(chosen: str) -> list[Any]:
        return page(HtmlDisplay().render(renamed(attack_report(), chosen)))

    assert shown(name) == shown("name")


def shape(element: ET.Element) -> Any:
    return element.tag, sorted(element.attrib), [shape(child) for child in element]


@FEW
@given(name=names())
def test_junit_is_the_same_tree(whole: Report, name: str) -> None:
    def tree(chosen: str) -> Any:
        report = renamed(whole, chosen)
        return shape(ET.fromstring(render_junit(report, worse(report)).encode()))

    assert tree(name) == tree("name")


def skeleton(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: skeleton(item) for key, item in value.items()}
    if isinstance(value, list):
        return [skeleton(item) for item in value]
    return type(value)


@FEW
@given(name=names())
def test_sarif_is_the_same_tree_and_its_messages_hold_no_link(whole: Report, name: str) -> None:
    def log(chosen: str) -> Any:
        report = renamed(whole, chosen)
        return json.loads(render_sarif(report, worse(report)))

    found = log(name)
    assert skeleton(found) == skeleton(log("name"))
    for result in found["runs"][0]["results"]:
        text = result["message"]["text"]
        assert is_text(text)
        assert not re.search(r"(?<!\\)(?:\\\\)*[\[\]]", text), "[text](target) is a link"
        assert not re.search(r"(?<!{)(?:{{)*{\d+}", text), "{0} is a place for an argument"
