"""Results as JSON: the canonical form, from which `vflpriv report` renders every other."""

from __future__ import annotations

from vflpriv.common.registry import register
from vflpriv.report.attacks import AttackReport
from vflpriv.report.audit import Report
from vflpriv.report.best import BestReport
from vflpriv.report.formats import Context, Format
from vflpriv.report.reproduction import Reproduction

__all__ = ["JsonFormat"]


@register("format")
class JsonFormat(Format):
    """`report.json` of an audit, `attacks.json` of attacks."""

    name = "json"
    summary = "canonical data, for programs and for rendering again"

    results = ("report", "attacks", "reproduction", "frontier")

    def render(self, result: Report | AttackReport | Reproduction | BestReport, context: Context) -> str:
        """The same result gives the same bytes."""
        return result.to_json()
