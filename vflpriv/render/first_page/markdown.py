"""The page that a reviewer signs, as Markdown: for pull requests and the step summaries of CI jobs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from vflpriv.common import formatting as f
from vflpriv.core.claims import SEVERITY, Verdict
from vflpriv.render.first_page.comparable import accounted, bound, claimed, measured, verdict_words
from vflpriv.render.first_page.page import FirstPage, Group, Line
from vflpriv.render.markdown import escape, paragraph, table
from vflpriv.report.audit import ClaimRow, Report

__all__ = ["EMOJI", "first_page_blocks"]

EMOJI = {
    Verdict.VIOLATED: "❌",
    Verdict.UNSUPPORTED: "⚠️",
    Verdict.UNMEASURED: "❔",
    Verdict.CONSISTENT: "✅",
    Verdict.NOT_APPLICABLE: "➖",
}
_HEADER = ("Verdict", "System", "Claim", "Seen by", "Unit", "Claimed", "Accounted", "Measured", "δ")
_ALIGNED = ":::::----"


def first_page_blocks(report: Report) -> Iterator[str]:
    """The claims worst first, what they mean and what to change, what was checked and what was not."""
    page = FirstPage(report)
    lines = [line for group in page.findings for line in group.lines]
    lines.sort(key=lambda line: SEVERITY.index(line.claim.verdict))
    if lines:
        yield _claims(lines)
    if page.findings:
        yield "## What to change"
        yield "\n".join(_finding(group) for group in page.findings)
    if page.passed:
        # One block: a limit on the size must not cut between the tags.
        summary = f"<summary>{escape(page.passed_summary)}</summary>"
        yield f"<details>{summary}\n\n{_claims(page.passed)}\n\n</details>"
    for _, title, reached in page.unclaimed:
        yield f"No claim: {escape(title)}" + (f"; strongest attack {escape(reached)}" if reached else "")
    yield _grounds(page)
    yield _prints(report)


def _claims(lines: Sequence[Line]) -> str:
    return table(_HEADER, _ALIGNED, [_claim(line) for line in lines])


def _claim(line: Line) -> tuple[str, ...]:
    claim = line.claim
    budget = _accounted(claim) if isinstance(claim, ClaimRow) else "no ε"
    return (
        f"{EMOJI[claim.verdict]} **{escape(verdict_words(claim))}**",
        escape(line.system.key),
        f"“{escape(claim.statement)}” ({escape(f'{claim.source}, {claim.where}')})",
        escape(claim.adversary),
        escape(claim.unit),
        claimed(claim).line,
        budget,
        measured(claim).line,
        f.delta(claim.delta) if isinstance(claim, ClaimRow) else f.NOTHING,
    )


def _accounted(claim: ClaimRow) -> str:
    """The rigorous bound, and the paper's own where it differs."""
    paper = claim.paper_reading
    return accounted(claim.accounted).line + (f"; as in the paper ε ≤ {bound(paper.epsilon_upper)}" if paper else "")


def _finding(group: Group) -> str:
    """A system with what its claims mean and what mends them."""
    meanings = dict.fromkeys(line.meaning for line in group.lines) or {group.premise: None}
    scope = f" ({group.scope} claims)" if group.scope else ""
    said = " ".join(paragraph(text) for text in meanings)
    changes = " ".join(paragraph(text) for text in group.changes)
    return f"- **{escape(group.system.key)}**: {said} **To change**{scope}: {changes}"


def _grounds(page: FirstPage) -> str:
    """What was checked, trusted, left out, and what remains, in one block that opens."""
    sections = (
        ("Checked", page.checked),
        ("Taken on trust", page.trusted),
        ("Not looked at", page.untested),
        ("Residual risk", page.risks),
    )
    parts = []
    for title, items in sections:
        if items:
            parts.append(f"**{title}**\n\n" + "\n".join(f"- {paragraph(text)}" for text in items))
    summary = "<summary>Checked, taken on trust, not looked at, residual risk</summary>"
    return "\n\n".join([f"<details>{summary}", *parts, "</details>"])


def _prints(report: Report) -> str:
    prints = [f"{escape(p.name)} {escape(f.clean(p.sha256)[:16])}" for p in report.fingerprints]
    facts = [f"date {escape(report.date) if report.date else 'not given'}", f"seed {report.seed}", *prints]
    return f"<sub>{', '.join(facts)} (SHA-256)</sub>" if prints else f"<sub>{', '.join(facts)}</sub>"
