"""Results as JSON: the canonical form, from which `vflpriv report` renders every other."""

from __future__ import annotations

from vflpriv.common.registry import register
from vflpriv.report.formats import Context, Format
from vflpriv.report.rows import Row

__all__ = ["JsonFormat"]


@register("format")
class JsonFormat(Format):
    """`report.json` of an audit, `attacks.json` of attacks."""

    name = "json"
    summary = "canonical data, for programs and for rendering again"

    results = ("report", "attacks", "reproduction", "frontier")

    def render(self, result: Row, context: Context) -> str:
        """The same result gives the same bytes."""
        return result.to_json()
