"""From what was found to the report: budgets, measurements, Holm over all tests, verdicts."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import numpy as np

from vflpriv import __version__
from vflpriv.audits._gdp import gaussian_refusal
from vflpriv.audits._holm import holm_adjusted
from vflpriv.audits.sensitivity import Finding
from vflpriv.audits.verdict import judge
from vflpriv.budgets import Accountant
from vflpriv.claims import Claim
from vflpriv.config import Config
from vflpriv.ledger import Reading
from vflpriv.registry import find
from vflpriv.report import BudgetRow, ClaimRow, Report, SystemRow
from vflpriv.report_budgets import account, budget_row, budget_rows
from vflpriv.report_facts import attack_row, check_rows, sensitivity_row, staleness_row, traffic_row, utility_row
from vflpriv.report_measured import ClaimTrial, Found, claim_test, measurement_row, one_run_row, tests_of
from vflpriv.report_releases import noise_source, release_rows, sampling_row
from vflpriv.report_spending import spendings, view_budgets
from vflpriv.report_success import SuccessTest, success_row, success_tests
from vflpriv.run import Audited
from vflpriv.units import Unit
from vflpriv.verdicts import Word

__all__ = ["build_report"]

_DEFAULT_DELTA = 1e-5
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
        exit_code=1 if Word.VIOLATED in words else 3 if Word.UNSUPPORTED in words else 0,
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
    delta = float(getattr(system.settings, "delta", _DEFAULT_DELTA))
    budgets = tuple(budget_rows(system.ledger, accountant, delta))
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
        data={
            "name": data.name,
            "records": data.records,
            "devices": data.devices,
            "classes": data.classes,
            "features": [int(np.prod(block.shape[1:])) for block in data.blocks],
        },
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
        verdict=verdict.word,
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
