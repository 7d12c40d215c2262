"""Results as one self-contained HTML page: the verdict first, the evidence in sections that open."""

from __future__ import annotations

from vflpriv.common.registry import register
from vflpriv.render.document import describe
from vflpriv.render.html.page import to_page
from vflpriv.report.formats import Context, Format, Saved

__all__ = ["HtmlFormat"]


@register("format")
class HtmlFormat(Format):
    """`report.html` of an audit, `attacks.html` of attacks."""

    name = "html"
    summary = "one self-contained page with plots"

    results = ("report", "attacks", "reproduction", "frontier")

    def render(self, result: Saved, context: Context) -> str:
        """The same result gives the same bytes."""
        return to_page(describe(result))
