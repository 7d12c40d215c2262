"""From what was found to the report: budgets, measurements, Holm over all tests, verdicts."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from vflpriv import __version__
from vflpriv.audits.scoring.labels import Attempt
from vflpriv.audits.sensitivity import Finding
from vflpriv.audits.server_state import StateFinding
from vflpriv.audits.statistics.bounds import gaussian_refusal, interval
from vflpriv.audits.statistics.significance import holm_adjusted
from vflpriv.audits.verdict import beyond_p_value, judge
from vflpriv.common.registry import find
from vflpriv.config.models import Config
from vflpriv.core.budgets import Accountant
from vflpriv.core.claims import Claim, Verdict
from vflpriv.core.ledger import Ledger, Reading
from vflpriv.core.schedules import Schedule
from vflpriv.core.units import Unit
from vflpriv.recording.ledger_file import LedgerConfig
from vflpriv.report.audit import (
    AttackRow,
    BudgetRow,
    CheckRow,
    ClaimRow,
    Report,
    SensitivityRow,
    Staleness,
    SystemRow,
    Traffic,
    Utility,
)
from vflpriv.report.rows import ReleaseRow, SamplingRow
from vflpriv.run.budgets import account, budget_row, budget_rows, spendings, system_delta, view_budgets
from vflpriv.run.measured import (
    ClaimTrial,
    Found,
    SuccessTest,
    claim_test,
    measurement_row,
    one_run_row,
    success_row,
    success_tests,
    tests_of,
)
from vflpriv.run.recorded import Recorded
from vflpriv.run.results import Audited

__all__ = [
    "attack_row",
    "build_report",
    "check_rows",
    "ledger_checks",
    "noise_source",
    "release_rows",
    "sampling_row",
    "sensitivity_row",
    "staleness_row",
    "traffic_row",
    "utility_row",
]

_NEVER_TESTED = (
    "active or malicious devices: every party follows the protocol and looks",
    "runs spent on tuning hyper-parameters: they are not part of any budget here",
    "floating-point side channels of the noise (Mironov 2012)",
)
_NO_FEATURES = "feature inference: the configuration has no section attack.features"


def build_report(audited: Sequence[Audited], config: Config, *, reproduce: str, select: bool = True) -> Report:
    """The report of all systems; `reproduce` is the command, to which `--only` is added unless told otherwise."""
    accountant: Accountant = find("accountant", config.accountant)()
    tests = {a.config.key: tests_of(a) for a in audited}
    successes = {a.config.key: success_tests(a) for a in audited}
    flat: list[ClaimTrial | SuccessTest] = [t for found in tests.values() for t in found]
    flat += [t for found in successes.values() for t in found]
    adjusted = dict(zip(map(id, flat), holm_adjusted([t.p_value for t in flat]), strict=True))
    systems = tuple(
        _system(
            a,
            tests[a.config.key],
            successes[a.config.key],
            adjusted,
            accountant,
            config,
            f"{reproduce} --only {a.config.key}" if select else reproduce,
        )
        for a in audited
    )
    words = [c.verdict for s in systems for c in s.all_claims]
    skipped = [f"{a.config.key}: {text}" for a in audited for text in a.skipped]
    untried = [
        f"{a.config.key}: no trials were run"
        for a in audited
        if a.claims and not any(a.trials.values()) and not a.one_run
    ]
    return Report(
        tool_version=__version__,
        seed=config.seed,
        confidence=config.confidence,
        systems=systems,
        not_tested=(*skipped, *untried, *_NEVER_TESTED, *(() if any(a.features for a in audited) else (_NO_FEATURES,))),
        config=json.loads(config.model_dump_json()),
        exit_code=1 if Verdict.VIOLATED in words else 3 if Verdict.UNSUPPORTED in words else 0,
    )


def _system(
    audited: Audited,
    tests: Sequence[ClaimTrial],
    successes: Sequence[SuccessTest],
    adjusted: Mapping[int, float],
    accountant: Accountant,
    config: Config,
    reproduce: str,
) -> SystemRow:
    system, data = audited.system, audited.system.data
    budgets = tuple(budget_rows(system.ledger, accountant, system_delta(system)))
    rows = [
        _claim(audited, c, [t for t in tests if t.claim is c], adjusted, accountant, config, reproduce)
        for c in audited.claims
    ]
    claims = tuple(_spent(row, c, audited, accountant, budgets) for row, c in zip(rows, audited.claims, strict=True))
    return SystemRow(
        key=audited.config.key,
        title=audited.config.title or audited.config.key,
        engine=system.engine.name,
        settings=json.loads(system.settings.model_dump_json()),
        data={**data.facts, "features": [int(np.prod(block.shape[1:])) for block in data.blocks]},
        rounds=system.schedule.rounds,
        claims=claims,
        success_claims=tuple(
            success_row(t, adjusted, classes=data.classes, alpha=1 - config.confidence, reproduce=reproduce)
            for t in successes
        ),
        budgets=budgets,
        sensitivity=tuple(sensitivity_row(f, audited.witnesses.get(id(f))) for f in audited.findings),
        checks=tuple(check_rows(audited, reproduce)),
        attacks=tuple(attack_row(a) for a in audited.attempts),
        utility=utility_row(audited, config.confidence),
        traffic=traffic_row(audited),
        staleness=staleness_row(system.schedule),
        importance=audited.importance,
        features=audited.features,
        releases=release_rows(system.ledger),
        sampling=sampling_row(system.schedule),
        noise_source=noise_source(system.settings, config.seed),
    )


def _claim(
    audited: Audited,
    claim: Claim,
    tests: Sequence[ClaimTrial],
    adjusted: Mapping[int, float],
    accountant: Accountant,
    config: Config,
    reproduce: str,
) -> ClaimRow:
    ledger, alpha = audited.system.ledger, 1 - config.confidence
    exposures = {r: ledger.exposure(claim.adversary, claim.unit, reading=r) for r in Reading}
    budgets = {r: account(accountant, e, claim.delta) for r, e in exposures.items()}
    paper = exposures[Reading.PAPER]
    leaks = budgets[Reading.RIGOROUS].upper != budgets[Reading.PAPER].upper
    rejected = {id(t): adjusted[id(t)] <= alpha for t in tests}
    verdict = judge(
        claim,
        accounted=budgets[Reading.RIGOROUS],
        paper_budget=budgets[Reading.PAPER] if leaks else None,
        tests=[claim_test(t, rejected[id(t)], config.confidence) for t in tests],
        sensitivity_broken=_broken(audited.findings, claim),
        premises=_premises(audited, claim),
        facts=_facts(audited, claim),
        alpha=alpha,
        not_applicable=exposures[Reading.RIGOROUS].not_applicable,
        min_trials=audited.config.audit.min_trials,
    )
    found = Found(
        adjusted={id(t): adjusted[id(t)] for t in tests},
        alpha=alpha,
        refusal=gaussian_refusal(exposures[Reading.RIGOROUS], leaks=leaks),
        exposure=paper,
        seed=config.seed,
        min_trials=audited.config.audit.min_trials,
    )
    return ClaimRow(
        key=claim.key,
        source=claim.source,
        where=claim.where,
        statement=claim.statement,
        unit=claim.unit.value,
        unit_description=claim.unit.description,
        adversary=str(claim.adversary),
        delta=claim.delta,
        epsilon=claim.epsilon,
        mu=claim.mu,
        accounted=budget_row(exposures[Reading.RIGOROUS], budgets[Reading.RIGOROUS]),
        paper_reading=budget_row(paper, budgets[Reading.PAPER]) if leaks else None,
        measurements=tuple(measurement_row(t, found) for t in tests if t.trials is not None),
        one_run=next((one_run_row(t, found) for t in tests if t.one_run is not None), None),
        verdict=verdict.verdict,
        reason=verdict.reason,
        reproduce=reproduce,
    )


def _spent(
    row: ClaimRow, claim: Claim, audited: Audited, accountant: Accountant, budgets: Sequence[BudgetRow]
) -> ClaimRow:
    """The claim with its budgets under everyone's eyes, over rounds and over records."""
    ledger, own = audited.system.ledger, [b for b in (row.accounted, row.paper_reading) if b is not None]
    views, spent = view_budgets(ledger, claim, accountant, budgets), spendings(ledger, claim, accountant, own)
    return row.model_copy(update={"views": views, "spending": spent})


def _facts(audited: Audited, claim: Claim) -> list[str]:
    """The farthest that state carries what the claim protects, where the ledger knows of it."""
    moved = [f for f in audited.state if f.moved and f.holds and claim.unit.implies(f.unit)]
    return [max(moved, key=lambda f: f.mu).sentence] if moved else []


def _premises(audited: Audited, claim: Claim) -> list[str]:
    """What a guarantee rests on and this run broke."""
    noise = [*audited.broken, *(f.sentence for f in audited.noise if not f.holds)]
    if claim.unit is Unit.CLIENT_ZERO:
        noise += [f.sentence for f in audited.emptied if not f.holds]
    return noise + [f.sentence for f in audited.state if not f.holds and claim.unit.implies(f.unit)]


def _broken(findings: Sequence[Finding], claim: Claim) -> str | None:
    for f in findings:
        if f.unit is claim.unit and not f.holds:
            return (
                f"{f.mechanism} declares {f.declared:.4g} for the {f.unit} unit, found {f.observed:.4g} ({f.witness})"
            )
    return None


# The report's facts about one training: attacks, sensitivities, utility, staleness, traffic.


def sensitivity_row(finding: Finding, saved: Path | None = None) -> SensitivityRow:
    return SensitivityRow(
        mechanism=finding.mechanism,
        unit=finding.unit.value,
        declared=finding.declared,
        observed=finding.observed,
        searched=finding.searched,
        witness=finding.witness,
        holds=finding.holds,
        replay="" if saved is None else f"vflpriv replay {shlex.quote(f'{saved.parent.name}/{saved.name}')}",
    )


def check_rows(audited: Audited, reproduce: str) -> list[CheckRow]:
    """The noise that left, and what state carries into rounds that a record is not in."""
    noise = [
        CheckRow(
            audit="noise",
            subject=f.kind,
            unit="",
            figure=f.ratio,
            verdict=Verdict.CONSISTENT if f.holds else Verdict.VIOLATED,
            reason=f.sentence,
            reproduce=reproduce,
        )
        for f in audited.noise
    ]
    emptied = [
        CheckRow(
            audit="server-state",
            subject=f.kind,
            unit=Unit.CLIENT_ZERO.value,
            figure=f.largest,
            verdict=Verdict.CONSISTENT if f.holds else Verdict.VIOLATED,
            reason=f.sentence,
            reproduce=reproduce,
        )
        for f in audited.emptied
    ]
    return [*noise, *(_state_row(f, reproduce) for f in audited.state), *emptied]


def _state_row(f: StateFinding, reproduce: str) -> CheckRow:
    """Something carried over is against the ledger, or against the proofs that leave it out of account."""
    word = Verdict.CONSISTENT if not f.moved else Verdict.UNSUPPORTED if f.holds else Verdict.VIOLATED
    if not f.outside:
        word = Verdict.NOT_APPLICABLE
    known = f"; the ledger says so: {f.carrier}" if f.carrier and f.moved else ""
    return CheckRow(
        audit="server-state",
        subject=f.kind,
        unit=f.unit.value,
        figure=f.mu,
        verdict=word,
        reason=f.sentence + known,
        reproduce=reproduce,
    )


def attack_row(attempt: Attempt) -> AttackRow:
    found = attempt.success
    return AttackRow(
        attack=attempt.attack,
        adversary=str(attempt.adversary),
        target=attempt.target,
        success=found.rate if found else None,
        low=found.low if found else None,
        high=found.high if found else None,
        chance=found.chance if found else None,
        blind=found.blind if found else None,
        guesses=found.guesses if found else 0,
        not_applicable=attempt.refusal,
    )


def utility_row(audited: Audited, confidence: float) -> Utility | None:
    if audited.before is None or audited.after is None:
        return None
    tests = len(audited.system.data.test_labels)
    accuracy = float(audited.after.accuracy[0])
    low, high = interval(round(accuracy * tests), tests, confidence)
    return Utility(
        tests=tests,
        accuracy=accuracy,
        accuracy_low=low,
        accuracy_high=high,
        loss_before=float(audited.before.loss[0]),
        loss_after=float(audited.after.loss[0]),
    )


def staleness_row(schedule: Schedule) -> Staleness | None:
    """From the schedule alone; None where every device takes part in every round."""
    ages = schedule.staleness()
    if not ages:
        return None
    sent = sorted(age for age in ages.elements() if age >= 0)
    return Staleness(
        reads=ages.total(),
        never_sent=ages[-1] / ages.total(),
        median=sent[len(sent) // 2] if sent else 0,
        largest=sent[-1] if sent else 0,
    )


def traffic_row(audited: Audited) -> Traffic | None:
    if audited.traffic is None:
        return None
    t = audited.traffic
    return Traffic(up=t.up.total(), down=t.down.total(), ids=t.id_bytes, messages=dict(sorted(t.messages.items())))


# The report's facts about what a system lets out: releases, how batches were drawn, where the noise is from.


def release_rows(ledger: Ledger) -> tuple[ReleaseRow, ...]:
    return tuple(
        ReleaseRow(
            kind=r.kind,
            what=r.what,
            noise=str(r.noise),
            seen_by=tuple(sorted(r.seen_by)),
            rounds=int(np.count_nonzero(r.rounds)),
            sensitivity={unit.value: float(r.sensitivity[unit]) for unit in sorted(r.sensitivity)},
            protects=tuple(unit.value for unit in sorted(r.sensitivity) if r.protects(unit)),
        )
        for r in ledger.releases
    )


def sampling_row(schedule: Schedule) -> SamplingRow:
    return SamplingRow(
        batching=schedule.batching.value,
        description=schedule.batching.description,
        batch_size=schedule.batch_size,
        records=schedule.records,
        fewest=int(schedule.size.min(initial=schedule.records)),
        most=int(schedule.size.max(initial=0)),
    )


def noise_source(settings: Any, seed: int) -> str:
    """Where the noise came from, and what that is worth."""
    secure = getattr(settings, "secure_noise", None)
    if secure is None:
        return "not known: no setting of this system says it"
    if secure:
        return "the operating system's secure generator"
    return (
        f"Philox4x32-10 from the seed {seed}, so that the run can be repeated: whoever knows the seed can subtract the "
        "noise; secure_noise = true takes it from the operating system"
    )


# The report's checks of a ledger file against the transcript: is every kind listed, and can the noise be there?


def ledger_checks(found: Recorded, config: LedgerConfig, reproduce: str) -> list[CheckRow]:
    """One row for each recorded kind that is not public, and one for each noise."""
    messages, audited = found.recording.transcript.messages, found.audited
    counts = Counter(m.kind for m in messages if m.kind not in config.public)
    listed = {r.kind for r in config.release}
    rows = []
    for kind, count in sorted(counts.items()):
        reader = None if kind in listed else _reader(kind, counts, audited, 1 - config.confidence)
        rows.append(_listed(kind, count, kind in listed, reader))
    rows += [
        _row("noise", n.kind, n.p_adjusted, Verdict.CONSISTENT if n.holds else Verdict.VIOLATED, n.sentence)
        for n in found.noises
    ]
    return [row.model_copy(update={"reproduce": reproduce}) for row in rows]


def _row(audit: str, subject: str, figure: float, verdict: Verdict, reason: str) -> CheckRow:
    return CheckRow(audit=audit, subject=subject, unit="", figure=figure, verdict=verdict, reason=reason, reproduce="")


def _listed(kind: str, count: int, listed: bool, reader: Attempt | None) -> CheckRow:
    """A kind that is missing breaks the ledger where an attack learns from it, and leaves it open elsewhere."""
    if listed:
        return _row("ledger", kind, count, Verdict.CONSISTENT, f"all {count} recorded messages are in the ledger")
    missing = f"{count} recorded messages are not in the ledger"
    if reader is None:
        return _row("ledger", kind, count, Verdict.UNSUPPORTED, f"{missing}: counted as exact, of everything")
    return _row(
        "ledger", kind, count, Verdict.VIOLATED, f"{missing}, and {reader.attack} learns {reader.target} from them"
    )


def _reader(kind: str, kinds: Collection[str], audited: Audited, alpha: float) -> Attempt | None:
    """The first attack that reads this kind alone and is right beyond chance, Bonferroni over all attempts."""
    tried = [(a, a.success) for a in audited.attempts if a.success is not None]
    for attempt, success in tried:
        alone = set(kinds) & find("attack", attempt.attack).needs == {kind}
        p = beyond_p_value(success, max(success.chance, success.blind or 0.0))
        if alone and p * len(tried) <= alpha:
            return attempt
    return None
