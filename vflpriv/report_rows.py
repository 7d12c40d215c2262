"""From what was found to the report: budgets, measurements, Holm over all tests, verdicts."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from vflpriv import __version__
from vflpriv.audits._bounds import epsilon_error_rate
from vflpriv.audits._gdp import epsilon_from_mu, mu_error_rate, mu_estimate, mu_rectangle, p_value_gdp
from vflpriv.audits._holm import holm_adjusted
from vflpriv.audits.sensitivity import Finding
from vflpriv.audits.two_world import Trials
from vflpriv.audits.verdict import ClaimTest, judge
from vflpriv.budgets import Accountant
from vflpriv.canaries import CanaryKind
from vflpriv.claims import Claim
from vflpriv.config import Config
from vflpriv.ledger import Exposure, Reading
from vflpriv.registry import find
from vflpriv.report import (
    ClaimRow,
    MeasurementRow,
    Report,
    SystemRow,
)
from vflpriv.report_budgets import account, budget_row, budget_rows
from vflpriv.report_facts import attack_row, sensitivity_row, staleness_row, traffic_row, utility_row
from vflpriv.report_success import SuccessTest, success_row, success_tests
from vflpriv.run import Audited
from vflpriv.verdicts import Word

__all__ = ["build_report"]

_DEFAULT_DELTA = 1e-5
_NEVER_TESTED = (
    "active or malicious devices: every party follows the protocol and looks",
    "runs spent on tuning hyper-parameters: they are not part of any budget here",
    "floating-point side channels of the noise (Mironov 2012)",
    "feature inference: no feature attack is part of this audit",
)


@dataclass(frozen=True)
class _Test:
    """One measurement of one claim, with its raw p-value."""

    claim: Claim
    kind: CanaryKind
    trials: Trials
    p_value: float


def build_report(audited: Sequence[Audited], config: Config, *, reproduce: str) -> Report:
    """The report of all systems; `reproduce` is the command without `--only`."""
    accountant: Accountant = find("accountant", config.accountant)()
    tests = {a.config.key: _tests(a) for a in audited}
    successes = {a.config.key: success_tests(a) for a in audited}
    flat: list[_Test | SuccessTest] = [t for found in tests.values() for t in found]
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
            f"{reproduce} --only {a.config.key}",
        )
        for a in audited
    )
    words = [c.verdict for s in systems for c in s.all_claims]
    skipped = [f"{a.config.key}: {text}" for a in audited for text in a.skipped]
    untried = [f"{a.config.key}: no trials were run" for a in audited if a.claims and not any(a.trials.values())]
    return Report(
        tool_version=__version__,
        seed=config.seed,
        confidence=config.confidence,
        systems=systems,
        not_tested=(*skipped, *untried, *_NEVER_TESTED),
        config=json.loads(config.model_dump_json()),
        exit_code=1 if Word.VIOLATED in words else 3 if Word.UNSUPPORTED in words else 0,
    )


def _tests(audited: Audited) -> list[_Test]:
    """Every test of every claim; a canary only speaks of claims whose unit covers what it changes."""
    return [
        _Test(claim, kind, trials, p_value_gdp(trials.errors, claim.mu))
        for claim in audited.claims
        for kind, trials in audited.trials.get(claim.key, [])
        if claim.unit.implies(trials.unit)
    ]


def _system(
    audited: Audited,
    tests: Sequence[_Test],
    successes: Sequence[SuccessTest],
    adjusted: Mapping[int, float],
    accountant: Accountant,
    config: Config,
    reproduce: str,
) -> SystemRow:
    system, data = audited.system, audited.system.data
    delta = float(getattr(system.settings, "delta", _DEFAULT_DELTA))
    claims = tuple(
        _claim(audited, c, [t for t in tests if t.claim is c], adjusted, accountant, config, reproduce)
        for c in audited.claims
    )
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
        budgets=tuple(budget_rows(system.ledger, accountant, delta)),
        sensitivity=tuple(sensitivity_row(f) for f in audited.findings),
        attacks=tuple(attack_row(a) for a in audited.attempts),
        utility=utility_row(audited, config.confidence),
        traffic=traffic_row(audited),
        staleness=staleness_row(system.schedule),
        importance=audited.importance,
    )


def _claim(
    audited: Audited,
    claim: Claim,
    tests: Sequence[_Test],
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
        tests=[_claim_test(t, rejected[id(t)], config.confidence) for t in tests],
        sensitivity_broken=_broken(audited.findings, claim),
        alpha=alpha,
        not_applicable=exposures[Reading.RIGOROUS].not_applicable,
    )
    gaussian = exposures[Reading.RIGOROUS].gaussian and not leaks
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
        measurements=tuple(
            _measurement(t, adjusted[id(t)], rejected[id(t)], config.confidence, gaussian, paper) for t in tests
        ),
        verdict=verdict.word,
        reason=verdict.reason,
        reproduce=reproduce,
    )


def _claim_test(test: _Test, rejected: bool, confidence: float) -> ClaimTest:
    errors = test.trials.errors
    return ClaimTest(
        canary=test.kind.value,
        adversary=test.trials.adversary,
        errors=errors,
        mu_lower=mu_error_rate(errors, confidence).mu or 0.0,
        p_value=test.p_value,
        rejected=rejected,
    )


def _broken(findings: Sequence[Finding], claim: Claim) -> str | None:
    for f in findings:
        if f.unit is claim.unit and not f.holds:
            return (
                f"{f.mechanism} declares {f.declared:.4g} for the {f.unit} unit, found {f.observed:.4g} ({f.witness})"
            )
    return None


def _measurement(
    test: _Test, p_adjusted: float, rejected: bool, confidence: float, gaussian: bool, exposure: Exposure
) -> MeasurementRow:
    errors, delta = test.trials.errors, test.claim.delta
    lower = mu_error_rate(errors, confidence).mu or 0.0
    return MeasurementRow(
        canary=test.kind.value,
        canary_description=test.kind.description,
        adversary=str(test.trials.adversary),
        unit=test.trials.unit.value,
        record=test.trials.canary.record,
        trials_per_world=errors.positives,
        false_positives=errors.false_positives,
        false_negatives=errors.false_negatives,
        confidence=confidence,
        mu_lower=lower,
        mu_estimate=mu_estimate(errors),
        mu_rectangle=mu_rectangle(errors, confidence).mu or 0.0,
        epsilon_lower=epsilon_error_rate(errors, delta, confidence).epsilon or 0.0,
        epsilon_from_mu=epsilon_from_mu(lower, delta, gaussian=gaussian),
        mu_accounted=exposure.mu if exposure.gaussian else None,
        p_value=test.p_value,
        p_adjusted=p_adjusted,
        refutes=rejected and lower > test.claim.mu,
        curve=tuple(test.trials.curve()),
    )
