"""The pages in a browser: quiet, alone, usable by mouse, keyboard and screen reader, on any screen and on paper."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

PAGES = ("report", "attacks")
RIGOROUS = 8
"""The summary's column of rigorous budgets."""
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
    """The texts of one column of the first sortable table, as they stand."""
    script = "(t, n) => [...t.tBodies[0].rows].map(r => (r.cells[n] || {textContent: ''}).textContent.trim())"
    texts: list[str] = opened.page.locator("table.sortable").first.evaluate(f"t => ({script})(t, {place})")
    return texts


def numbers(texts: list[str]) -> list[float]:
    plain = [text.replace(",", "") for text in texts if text[:1].isdigit() or text == "∞"]
    return [math.inf if text == "∞" else float(text) for text in plain]


@pytest.mark.parametrize("how", ["click", "Enter", "Space"])
def test_a_table_is_sorted_by_click_and_by_key(open_page: Callable[..., Any], how: str) -> None:
    opened = open_page("report")
    head = opened.page.locator("table.sortable").first.locator("thead th").nth(RIGOROUS)
    button = head.get_by_role("button", name="Accounted ε ≤, rigorous")
    assert numbers(column(opened, RIGOROUS)) != sorted(numbers(column(opened, RIGOROUS)))
    for order in ("ascending", "descending", "ascending"):
        if how == "click":
            button.click()
        else:
            button.focus()
            opened.page.keyboard.press(how)
        assert head.get_attribute("aria-sort") == order
        texts = column(opened, RIGOROUS)
        found = numbers(texts)
        assert len(found) == 4
        assert math.inf in found
        assert found == sorted(found, reverse=order == "descending")
        # What has no number comes last either way.
        assert not numbers(texts[len(found) :])
    assert opened.page.locator("[role=status]").inner_text() == "Sorted by Accounted ε ≤, rigorous, ascending"


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


@pytest.mark.parametrize("width", [320, 390])
@pytest.mark.parametrize("name", PAGES)
def test_a_phone_scrolls_tables_and_not_the_page(open_page: Callable[..., Any], name: str, width: int) -> None:
    opened = open_page(name, width=width)
    opened.unfold()
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= width
    wide = opened.page.locator(".scroll").evaluate_all("all => all.filter(r => r.scrollWidth > r.clientWidth)")
    assert wide
    lone = "all => all.filter(r => r.scrollWidth > r.clientWidth && r.tabIndex !== 0).length"
    assert opened.page.locator(".scroll").evaluate_all(lone) == 0


def test_the_keyboard_skips_to_the_findings_and_copies_a_command(open_page: Callable[..., Any]) -> None:
    opened = open_page("report")
    opened.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    opened.page.keyboard.press("Tab")
    assert opened.page.evaluate("document.activeElement.textContent") == "Skip to the findings"
    opened.page.keyboard.press("Enter")
    assert opened.page.evaluate("document.activeElement.id") == "main"
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
