"""What is said of an audit: the page that a reviewer signs, then the evidence of each system, then how to read it."""

from __future__ import annotations

import json
from collections.abc import Iterator

from vflpriv.common import formatting as f
from vflpriv.core.claims import SEVERITY, Verdict
from vflpriv.render import document as d
from vflpriv.render.first_page.grounds import risks, strongest, trusted
from vflpriv.render.first_page.page import FirstPage
from vflpriv.render.plots.overview import traffic_plot, utility_plot
from vflpriv.render.results.claims import claims_table, success_claims_table
from vflpriv.render.results.features import features_section, features_summary
from vflpriv.render.results.findings import findings
from vflpriv.render.results.systems import attack_matrix, attacks_summary, system_section
from vflpriv.render.shared import banner, best_attack
from vflpriv.report.audit import Report
from vflpriv.report.rows import ClaimRow

__all__ = ["audit_document"]

_ALL = 0.995
"""A share of right guesses that leaves nothing secret."""
_EXIT_CODES = {
    0: "nothing is violated, unsupported or unmeasured",
    1: "a claim is violated, or a premise is broken",
    2: "bad usage or configuration",
    3: "nothing is violated, but something is unsupported or unmeasured",
    4: "internal error",
}
_READ = (
    d.Span("Accounted", "em"),
    " is an upper bound under its assumptions, ",
    d.Span("measured", "em"),
    " a lower bound with its confidence. Not refuted is never verified.",
)


@d.described_by.register
def audit_document(report: Report) -> d.Document:
    """Claims first, then the evidence of each system; terminals end with the reasons and what to change."""
    levels = f"intervals at {f.confidence(report.confidence)}, verdicts at {f.confidence(report.verdict_confidence)}"
    confidence = f"Confidence: {levels}; seed {report.seed}."
    sure = (
        f"verdicts {f.confidence(report.verdict_confidence)} over all tests together, intervals and bounds "
        f"{f.confidence(report.confidence)} each"
    )
    return d.Document(
        headline=banner(report),
        line=f"{report.headline}; exit code {report.exit_code}",
        verdict=report.verdict,
        outcome="verdict",
        eyebrow="Privacy audit of vertical federated learning",
        said=(
            *(d.Paragraph(d.strong(line)) for line in _reads_all(report)),
            *(d.Paragraph(line) for line in _of_consistent(report)),
            d.Paragraph(report.headline, only=d.PAGE),
            d.Paragraph(f"{report.headline}. {confidence}", only=d.WRITTEN),
        ),
        facts=(("how sure", sure), ("exit code", f"{report.exit_code} ({_exit_meaning(report)})")),
        blocks=[*_claims(report), d.Paragraph(confidence, only=d.NOTEBOOK), *_blocks(report)],
        source=f"report.json ({report.schema_version})",
    )


def _reads_all(report: Report) -> Iterator[str]:
    """The attack that reads every secret of a system: it stands first, whatever the verdict on a claim is."""
    for system in report.systems:
        attack = best_attack(system)
        if attack is not None and attack.success is not None and attack.success >= _ALL and attack.leakage > 0:
            of_which = f"{f.clean(system.key)}: " if len(report.systems) > 1 else ""
            yield f"{of_which}{strongest(system)}"


def _of_consistent(report: Report) -> Iterator[str]:
    """Of the one claim of a report that holds: the three numbers, how sure its trials are, how many attacks applied."""
    claims = [(system, claim) for system in report.systems for claim in system.all_claims]
    if len(claims) != 1 or report.verdict is not Verdict.CONSISTENT:
        return
    system, claim = claims[0]
    if not isinstance(claim, ClaimRow):
        return
    deciding = claim.deciding
    measured = "nothing" if deciding is None or deciding.epsilon is None else f"≥ {f.epsilon(deciding.epsilon)}"
    line = f"ε claimed {f.epsilon(claim.epsilon)}, accounted {f.epsilon(claim.accounted.epsilon_upper)}, "
    line += f"measured {measured}"
    if deciding is not None and deciding.power is not None:
        passes = f.percent(1 - deciding.power)
        line += f"; a system at {deciding.power_excess:g} times the claim would pass with {passes} or more"
    tried = sum(attack.success is not None for attack in system.attacks)
    yield f"{line}; {tried} of {len(system.attacks)} attacks applied"


def _exit_meaning(report: Report) -> str:
    if report.exit_code == 0 and report.ledger_trusted and report.count(Verdict.UNMEASURED):
        return "the ledger was trusted where nothing was measured, and nothing is violated or unsupported"
    return _EXIT_CODES.get(report.exit_code, "unknown")


def _claims(report: Report) -> Iterator[d.Block]:
    """All claims in one table, worst first, for terminals and notebooks."""
    lines = sorted(FirstPage(report).lines, key=lambda line: SEVERITY.index(line.claim.verdict))
    yield claims_table(lines, only=d.NOTEBOOK)
    yield claims_table([line for line in lines if line.claim in line.system.claims], only=d.TERMINAL)
    yield success_claims_table(report)
    yield attacks_summary([system for system in report.systems if not system.all_claims], only=d.NOTEBOOK)


def _blocks(report: Report) -> Iterator[d.Block]:
    page = FirstPage(report)
    yield from findings(page)
    attacks = d.Section("What attacks reach", (attacks_summary(report.systems, only=d.SUMMARY),), only=d.SUMMARY)
    if any(system.attacks for system in report.systems):
        yield attacks
    yield features_summary(report.features)
    files = (d.Span("report.html", "code"), " and ", d.Span("report.json", "code"), " have the evidence")
    yield d.Paragraph((f"vflpriv {report.tool_version}; ", *files), "small", only=d.SUMMARY)
    yield d.Group("appendix", list(_evidence(report, page)), only=d.PAGE | d.MARKDOWN | d.TERMINAL)
    yield d.Paragraph(f"vflpriv {report.tool_version}, {report.schema_version}", "small", only=d.MARKDOWN)
    yield from _last_lines(page)


def _evidence(report: Report, page: FirstPage) -> Iterator[d.Block]:
    yield d.Heading("Evidence", 2, only=d.PAGE)
    yield d.Static("print-all")
    costs = [
        d.Figure(lambda: utility_plot(report), "privacy and utility"),
        d.Figure(lambda: traffic_plot(report), "communication"),
    ]
    plots = d.Group("small-plots big-plots", costs)
    title = "What privacy costs"
    yield d.Section(title, (plots,), "costs", contents=title, folded=True, only=d.PAGE)
    title = "What attacks reach"
    yield d.Section(title, list(attack_matrix(report)), "attacks", contents=title, folded=True, only=d.PAGE)
    for number, system in enumerate(report.systems, start=1):
        yield system_section(report, system, f"s{number}")
    yield features_section(report.features, folded=True)
    title, nothing = (
        "What was not tested",
        "Nothing was left out on purpose. An audit still only shows what its tests can see.",
    )
    not_tested = [d.Bullets(report.not_tested)] if report.not_tested else [d.Paragraph(nothing, only=d.PAGE)]
    trust = [d.Heading("Taken on trust", only=d.PAGE), d.Bullets(trusted(report), only=d.PAGE)]
    remaining = [d.Heading("Residual risk", only=d.PAGE), d.Bullets(risks(report), only=d.PAGE)]
    blocks = [*not_tested, *trust, *(remaining if risks(report) else [])]
    yield d.Section(title, blocks, "untested", contents=title, folded=True, only=d.PAGE | d.MARKDOWN)
    yield d.Paragraph(_READ, only=d.MARKDOWN)
    title = "How to read this"
    yield d.Section(title, (d.Static("glossary"),), "reading", contents=title, folded=True, only=d.PAGE)
    config = json.dumps(report.config, indent=2, ensure_ascii=False, default=str)
    prints = d.Terms([(p.name, d.Span(p.sha256, "code")) for p in report.fingerprints], "prints whole")
    yield d.Section(
        "Configuration and hashes", (prints, d.Code(config, "Configuration")), "config", folded=True, only=d.PAGE
    )


def _last_lines(page: FirstPage) -> Iterator[d.Block]:
    """Why each claim has its verdict and what to change, where a terminal shows it without scrolling."""
    reasons = [
        (
            d.Badge(c.verdict),
            f"{f.shorten(s.key, 30)}, {f.shorten(c.key, 60)}: {f.clean(c.reason)}\n$ {f.shorten(c.reproduce, 2000)}",
        )
        for s in page.report.systems
        for c in s.all_claims
    ]
    yield d.Terms(reasons, only=d.TERMINAL)
    changes = [
        (
            d.strong("to change"),
            f"{f.shorten(g.system.key, 30)}{f', {g.scope}' if g.scope else ''}: {' '.join(g.changes)}",
        )
        for g in page.findings
    ]
    yield d.Terms(changes, only=d.TERMINAL)
