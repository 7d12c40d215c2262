"""The page that a reviewer signs: findings worst first, what each means, what to change, what it all rests on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from vflpriv.common import formatting as f
from vflpriv.core.claims import SEVERITY, Verdict
from vflpriv.render import document as d
from vflpriv.render.first_page.grounds import checked, risks, trusted
from vflpriv.render.first_page.page import FirstPage
from vflpriv.render.first_page.page import Group as Finding
from vflpriv.render.results.claims import claims_table
from vflpriv.report.audit import Report

__all__ = ["findings", "shortened"]

_MOST = 5
"""Lines of a list that the page shows; the others are in the sections below it."""


def findings(page: FirstPage) -> Iterator[d.Block]:
    """Claims that did not pass, what to change, claims that passed, and what was checked, trusted and left out."""
    title = "Findings, worst first" if page.findings else "No finding"
    blocks = [
        *(_finding(finding, f"f{number}") for number, finding in enumerate(page.findings, start=1)),
        *_passed(page, d.PAGE),
        *(_unclaimed(*system) for system in page.unclaimed),
        d.Group("grounds", [d.Group("", part) for part in _grounds(page.report, on_page=True)]),
        _signing(page.report),
    ]
    yield d.Section(title, blocks, "summary", contents="Findings", only=d.PAGE)
    yield from _written(page)


def _finding(finding: Finding, place: str) -> d.Card:
    """The claims of a system that the same changes mend, or a broken premise, and the changes."""
    system = finding.system
    if finding.lines:
        shown: d.Block = claims_table(
            finding.lines, only=d.PAGE, caption=f"Claims of {system.key}", place=f"{place}-caption"
        )
    else:
        what = "premise broken" if finding.verdict is Verdict.VIOLATED else "check failed"
        shown = d.Paragraph((d.Badge(finding.verdict, what), f" {finding.premise}"), "premise")
    scope = (" ", d.muted(f"({finding.scope})")) if finding.scope else ()
    single = len(finding.changes) == 1
    changes = d.Paragraph(finding.changes[0]) if single else d.Bullets(finding.changes)
    change = d.Group("change", (d.Heading(("What to change", *scope)), changes))
    return d.Card(d.link(system.title, finding.place), d.Badge(finding.verdict), (shown, change), place, "finding")


def _passed(page: FirstPage, only: d.Medium) -> list[d.Block]:
    caption = "Claims that were not refuted"
    table = claims_table(page.passed, only=only, caption=caption, place="passed-caption")
    return [d.Fold(page.passed_summary, (table,), "passed", only=only)] if page.passed else []


def _unclaimed(place: str, title: str, reached: str) -> d.Paragraph:
    strongest = f": strongest attack {reached}" if reached else ""
    return d.Paragraph((d.Badge(None, "no claim"), " ", d.link(title, place), strongest), "unclaimed")


def shortened(lines: Sequence[str]) -> list[str]:
    """As many lines as the page has room for, and how many more there are."""
    if len(lines) <= _MOST + 1:
        return list(lines)
    return [*lines[:_MOST], f"and {len(lines) - _MOST} more, in the sections below"]


def _grounds(report: Report, *, on_page: bool) -> Iterator[tuple[d.Block, ...]]:
    """What was checked, trusted, left out, and what remains; a page has the rest of long lists in other sections."""
    lists = {
        "Checked": checked(report),
        "Taken on trust": trusted(report),
        "Not looked at": [f.clean(line) for line in report.not_tested],
        "Residual risk": risks(report),
    }
    for title, items in lists.items():
        shown = shortened(items) if on_page and title != "Checked" else items
        if shown:
            yield (d.Heading(title, 3) if on_page else d.Paragraph(d.strong(title)), d.Bullets(shown))


def _signing(report: Report) -> d.Group:
    """What was audited, by its hashes, and the place for a signature."""
    facts: list[tuple[d.Content, d.Content]] = [
        ("date", report.date or "not given"),
        ("seed", str(report.seed)),
        ("vflpriv", report.tool_version),
    ]
    for p in report.fingerprints:
        digits = f.clean(p.sha256)
        facts.append((p.name, d.Span(digits[:16], "code", exact=f"SHA-256: {digits}")))
    note = d.Paragraph("First 16 digits of SHA-256; report.json has all of them.", "muted small")
    return d.Group(
        "signing", (d.Group("", (d.Heading("What is signed", 3), d.Terms(facts, "prints"), note)), d.Static("sign-off"))
    )


def _written(page: FirstPage) -> Iterator[d.Block]:
    """The same for pull requests and step summaries."""
    lines = [line for finding in page.findings for line in finding.lines]
    lines.sort(key=lambda line: SEVERITY.index(line.claim.verdict))
    if lines:
        yield claims_table(lines, only=d.WRITTEN)
    yield d.Section(
        "What to change", (d.Bullets([_mended(g) for g in page.findings]),) if page.findings else (), only=d.WRITTEN
    )
    yield from _passed(page, d.WRITTEN)
    for _, title, reached in page.unclaimed:
        yield d.Paragraph(f"No claim: {title}" + (f"; strongest attack {reached}" if reached else ""), only=d.WRITTEN)
    grounds = [block for part in _grounds(page.report, on_page=False) for block in part]
    yield d.Fold("Checked, taken on trust, not looked at, residual risk", grounds, only=d.WRITTEN)
    prints = [f"{p.name} {f.clean(p.sha256)[:16]}" for p in page.report.fingerprints]
    facts = ", ".join([f"date {page.report.date or 'not given'}", f"seed {page.report.seed}", *prints])
    yield d.Paragraph(f"{facts} (SHA-256)" if prints else facts, "small", only=d.WRITTEN)


def _mended(finding: Finding) -> d.Content:
    """A system with what its claims mean and what mends them."""
    meanings = dict.fromkeys(line.meaning for line in finding.lines) or {finding.premise: None}
    scope = f" ({finding.scope} claims)" if finding.scope else ""
    changes = " ".join(finding.changes)
    return (d.strong(finding.system.key), f": {' '.join(meanings)} ", d.strong("To change"), f"{scope}: {changes}")
