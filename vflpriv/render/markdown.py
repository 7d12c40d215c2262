"""The report as Markdown: for `report.md`, pull requests and the step summaries of CI jobs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from vflpriv.common import formatting as f
from vflpriv.core.claims import Verdict
from vflpriv.render.shared import banner, measured_mu, one_run_sentence, why_infinite
from vflpriv.report.audit import BudgetRow, ClaimRow, MeasurementRow, Report, SuccessClaimRow, SystemRow

__all__ = ["LIMIT", "claims_table", "escape", "render_markdown", "success_claims_table", "table", "within"]

LIMIT = 1_000_000
"""Bytes. GitHub drops a step summary above 1 MiB."""

_EMOJI = {Verdict.VIOLATED: "❌", Verdict.UNSUPPORTED: "⚠️", Verdict.CONSISTENT: "✅", Verdict.NOT_APPLICABLE: "➖"}
_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
_LONGEST_CELL = 400


def render_markdown(report: Report) -> str:
    """Headline, claims, then the evidence of each system; cut at a line, and saying so, where it would be too long."""
    return within(_blocks(report), LIMIT)


def escape(text: object) -> str:
    """Any text as one line of plain words: no markup, no table cell of its own, no link, no mention.

    >>> escape("a|b `c` <i>\\n@d")
    'a\\\\|b \\\\`c\\\\` &lt;i&gt; @\\u2060d'
    """
    line = "".join(_ENTITIES.get(c, c) for c in f.shorten(text, _LONGEST_CELL))
    line = re.sub(r"([\\`*_{}\[\]#|~!$])", r"\\\1", line)
    # At the start of a line these would begin a list or a rule.
    line = re.sub(r"^(?:[-+=]|\d{1,9}[.)](?=\s|$))", lambda m: f"{m[0][:-1]}\\{m[0][-1]}", line)
    # Bare addresses and @names become links by themselves; a word joiner inside them prevents it.
    return re.sub(r"(:(?=//)|\bwww(?=\.)|@(?=\w))", "\\1\u2060", line, flags=re.IGNORECASE)


def _blocks(report: Report) -> Iterator[str]:
    yield f"# {banner(report)}"
    yield f"{report.headline}. Confidence {f.confidence(report.confidence)}, seed {report.seed}."
    if any(system.claims for system in report.systems):
        yield claims_table(report)
    if any(system.success_claims for system in report.systems):
        yield success_claims_table(report)
    for system in report.systems:
        yield from _system(system)
    if report.features:
        # Its tables are written with the helpers of this file.
        from vflpriv.render.features import FeatureSection, features_blocks

        yield from features_blocks(FeatureSection(report.features))
    if report.not_tested:
        yield "## What was not tested"
        yield "\n".join(f"- {escape(item)}" for item in report.not_tested)
    yield (
        "*Accounted* is an upper bound under its assumptions, *measured* a lower bound with its confidence. "
        "Not refuted is never verified."
    )
    yield f"<sub>vflpriv {escape(report.tool_version)}, {escape(report.schema_version)}</sub>"


def claims_table(report: Report) -> str:
    """Every claim with an ε, and its three numbers."""
    header = ["Verdict", "System", "Claim", "Seen by", "Unit", "Claimed ε (δ)", "ε ≤, paper’s reading"]
    header += ["ε ≤, rigorous", "Measured μ ≥", "Claimed μ"]
    rows = (_claim(system, claim) for system in report.systems for claim in system.claims)
    return table(header, ":::::-----", rows)


def _claim(system: SystemRow, claim: ClaimRow) -> tuple[str, ...]:
    measured = measured_mu(claim)
    return (
        f"{_EMOJI[claim.verdict]} **{claim.verdict}**",
        escape(system.title),
        escape(f"{claim.source}, {claim.where}"),
        escape(claim.adversary),
        escape(claim.unit),
        f"{f.epsilon(claim.epsilon)} ({f.delta(claim.delta)})",
        _bound(claim.paper_reading) if claim.paper_reading else "as rigorous",
        _bound(claim.accounted),
        "not measured" if measured is None else f.mu(measured),
        f.mu(claim.mu),
    )


def success_claims_table(report: Report) -> str:
    """Every claim about an attack, and what was measured of it."""
    header = ("Verdict", "System", "Claim about an attack", "Seen by", "Attack", "Claimed ≤", "Measured", "Interval")
    rows = (
        (
            f"{_EMOJI[claim.verdict]} **{claim.verdict}**",
            escape(system.title),
            escape(f"{claim.source}, {claim.where}"),
            escape(claim.adversary),
            escape(claim.attack),
            f.percent(claim.rate),
            f.percent(claim.success) if claim.success is not None else "not measured",
            f.interval(claim.low, claim.high),
        )
        for system in report.systems
        for claim in system.success_claims
    )
    return table(header, ":::::---", rows)


def _bound(budget: BudgetRow) -> str:
    return "n/a" if budget.not_applicable is not None else f.epsilon(budget.epsilon_upper)


def _system(system: SystemRow) -> Iterator[str]:
    yield f"## {escape(system.title)}"
    facts = f"Engine {escape(system.engine)}, {f.count(system.rounds)} rounds."
    if system.utility:
        low, high = system.utility.accuracy_low, system.utility.accuracy_high
        facts += f" Accuracy {f.percent(system.utility.accuracy)} ({f.interval(low, high)})."
    if system.traffic:
        facts += f" Traffic {f.size(system.traffic.up)} up, {f.size(system.traffic.down)} down."
    if system.staleness:
        facts += f" Stale embeddings: {f.count(system.staleness.median)} rounds old in the median, "
        facts += f"{f.count(system.staleness.largest)} at most."
    yield facts
    for claim in system.all_claims:
        yield from _evidence(claim)
    if system.budgets:
        # One block, so that a cut never leaves it open.
        yield f"<details><summary>What can be accounted for</summary>\n\n{_budgets(system)}\n\n</details>"
    if system.attacks:
        yield "### What attacks reach"
        yield _attacks(system)
    if system.checks:
        yield "### Premises"
        rows = [
            (f"{_EMOJI[c.verdict]} {c.verdict}", *map(escape, (c.audit, c.subject, c.reason))) for c in system.checks
        ]
        yield table(("Verdict", "Audit", "Of", "Reason"), "::::", rows)
        for command in dict.fromkeys(c.reproduce for c in system.checks):
            yield _command(command)
    if system.sensitivity:
        yield "### Declared sensitivity"
        yield _sensitivity(system)


def _evidence(claim: ClaimRow | SuccessClaimRow) -> Iterator[str]:
    yield f"### {_EMOJI[claim.verdict]} {escape(f'{claim.source}, {claim.where}')}, seen by {escape(claim.adversary)}"
    yield f"**{claim.verdict}**: {escape(claim.reason)}"
    if isinstance(claim, ClaimRow) and claim.measurements:
        header = ["Canary", "Score", "Trials a world", "False positives", "False negatives", "μ ≥", "μ ≥, known σ"]
        header += ["ε ≥, any mechanism"]
        header += ["ε ≥, Gaussian", "Share of accounted μ", "p, Holm", "Refutes?"]
        yield table(header, "::---------:", (_measurement(row) for row in claim.measurements))
    if isinstance(claim, ClaimRow):
        for reason in dict.fromkeys(row.epsilon_from_mu_refused for row in claim.measurements):
            if reason is not None:
                yield f"No ε by way of μ: {escape(reason)}."
        if claim.one_run is not None:
            yield f"{escape(one_run_sentence(claim.one_run))}."
    yield _command(claim.reproduce)


def _command(text: str) -> str:
    """A line for the shell, in a fence that nothing in it closes."""
    command = f.shorten(text, 2000)
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", command)), default=0))
    return f"{fence}sh\n{command}\n{fence}"


def _measurement(row: MeasurementRow) -> tuple[str, ...]:
    return (
        escape(row.canary),
        escape(row.method),
        f.count(row.trials_per_world),
        f.percent(f.share(row.false_positives, row.trials_per_world)),
        f.percent(f.share(row.false_negatives, row.trials_per_world)),
        f.mu(row.mu_lower),
        f.mu(row.mu_known_sigma),
        f.epsilon(row.epsilon_lower),
        f.epsilon(row.epsilon_from_mu),
        f.ratio(row.mu_lower, row.mu_accounted),
        f.p_value(row.p_adjusted),
        "**yes**" if row.refutes else "no",
    )


def _budgets(system: SystemRow) -> str:
    header = ("Seen by", "Unit", "Reading", "ε ≤ (δ)", "μ", "Batches", "Participations", "Note")
    rows = []
    for row in system.budgets:
        note = f"not applicable: {row.not_applicable}" if row.not_applicable is not None else why_infinite(row)
        numbers = ("–", "–") if row.not_applicable is not None else (_bound(row), f.mu(row.mu))
        bound = f"{numbers[0]} ({f.delta(row.delta)})" if numbers[0] != "–" else "–"
        words = (escape(row.adversary), escape(row.unit), escape(row.reading), bound, numbers[1])
        rows.append((*words, escape(row.batches), f.count(row.participations), escape(note)))
    return table(header, ":::--:-:", rows)


def _attacks(system: SystemRow) -> str:
    header = ("Attack", "Seen by", "Target", "Success", "Interval", "Chance", "No signal", "Note")
    rows = []
    for row in system.attacks:
        note = f"not applicable: {row.not_applicable}" if row.not_applicable is not None else ""
        numbers = (f.percent(row.success), f.interval(row.low, row.high), f.percent(row.chance), f.percent(row.blind))
        rows.append((escape(row.attack), escape(row.adversary), escape(row.target), *numbers, escape(note)))
    return table(header, ":::----:", rows)


def _sensitivity(system: SystemRow) -> str:
    header = ("Mechanism", "Unit", "Declared", "Observed", "Pairs searched", "Witness", "Holds?")
    rows = []
    for row in system.sensitivity:
        numbers = (f.exact(row.declared), f.exact(row.observed), f.count(row.searched))
        holds = "not broken" if row.holds else f"**broken** {escape(row.replay)}".rstrip()
        rows.append((escape(row.mechanism), escape(row.unit), *numbers, escape(row.witness), holds))
    return table(header, "::---::", rows)


def table(header: Sequence[str], aligned: str, rows: Iterable[Sequence[str]]) -> str:
    """`aligned` has a colon for each column of words and a dash for each of numbers."""
    rule = ["---" if mark == ":" else "--:" for mark in aligned]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (header, rule, *rows))


def within(blocks: Iterable[str], limit: int, *, whole: str = "report.json") -> str:
    """Blocks with an empty line between them. Where one does not fit, a table keeps the rows that do, and all ends."""
    last = f"**Cut here**: the report is longer than a step summary may be. `{whole}` has all of it.\n"
    kept: list[str] = []
    room = limit - len(last.encode())
    for block in blocks:
        size = len(block.encode()) + 2
        if size > room:
            rows = block.encode()[: max(0, room - 2)].decode(errors="ignore").rpartition("\n")[0]
            return "\n\n".join([*kept, *([rows] if rows.startswith("|") else []), last])
        room -= size
        kept.append(block)
    return "\n\n".join(kept) + "\n"
