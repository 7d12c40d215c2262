"""Results as the step summary of a CI job: verdict, claims, attacks, regressions against the baseline."""

from __future__ import annotations

from dataclasses import replace

from vflpriv.common.registry import register
from vflpriv.render.document import SUMMARY, Section, describe
from vflpriv.render.markdown import LIMIT, to_markdown
from vflpriv.report.compare import AnyReport
from vflpriv.report.formats import Context, Format

__all__ = ["SummaryFormat"]


@register("format")
class SummaryFormat(Format):
    """`report.summary.md` of an audit, `attacks.summary.md` of attacks; `--summary` writes it to any path."""

    name = "summary"
    summary = "short Markdown, for the step summary of a CI job"
    suffix = "summary.md"

    def render(self, result: AnyReport, context: Context) -> str:
        """With the comparison with a baseline, if there is one; where it would be longer than the limit it is cut."""
        document = describe(result)
        if context.comparison is not None:
            compared = describe(context.comparison)
            section = Section(compared.heading, (*compared.said, *compared.blocks))
            document = replace(document, said=(*document.said, section))
        limit = LIMIT if context.limit is None else context.limit
        return to_markdown(document, medium=SUMMARY, limit=limit, whole=f"{result.stem}.json")
