"""Results as Markdown: for `report.md`, pull requests and the step summaries of CI jobs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from vflpriv.common import formatting as f
from vflpriv.common.registry import register
from vflpriv.core.measurement import KNOWN_NOISE
from vflpriv.render.features import FeatureSection, features_blocks
from vflpriv.render.first_page.comparable import verdict_words
from vflpriv.render.first_page.markdown import EMOJI, first_page_blocks
from vflpriv.render.markdown import LIMIT, command_block, escape, table, within
from vflpriv.render.matrix import refused
from vflpriv.render.pages import page_of
from vflpriv.render.shared import (
    banner,
    cell_level,
    contest_cells,
    leak_points,
    measurement_sentences,
    tabled,
    trial_sentences,
    upper_bound,
    why_infinite,
)
from vflpriv.report.attacks import ONLY_STATIC, AttackReport, Cell, Contest, contests_of
from vflpriv.report.audit import ClaimRow, MeasurementRow, Report, SuccessClaimRow, SystemRow
from vflpriv.report.defences import defence_frontiers
from vflpriv.report.formats import Context, Format, Saved

__all__ = [
    "MarkdownFormat",
    "attacks_blocks",
    "attacks_markdown",
    "render_markdown",
]


@register("format")
class MarkdownFormat(Format):
    """`report.md` of an audit, `attacks.md` of attacks."""

    name = "md"
    summary = "Markdown, for pull requests"

    results = ("report", "attacks", "reproduction", "frontier")

    def render(self, result: Saved, context: Context) -> str:
        """Cut at a line, with a note, where it would be longer than GitHub shows."""
        if isinstance(result, Report):
            return render_markdown(result)
        if isinstance(result, AttackReport):
            return attacks_markdown(result)
        page = page_of(result)
        assert page is not None, result.stem
        return page.markdown(result)


def render_markdown(report: Report) -> str:
    """An audit: its headline and claims, then the evidence of each system."""
    return within(_blocks(report), LIMIT)


def _blocks(report: Report) -> Iterator[str]:
    yield f"# {escape(banner(report))}"
    levels = f"intervals at {f.confidence(report.confidence)}, verdicts at {f.confidence(report.verdict_confidence)}"
    yield f"{escape(report.headline)}. Confidence: {levels}; seed {report.seed}."
    yield from first_page_blocks(report)
    for system in report.systems:
        yield from _system(system)
    if report.features:
        yield from features_blocks(FeatureSection(report.features))
    if report.not_tested:
        yield "## What was not tested"
        yield "\n".join(f"- {escape(item)}" for item in report.not_tested)
    yield (
        "*Accounted* is an upper bound under its assumptions, *measured* a lower bound with its confidence. "
        "Not refuted is never verified."
    )
    yield f"<sub>vflpriv {escape(report.tool_version)}, {escape(report.schema_version)}</sub>"


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
        # One block: a limit on the size must not cut between the tags.
        yield f"<details><summary>What can be accounted for</summary>\n\n{_budgets(system)}\n\n</details>"
    if system.attacks:
        yield "### What attacks reach"
        yield _attacks(system)
    if system.checks:
        yield "### Premises"
        rows = [
            (f"{EMOJI[c.verdict]} {c.verdict}", *map(escape, (c.audit, c.subject, c.reason))) for c in system.checks
        ]
        yield table(("Verdict", "Audit", "Of", "Reason"), "::::", rows)
        for command in dict.fromkeys(c.reproduce for c in system.checks):
            yield command_block(command)
    if system.sensitivity:
        yield "### Declared sensitivity"
        yield _sensitivity(system)


def _evidence(claim: ClaimRow | SuccessClaimRow) -> Iterator[str]:
    yield f"### {EMOJI[claim.verdict]} {escape(f'{claim.source}, {claim.where}')}, seen by {escape(claim.adversary)}"
    yield f"**{escape(verdict_words(claim))}**: {escape(claim.reason)}"
    if isinstance(claim, ClaimRow) and tabled(claim):
        header = ["Canary", "Score", "Trials per world", "False positives", "False negatives", "ε ≥, any mechanism"]
        header += ["ε ≥, Gaussian", "μ ≥", "μ ≥, known σ", "Share of accounted μ", "p, Holm", "Refutes?"]
        yield table(header, "::---------:", (_measurement(row) for row in tabled(claim)))
    if isinstance(claim, ClaimRow):
        for reason in dict.fromkeys(row.gaussian_refusal for row in claim.measurements):
            if reason is not None:
                yield f"No ε by way of μ: {escape(reason)}."
        for sentence in trial_sentences(claim):
            yield f"{escape(sentence)}."
        for sentence in measurement_sentences(claim):
            yield f"{escape(sentence)}."
    yield command_block(claim.reproduce)


def _measurement(row: MeasurementRow) -> tuple[str, ...]:
    rates = (None, None) if row.errors is None else row.errors.rates
    return (
        escape(row.subject),
        escape(row.method),
        f.count(row.trials),
        *map(f.percent, rates),
        f.epsilon(row.epsilon),
        f.epsilon(row.epsilon_gaussian),
        f.mu(row.mu),
        f.mu(row.bound(KNOWN_NOISE)),
        f.ratio(row.mu, row.mu_accounted),
        f.p_value(row.p_adjusted),
        "**yes**" if row.refutes else "no",
    )


def _budgets(system: SystemRow) -> str:
    header = ("Seen by", "Unit", "Reading", "ε ≤ (δ)", "μ", "Batches", "Participations", "Note")
    rows = []
    for row in system.budgets:
        note = f"not applicable: {row.not_applicable}" if row.not_applicable is not None else why_infinite(row)
        numbers = ("–", "–") if row.not_applicable is not None else (upper_bound(row), f.mu(row.mu))
        bound = f"{numbers[0]} ({f.delta(row.delta)})" if numbers[0] != "–" else "–"
        cells = (escape(row.adversary), escape(row.unit), escape(row.reading), bound, numbers[1])
        rows.append((*cells, escape(row.batches), f.count(row.participations), escape(note)))
    return table(header, ":::--:-:", rows)


def _attacks(system: SystemRow) -> str:
    header = ["Attack", "Seen by", "Target", "Success", "Interval over records of one training", "Chance"]
    header += ["No signal"]
    rows = []
    for row in system.attacks:
        numbers = (f.percent(row.success), f.interval(row.low, row.high), f.percent(row.chance), f.percent(row.blind))
        if row.success is not None:
            rows.append((escape(row.attack_name), escape(row.adversary), escape(row.target), *numbers))
    tried = table(header, ":::----", rows) if rows else "No attack applies."
    others = "\n".join(
        f"- {escape(attack)}, seen by {escape(', '.join(views))}: not applicable: {escape(why)}"
        for (attack, _, why), views in refused(system).items()
    )
    # One block: a limit on the size must not cut between the tags.
    return f"{tried}\n\n<details><summary>What does not apply</summary>\n\n{others}\n\n</details>" if others else tried


def _sensitivity(system: SystemRow) -> str:
    header = ("Mechanism", "Unit", "Declared", "Observed", "Pairs searched", "Witness", "Holds?")
    rows = []
    for row in system.sensitivity:
        numbers = (f.exact(row.declared), f.exact(row.observed), f.count(row.searched))
        holds = "not broken" if row.holds else f"**broken** {escape(row.replay)}".rstrip()
        rows.append((escape(row.mechanism), escape(row.unit), *numbers, escape(row.witness), holds))
    return table(header, "::---::", rows)


def attacks_markdown(report: AttackReport, *, limit: int = LIMIT) -> str:
    """Attacks: the matrix, every number behind it, and why some attacks do not apply."""
    return within(attacks_blocks(report), limit, whole="attacks.json")


def attacks_blocks(report: AttackReport) -> Iterator[str]:
    """The same, one paragraph or table at a time."""
    yield "# Attacks"
    yield f"**{escape(report.headline)}**"
    for line in report.broken:
        yield f"- **{escape(line)}**"
    if report.sample_note is not None:
        yield f"{escape(report.sample_note[:1].upper() + report.sample_note[1:])}."
    if report.limit_note is not None:
        yield f"{escape(report.limit_note[:1].upper() + report.limit_note[1:])}."
    chosen = defence_frontiers(report)
    if chosen:
        yield "## Which defence"
        yield "\n".join(f"- **{escape(each.system)}**: {escape(each.advice)}" for each in chosen)
        yield "## Leakage"
    yield (
        "Points by which the best view's success exceeds chance and the same adversary without the protocol "
        f"(success in brackets); mean of {report.seeds} seeds. Bold: the {f.confidence(report.confidence)} interval "
        "lies above zero."
    )
    header = ("System", "Defence", "Test accuracy", *map(escape, report.attacks))
    rows = []
    for row in report.trained:
        if row.not_applicable is None:
            cells = [_matrix_cell(report.worst(row.system, row.defence, attack)) for attack in report.attacks]
            rows.append((escape(row.system), escape(row.defence), f.percent(row.accuracy), *cells))
    yield table(header, "::-" + "-" * len(report.attacks), rows)
    yield from _contests(report.contests, "labels")
    yield from _contests(contests_of(report.features), "features")
    yield "## Every attempt"
    header = ("System", "Defence", "Attack", "Seen by", "Success", "Interval", "Chance", "No signal", "Leakage")
    header += ("Interval", "Accounted ε ≤", "Allows")
    yield table(header, "::::--------", [_attempt(c) for c in report.cells if c.leakage is not None])
    if report.features:
        yield from features_blocks(FeatureSection(report.features))
    yield "## Not applicable"
    reasons = [
        f"- {escape(attack)}: {escape(why)} ({escape(', '.join(who))})" for (attack, why), who in report.reasons.items()
    ]
    reasons += [
        f"- {escape(', '.join(names))}: {escape(why)} ({escape(', '.join(who))})"
        for (names, why), who in report.left_out.items()
    ]
    yield "\n".join(reasons) or "Nothing."


def _contests(contests: Sequence[Contest[Any]], target: str) -> Iterator[str]:
    """Static and adaptive attacks side by side, where an adaptive one was tried."""
    if not contests:
        return
    yield f"## Attacks on {target} that know the defence"
    yield f"The largest leakage by attacks that do not know the defence, and by those that do. {ONLY_STATIC}."
    rows = [(escape(c.system), escape(c.defence), *map(escape, contest_cells(c))) for c in contests]
    yield table(("System", "Defence", "Static", "Adaptive", "†"), ":::::", rows)


def _matrix_cell(cell: Cell | None) -> str:
    if cell is None or cell.leakage is None:
        return "n/a"
    text = leak_points(cell.leakage)
    return f"{f'**{text}**' if cell_level(cell) else text} ({f.percent(cell.success)})"


def _attempt(c: Cell) -> tuple[str, ...]:
    names = (escape(c.system), escape(c.defence), escape(c.attack_name), escape(c.adversary))
    success = (f.percent(c.success), f.seeds_interval(c.success_low, c.success_high))
    beyond = (leak_points(c.leakage), f.seeds_interval(c.low, c.high))
    return (
        *names,
        *success,
        f.percent(c.chance),
        f.percent(c.blind),
        *beyond,
        f.epsilon(c.epsilon),
        leak_points(c.allowed),
    )
