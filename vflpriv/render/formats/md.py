"""Results as Markdown: for `report.md` and pull requests."""

from __future__ import annotations

from vflpriv.common.registry import register
from vflpriv.render.document import describe
from vflpriv.render.markdown import LIMIT, to_markdown
from vflpriv.report.formats import Context, Format, Saved

__all__ = ["MarkdownFormat"]


@register("format")
class MarkdownFormat(Format):
    """`report.md` of an audit, `attacks.md` of attacks."""

    name = "md"
    summary = "Markdown, for pull requests"

    results = ("report", "attacks", "reproduction", "frontier")

    def render(self, result: Saved, context: Context) -> str:
        """Cut at a line, with a note, where it would be longer than GitHub shows."""
        limit = LIMIT if context.limit is None else context.limit
        return to_markdown(describe(result), limit=limit, whole=f"{result.stem}.json")
