"""`vflpriv verify`: do the verdicts of a report follow from its figures, and its figures from what it was made from?

The decision is made again by the same function (`vflpriv.audits.verdict.decide`), from the figures in the report.
Hashes are computed again from what the report says of its inputs, and from the inputs themselves where they are there.
Claims and budgets are computed again from the configuration, or from the transcript. What somebody changed in all of
these places at once, and what was measured, nobody can see in a report: that takes a signature, or another audit.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from vflpriv import __version__
from vflpriv.audits.verdict import CorrectedFinding, Decision, SystemDecision, decide, exceeds
from vflpriv.common.registry import find
from vflpriv.config.loading import load_config
from vflpriv.config.models import Config
from vflpriv.core.budgets import Accountant, epsilon_of, mu_of
from vflpriv.core.claims import Claim
from vflpriv.core.systems import Source
from vflpriv.errors import InputError
from vflpriv.recording.ledger_file import LedgerConfig, load_ledger
from vflpriv.report.audit import Report, SystemRow
from vflpriv.report.rows import BudgetRow, ClaimRow, MeasurementRow
from vflpriv.report.seals import changed_since_written, unsigned
from vflpriv.run.account import Claimed, accounted_systems
from vflpriv.run.summary.budgets import (
    account,
    both_readings,
    budget_row,
    budget_rows,
    claim_fields,
    view_budgets,
)
from vflpriv.run.summary.evidence import budget_of, claim_of, evidence_of
from vflpriv.run.summary.fingerprints import ledger_hash, value_hash
from vflpriv.run.summary.rows import release_rows, sampling_row

__all__ = ["Verification", "changed_verdicts", "verify"]

_ROUNDING = 1e-9
"""Claims computed on another machine agree up to this share."""
_TOLERANCE = 1e-6
"""Accountants invert by root finding."""


@dataclass(frozen=True, kw_only=True)
class Verification:
    """What does not hold, a line each; what was checked, and what could not be."""

    problems: tuple[str, ...]
    checked: tuple[str, ...]
    unchecked: tuple[str, ...] = ()

    @property
    def exit_code(self) -> int:
        return 1 if self.problems else 0


def verify(
    report: Report,
    content: bytes | None = None,
    *,
    transcript: Path | None = None,
    ledger: Path | None = None,
    config: Path | None = None,
) -> Verification:
    """Check a report against itself, its seal if the `content` of its file is given, and the inputs that are given."""
    problems = [*changed_verdicts(report), *_changed_hashes(report), *_changed_header(report)]
    checked, unchecked = ["verdicts", "hashes of configuration and ledger"], []
    if content is not None:
        problems += (changed := changed_since_written(content))
        checked.append("seal of all values")
        if not changed and (unknown := unsigned(content)):
            unchecked.append(f"who wrote the report: {unknown}")
    given = [(path, kind) for path, kind in ((ledger, "ledger"), (config, "configuration")) if path is not None]
    for path, kind in given:
        problems += _changed_source(report, path, kind)
        checked.append(f"{kind} {path}")
    if transcript is not None:
        problems += _changed_transcript(report, transcript)
        checked.append(f"transcript {transcript}")
    try:
        systems, accountant = _systems(report, transcript)
    except InputError as error:
        unchecked.append(f"claims and budgets: {error}")
    else:
        problems += _changed_budgets(report, systems, accountant)
        problems += _changed_declarations(report, systems, accountant)
        checked.append("claims and budgets")
    unchecked.append("what was measured: only another audit measures again")
    return Verification(problems=tuple(problems), checked=tuple(checked), unchecked=tuple(unchecked))


# Verdicts


def changed_verdicts(report: Report) -> list[str]:
    """Where the verdicts and what stands beside them are not what the figures of the report give.

    An older report, without evidence, has its claims compared with what is accounted and measured beside them.
    """
    if any(system.evidence is None for system in report.systems):
        return [line for system in report.systems for claim in system.claims for line in _old_claim(system.key, claim)]
    try:
        evidence = [evidence_of(system) for system in report.systems]
        alpha = 1 - report.verdict_confidence
        decision = decide(evidence, alpha=alpha, confidence=report.confidence, trust_ledger=report.ledger_trusted)
    except (ValueError, KeyError) as error:
        return [f"the figures contradict each other: {' '.join(str(error).split())}"]
    same_words = report.tool_version == __version__
    lines = [line for s in report.systems for line in _system_lines(s, decision.systems[s.key], same_words)]
    return [*lines, *_code_line(report, decision)]


def _code_line(report: Report, decision: Decision) -> list[str]:
    return _line("report", "exit_code", report.exit_code, decision.exit_code)


def _old_claim(key: str, row: ClaimRow) -> list[str]:
    where, verdict = f"{key}: claim {row.key}", row.verdict.value
    above = row.accounted.not_applicable is None and exceeds(budget_of(row.accounted), claim_of(row))
    lines = []
    if above and verdict in ("consistent", "unmeasured"):
        lines.append(f"{where}: verdict = {verdict}: expected another, accounted ε is above the claimed one")
    if any(m.refutes for m in row.measurements) and verdict != "violated":
        lines.append(f"{where}: verdict = {verdict}: expected violated, a measurement beside it refutes it")
    return lines


def _line(where: str, name: str, reported: object, follows: object) -> list[str]:
    """A line where the report differs from what follows."""
    same = reported == follows or (
        isinstance(reported, float)
        and isinstance(follows, float)
        and math.isclose(reported, follows, rel_tol=_ROUNDING, abs_tol=1e-300)
    )
    return [] if same else [f"{where}: {name} = {_short(reported)}: expected {_short(follows)} by the figures"]


def _short(value: object) -> str:
    text = f"{value}"
    return text if len(text) <= 120 else f"{text[:116]} ..."


def _system_lines(system: SystemRow, decision: SystemDecision, same_words: bool) -> Iterator[str]:
    min_trials = 0 if system.evidence is None else system.evidence.min_trials
    for claim in system.claims:
        yield from _claim_lines(system.key, claim, decision, min_trials, same_words)
    shown = [c for c in decision.findings if c.finding.measurement is None and not c.finding.is_untested]
    yield from _line(system.key, "number of checks", len(system.checks), len(shown))
    for check, corrected in zip(system.checks, shown, strict=False):
        where = f"{system.key}: {check.audit} of {check.subject}"
        finding = corrected.finding
        for name, follows in (("audit", finding.audit), ("subject", finding.subject), ("measure", finding.measure)):
            yield from _line(where, name, getattr(check, name), follows)
        yield from _line(where, "verdict", check.verdict.value, corrected.verdict.value)
        yield from _line(where, "figure", check.figure, corrected.finding.figure)
        if same_words and not check.reason.startswith(corrected.finding.sentence):
            yield from _line(where, "reason", check.reason, corrected.finding.sentence)
    yield from _line(system.key, "number of claims about attacks", len(system.success_claims), len(decision.successes))
    for row, judged in zip(system.success_claims, decision.successes, strict=False):
        where = f"{system.key}: claim {row.key}"
        yield from _line(where, "verdict", row.verdict.value, judged.judgement.verdict.value)
        yield from _line(where, "success", row.success, judged.test.rate)
        yield from _line(where, "p_adjusted", row.p_adjusted, judged.p_adjusted)


def _claim_lines(key: str, row: ClaimRow, decision: SystemDecision, min_trials: int, same_words: bool) -> Iterator[str]:
    where, claim = f"{key}: claim {row.key}", claim_of(row)
    judgement = decision.judgements[row.key]
    yield from _line(where, "verdict", row.verdict.value, judgement.verdict.value)
    if same_words:
        yield from _line(where, "reason", row.reason, judgement.reason)
    yield from _two_numbers(where, row)
    tests = [test for test in decision.tests_of(claim) if test.finding.measurement is not None]
    yield from _line(where, "number of measurements", len(row.measurements), len(tests))
    deciding = decision.deciding(claim, min_trials)
    for measured, test in zip(row.measurements, tests, strict=False):
        for name, follows in _measured(test, test is deciding).items():
            yield from _line(f"{where}: {measured.subject}", name, getattr(measured, name), follows)


def _measured(test: CorrectedFinding, decides: bool) -> dict[str, object]:
    """What a row of a measurement says, by the fields of the row."""
    measurement = test.finding.measurement
    assert measurement is not None
    values: dict[str, object] = {"audit": test.finding.audit, "subject": test.finding.subject}
    values |= {"unit": measurement.unit.value, "adversary": str(measurement.view)}
    values |= {"figure": measurement.figure, "measure": measurement.decides, "mu": measurement.mu}
    values |= {"epsilon": measurement.epsilon, "exact": measurement.exact, "confidence": measurement.confidence}
    values |= {"p_value": test.finding.p_value, "p_adjusted": test.p_adjusted, "refutes": test.refutes}
    assert values.keys() <= MeasurementRow.model_fields.keys()
    return values | {"decides": decides, "trials": measurement.trials, "facts": dict(measurement.facts)}


def _two_numbers(where: str, row: ClaimRow) -> list[str]:
    """A claim has ε and μ, of which one follows from the other."""
    if row.stated == "mu":
        return _line(where, "epsilon", row.epsilon, epsilon_of(row.mu, row.delta))
    return [] if row.delta <= 0 else _line(where, "mu", row.mu, mu_of(row.epsilon, row.delta))


# Inputs


def _changed_hashes(report: Report) -> list[str]:
    """Hashes that are not those of what the report says of its inputs."""
    reported = {f.name: f.sha256 for f in report.fingerprints}
    follows = {"configuration": value_hash(json.loads(json.dumps(report.config)))}
    follows["ledger"] = ledger_hash(report.systems)
    return [
        f"hash of the {name} = {reported.get(name)}: expected {value}, of the one in the report"
        for name, value in follows.items()
        if reported.get(name) != value
    ]


def _changed_header(report: Report) -> Iterator[str]:
    """What a report says of all systems that is not what its configuration says."""
    for name in ("seed", "confidence", "verdict_confidence"):
        yield from _line("report", name, getattr(report, name), report.config.get(name))


def _changed_source(report: Report, path: Path, kind: str) -> list[str]:
    source = load_ledger(path) if kind == "ledger" else load_config(path)
    own = value_hash(json.loads(source.model_dump_json()))
    if own == value_hash(report.config):
        return []
    return [f"{kind} {path} = {own}: expected {value_hash(report.config)}, what was audited"]


def _changed_transcript(report: Report, transcript: Path) -> list[str]:
    from vflpriv.recording.transcripts import read_hash, read_transcript

    read_transcript(transcript)
    reported = next((f.sha256 for f in report.fingerprints if f.name == "transcript"), None)
    own = read_hash(transcript)
    return [] if own == reported else [f"transcript {transcript} = {own}: expected {reported}, what was audited"]


def _systems(report: Report, transcript: Path | None) -> tuple[Sequence[Claimed], Accountant]:
    """The audited systems, from the configuration in the report or from the transcript; an InputError if they cannot
    be had."""
    if report.tool_version != __version__:
        raise InputError("tool_version", report.tool_version, f"{__version__}, the version that verifies")
    try:
        if "system" in report.config:
            config = Config.model_validate_json(json.dumps(report.config))
            return accounted_systems(config, [system.key for system in report.systems])
        recorded = LedgerConfig.model_validate_json(json.dumps(report.config))
    except ValidationError as error:
        raise InputError("config", "that of the report", "a configuration of this version") from error
    names = {fingerprint.name for fingerprint in report.fingerprints}
    if transcript is None or "training function" in names:
        raise InputError("--transcript", None, "the recorded training, if there is one")
    from vflpriv.recording.system import read_recording

    system = read_recording(transcript, recorded)
    return [(system, system.claims)], find("accountant", recorded.accountant)()


def _changed_budgets(report: Report, systems: Sequence[Claimed], accountant: Accountant) -> Iterator[str]:
    """Claims and budgets that are not those of the systems.

    An audit may have found further releases on the wire, which make a budget larger and never smaller.
    """
    rows = {system.key: {claim.key: claim for claim in system.claims} for system in report.systems}
    for system, claims in systems:
        yield from _line(system.key, "claims", ", ".join(rows[system.key]), ", ".join(c.key for c in claims))
        for claim in claims:
            row = rows[system.key].get(claim.key)
            if row is not None:
                yield from _changed_claim(f"{system.key}: claim {claim.key}", row, claim)
                exposure = system.ledger.exposure(claim.adversary, claim.unit)
                upper = account(accountant, exposure, claim.delta).upper
                if row.accounted.epsilon_upper < upper * (1 - _TOLERANCE):
                    yield (
                        f"{system.key}: claim {claim.key}: accounted ε = {row.accounted.epsilon_upper:.6g}: "
                        f"expected {upper:.6g} at least"
                    )


def _changed_declarations(report: Report, systems: Sequence[Claimed], accountant: Accountant) -> Iterator[str]:
    """What the systems say of themselves, and what follows from their ledgers, where no audit added a release."""
    rows = {system.key: system for system in report.systems}
    for system, claims in systems:
        row = rows[system.key]
        same_claims = [claim.key for claim in row.claims] == [claim.key for claim in claims]
        if same_claims and row.releases == release_rows(system.ledger):
            budgets = tuple(budget_rows(system.ledger, accountant, system.delta))
            declared = row.model_copy(
                update={
                    "title": system.title or system.key,
                    "engine": system.engine_name,
                    "settings": system.settings_facts,
                    "data": system.data_facts,
                    "rounds": system.rounds,
                    "budgets": budgets,
                    "sampling": sampling_row(system.schedule),
                    "claims": tuple(
                        _accounted_row(own, claim, system, accountant, budgets)
                        for own, claim in zip(row.claims, claims, strict=True)
                    ),
                }
            )
            yield from _differences(system.key, json.loads(row.to_json()), json.loads(declared.to_json()))


def _accounted_row(
    row: ClaimRow, claim: Claim, source: Source, accountant: Accountant, budgets: Sequence[BudgetRow]
) -> ClaimRow:
    """The row of a claim with its budgets computed again."""
    first, *paper = both_readings(source.ledger, claim.adversary, claim.unit, accountant, claim.delta)
    accounted = {
        **claim_fields(claim),
        "unit_description": claim.unit.description,
        "accounted": budget_row(*first),
        "paper_reading": budget_row(*paper[0]) if paper else None,
        "views": view_budgets(source.ledger, claim, accountant, budgets),
    }
    return row.model_copy(update=accounted)


def _differences(where: str, reported: object, follows: object) -> Iterator[str]:
    """A line for each value that is another one, but for the last digits of numbers."""
    if isinstance(reported, dict) and isinstance(follows, dict):
        for name in sorted({*reported, *follows}):
            yield from _differences(f"{where}: {name}", reported.get(name), follows.get(name))
    elif isinstance(reported, list) and isinstance(follows, list) and len(reported) == len(follows):
        for number, (value, expected) in enumerate(zip(reported, follows, strict=True)):
            yield from _differences(f"{where}[{number}]", value, expected)
    else:
        numbers = all(isinstance(value, int | float) for value in (reported, follows))
        same = math.isclose(reported, follows, rel_tol=_TOLERANCE) if numbers else reported == follows  # type: ignore[arg-type]
        if not same:
            yield f"{where} = {_short(reported)}: expected {_short(follows)}, as is declared and accounted"


def _changed_claim(where: str, row: ClaimRow, claim: Claim) -> Iterator[str]:
    given = claim_of(row)
    for name in ("statement", "source", "unit", "adversary", "delta", "epsilon", "mu", "stated"):
        yield from _line(where, name, getattr(given, name), getattr(claim, name))
