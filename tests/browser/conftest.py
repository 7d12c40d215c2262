"""A real browser: the system's Chromium or Chrome, else the one that playwright installed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.browser.pages import attacks_page, report_page

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

REQUIRED = "VFLPRIV_BROWSER"
"""Set to `required`, a missing browser is a failure."""
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    try:
        from playwright.sync_api import Error, sync_playwright
    except ImportError:
        _missing("playwright")
    with sync_playwright() as playwright:
        own = next(filter(None, map(shutil.which, NAMES)), None)
        try:
            found = playwright.chromium.launch(executable_path=own)
        except Error as error:
            _missing(f"Chromium ({str(error).splitlines()[0]})")
        yield found
        found.close()


def _missing(what: str) -> Any:
    message = f"needs {what}: `make test-browser` sets it up and looks at the pages in a browser"
    if os.environ.get(REQUIRED) == "required":
        pytest.fail(message)
    pytest.skip(message)


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The pages, as the commands write them."""
    folder = tmp_path_factory.mktemp("pages")
    texts = {"report": report_page(), "attacks": attacks_page()}
    for name, text in texts.items():
        (folder / f"{name}.html").write_text(text, encoding="utf-8")
    return {name: folder / f"{name}.html" for name in texts}


class Opened:
    """A page with all that it asked for and complained about."""

    def __init__(self, page: Page, file: Path) -> None:
        self.page, self.file = page, file
        self.requests: list[str] = []
        self.complaints: list[str] = []
        page.on("request", lambda request: self.requests.append(request.url))
        page.on("console", lambda message: self.complaints.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.goto(file.as_uri())

    def unfold(self) -> None:
        """Open everything that a click would open."""
        self.page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true; })")


@pytest.fixture
def open_page(browser: Browser, files: dict[str, Path]) -> Iterator[Callable[..., Opened]]:
    """Open a page by name; with a width and a colour scheme, if they matter."""
    contexts = []

    def opened(name: str, *, width: int = 1280, scheme: Any = "light") -> Opened:
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        contexts.append(context)
        return Opened(context.new_page(), files[name])

    yield opened
    for context in contexts:
        context.close()
