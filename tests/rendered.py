"""Results as each format writes them, for tests that read what is written."""

from __future__ import annotations

from typing import Any

from vflpriv.render.document import describe
from vflpriv.render.formats.summary import SummaryFormat
from vflpriv.render.html.page import to_page
from vflpriv.render.markdown import to_markdown
from vflpriv.report.compare import Comparison
from vflpriv.report.formats import Context

__all__ = ["markdown_of", "page_of", "summary_of"]


def page_of(result: object) -> str:
    """The HTML page."""
    return to_page(describe(result))


def markdown_of(result: object) -> str:
    """The Markdown."""
    return to_markdown(describe(result))


def summary_of(result: Any, comparison: Comparison | None = None, *, limit: int | None = None) -> str:
    """The step summary."""
    return SummaryFormat().render(result, Context(comparison=comparison, limit=limit))
