"""The pages in a browser: quiet, alone, usable by mouse, keyboard and screen reader, on any screen and on paper."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import pytest

PAGES = ("report", "attacks")
BOUNDS, EPSILON = "#s1-budgets", 3
"""The caption of a table of budgets, and its column of upper bounds."""
EVERY_COLUMN = """tables => tables.map(table => {
    const rows = [...table.tBodies[0].rows], heads = [...table.tHead.rows[0].cells];
    const sorted = heads.map(head => {
        head.querySelector('button').click();
        const named = table.querySelectorAll('th[aria-sort]');
        return named[0] === head && head.ariaSort === 'ascending' ? named.length : 0;
    });
    const still = rows.filter(row => row.parentNode === table.tBodies[0]).length;
    return [rows.length, still, heads.length, sorted];
})"""


@pytest.mark.parametrize("name", PAGES)
def test_it_is_quiet_and_fetches_nothing(open_page: Callable[..., Any], name: str) -> None:
    opened = open_page(name)
    opened.unfold()
    opened.page.evaluate("document.querySelectorAll('button').forEach(b => b.click())")
    opened.page.wait_for_timeout(100)
    assert opened.complaints == []
    assert [r for r in opened.requests if not r.startswith("data:")] == [opened.file.as_uri()]


def column(opened: Any, place: int) -> list[str]:
    """The first words of one column of the table of budgets, as they stand."""
    script = "(t, n) => [...t.tBodies[0].rows].map(r => (r.cells[n] || {textContent: ''}).textContent.trim())"
    texts: list[str] = opened.page.locator("table", has=opened.page.locator(BOUNDS)).evaluate(
        f"t => ({script})(t, {place})"
    )
    return [(text.split() or [""])[0] for text in texts]


def numbers(texts: list[str]) -> list[float]:
    plain = [text.replace(",", "") for text in texts if text[:1].isdigit() or text == "∞"]
    return [math.inf if text == "∞" else float(text) for text in plain]


@pytest.mark.parametrize("how", ["click", "Enter", "Space"])
def test_a_table_is_sorted_by_click_and_by_key(open_page: Callable[..., Any], how: str) -> None:
    opened = open_page("report")
    opened.unfold()
    table = opened.page.locator("table", has=opened.page.locator(BOUNDS))
    head = table.locator("thead th").nth(EPSILON)
    button = head.get_by_role("button", name="ε ≤ (δ)")
    assert numbers(column(opened, EPSILON)) != sorted(numbers(column(opened, EPSILON)))
    for order in ("ascending", "descending", "ascending"):
        if how == "click":
            button.click()
        else:
            button.focus()
            opened.page.keyboard.press(how)
        assert head.get_attribute("aria-sort") == order
        texts = column(opened, EPSILON)
        found = numbers(texts)
        assert len(found) == 4
        assert math.inf in found
        assert found == sorted(found, reverse=order == "descending")
        # What has no number comes last either way.
        assert not numbers(texts[len(found) :])
    assert opened.page.locator("[role=status]").inner_text() == "Sorted by ε ≤ (δ), ascending"


@pytest.mark.parametrize("name", PAGES)
def test_every_sortable_table_sorts_by_every_column(open_page: Callable[..., Any], name: str) -> None:
    opened = open_page(name)
    opened.unfold()
    found = opened.page.locator("table.sortable").evaluate_all(EVERY_COLUMN)
    assert len(found) >= 3
    assert all(rows == still and sorted_by == [1] * columns for rows, still, columns, sorted_by in found)
    assert opened.complaints == []


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 1280), ("light", 390)])
@pytest.mark.parametrize("name", PAGES)
def test_axe_finds_nothing(open_page: Callable[..., Any], name: str, scheme: str, width: int) -> None:
    from axe_playwright_python.sync_playwright import Axe

    opened = open_page(name, width=width, scheme=scheme)
    opened.unfold()
    # What is inside a plot is a picture with a name; its many lines would only take time.
    found = Axe().run(opened.page, context={"exclude": [["svg > *"]]}).response["violations"]
    assert [(v["id"], v["help"], [n["target"] for n in v["nodes"]][:3]) for v in found] == []


WIDER = "all => all.filter(r => r.scrollWidth > r.clientWidth).map(r => r.textContent.slice(0, 80))"


@pytest.mark.parametrize("name", PAGES)
def test_a_desk_shows_every_column(open_page: Callable[..., Any], name: str) -> None:
    opened = open_page(name, width=1280)
    opened.unfold()
    assert opened.page.locator(".scroll, .finding, .passed").evaluate_all(WIDER) == []


@pytest.mark.parametrize("width", [320, 390])
@pytest.mark.parametrize("name", PAGES)
def test_a_phone_shows_rows_as_cards_and_scrolls_no_page(open_page: Callable[..., Any], name: str, width: int) -> None:
    opened = open_page(name, width=width)
    opened.unfold()
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= width
    assert opened.page.locator(".scroll:not(.narrow), .finding, .passed").evaluate_all(WIDER) == []
    lone = "all => all.filter(r => r.scrollWidth > r.clientWidth && r.tabIndex !== 0).length"
    assert opened.page.locator(".scroll").evaluate_all(lone) == 0
    labelled = "cells => cells.every(c => getComputedStyle(c, '::before').content === JSON.stringify(c.dataset.label))"
    cells = opened.page.locator(".cards td[data-label]")
    assert cells.count() > 10
    assert cells.evaluate_all(labelled)


def test_a_phone_shows_the_numbers_of_a_claim_beside_each_other(open_page: Callable[..., Any]) -> None:
    opened = open_page("report", width=390)
    cells = opened.page.locator(".finding td.n").evaluate_all("all => all.map(c => [c.dataset.label, c.innerText])")
    assert [label for label, _ in cells[:3]] == ["Claimed", "Accounted", "Measured"]
    tops = opened.page.locator(".finding td.n").evaluate_all("all => all.map(c => c.getBoundingClientRect().top)")
    assert tops[0] == tops[1] == tops[2]


def test_the_keyboard_skips_to_the_findings_and_copies_a_command(open_page: Callable[..., Any]) -> None:
    opened = open_page("report")
    opened.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    opened.page.keyboard.press("Tab")
    assert opened.page.evaluate("document.activeElement.textContent") == "Skip to the findings"
    opened.page.keyboard.press("Enter")
    assert opened.page.evaluate("document.activeElement.id") == "main"
    opened.unfold()
    copy = opened.page.get_by_role("button", name="Copy the command").first
    copy.focus()
    opened.page.keyboard.press("Enter")
    opened.page.locator("[role=status]", has_text="Copied").wait_for(state="attached")
    command = opened.page.locator("pre.command").first.inner_text()
    assert command.startswith("vflpriv audit")
    assert opened.page.evaluate("navigator.clipboard.readText()") == command


@pytest.mark.parametrize("name", PAGES)
def test_paper_is_light_and_shows_what_is_folded(open_page: Callable[..., Any], name: str) -> None:
    opened = open_page(name, scheme="dark")
    dark = opened.page.evaluate("getComputedStyle(document.body).backgroundColor")
    opened.page.emulate_media(media="print", color_scheme="dark")
    assert opened.page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)" != dark
    assert opened.page.locator("nav").is_hidden()
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= 1280
    if name == "report":
        assert opened.page.locator(".appendix").is_hidden()
        assert len(re.findall(rb"/Type /Page\b", opened.page.pdf())) <= 2
        opened.page.evaluate("document.getElementById('print-all').click()")
        assert opened.page.locator(".appendix").is_visible()
    folded = opened.page.locator("details:not([open])").count()
    opened.page.evaluate("""() => addEventListener('beforeprint', () => {
        document.body.dataset.folded = document.querySelectorAll('details:not([open])').length;
    })""")
    assert opened.page.pdf().startswith(b"%PDF")
    assert opened.page.evaluate("document.body.dataset.folded") == "0"
    assert opened.page.locator("details:not([open])").count() == folded
    assert opened.complaints == []


def test_without_script_the_page_still_says_everything(browser: Any, files: Any) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(files["report"].as_uri())
    assert page.get_by_role("heading", level=1).inner_text() == "3 of 6 claims are violated"
    assert page.locator("article.claim").count() == 6
    assert page.locator("button").count() == 0
    context.close()


def test_a_link_opens_the_section_that_it_leads_into(open_page: Callable[..., Any]) -> None:
    opened = open_page("report")
    evidence = opened.page.locator("#s1-c1")
    assert not evidence.is_visible()
    opened.page.locator(".finding a[href='#s1-c1']").first.click()
    evidence.wait_for(state="visible")
