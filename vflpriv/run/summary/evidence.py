"""What the verdicts of a report rest on, as rows of the report and back: whoever has the report can decide again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from vflpriv.audits.scoring.score import SHARE, scored
from vflpriv.audits.success import SuccessTest
from vflpriv.audits.verdict import Accounted, SystemEvidence, budget_as_claim
from vflpriv.core.audit import ClaimTest, Finding, Measurement
from vflpriv.core.budgets import Budget, CurveExcess
from vflpriv.core.claims import Claim, SuccessClaim
from vflpriv.core.units import Unit
from vflpriv.core.views import Adversary
from vflpriv.errors import InputError
from vflpriv.report.audit import SystemRow
from vflpriv.report.evidence import BudgetTestRow, EvidenceRow, ExcessRow, FiguresRow, FindingRow, SuccessRow
from vflpriv.report.rows import BudgetRow, ClaimRow, SuccessClaimRow

__all__ = ["budget_of", "claim_of", "evidence_of", "evidence_row"]


# From what was decided by to rows


def evidence_row(evidence: SystemEvidence) -> EvidenceRow:
    """Everything that the verdicts rest on and that rows of claims do not say."""
    excesses = {key: a.excess for key, a in evidence.accounted.items() if a.excess is not None}
    return EvidenceRow(
        min_trials=evidence.min_trials,
        ledger=evidence.ledger,
        findings=tuple(_finding_row(f, evidence) for f in evidence.findings),
        excesses={
            key: ExcessRow(delta=e.delta, accounted=e.accounted, claimed=e.claimed) for key, e in excesses.items()
        },
        assumed={key: a.assumed for key, a in evidence.accounted.items() if a.assumed},
        successes=tuple(_success_row(test) for test in evidence.successes),
    )


def _finding_row(finding: Finding, evidence: SystemEvidence) -> FindingRow:
    measurement = finding.measurement
    accounted = budget_as_claim(finding.claim or "", evidence) if finding.is_test else None
    against = measurement.against if measurement is not None else None
    units = finding.claim_units
    return FindingRow(
        audit=finding.audit,
        subject=finding.subject,
        verdict=finding.verdict,
        sentence=finding.sentence,
        note=finding.note,
        figure=finding.figure,
        measure=finding.measure,
        claim=finding.claim,
        claim_units=None if units is None else tuple(sorted(unit.value for unit in units)),
        claim_keys=None if finding.claim_keys is None else tuple(sorted(finding.claim_keys)),
        unit=None if finding.unit is None else finding.unit.value,
        adversary=None if finding.adversary is None else str(finding.adversary),
        p_value=finding.p_value,
        trials=finding.trials,
        decides_alone=finding.decides_alone,
        measures=finding.measures,
        figures=None if measurement is None else _figures_row(measurement),
        of_budget=None if accounted is None or against is None else _budget_test(against(accounted), accounted),
    )


def _figures_row(measurement: Measurement) -> FiguresRow:
    return FiguresRow(
        unit=measurement.unit.value,
        view=str(measurement.view),
        decides=measurement.decides,
        mu=measurement.mu,
        epsilon=measurement.epsilon,
        delta=measurement.delta,
        exact=measurement.exact,
        confidence=measurement.confidence,
        assumptions=measurement.assumptions,
        strength=measurement.strength,
        p_value=measurement.p_value,
        trials=measurement.trials,
        facts=dict(measurement.facts),
    )


def _budget_test(test: ClaimTest, accounted: Claim) -> BudgetTestRow:
    return BudgetTestRow(
        epsilon=accounted.epsilon,
        measure=test.measure,
        figure=test.figure,
        p_value=test.p_value,
        assumptions=test.assumptions,
    )


def _success_row(test: SuccessTest) -> SuccessRow:
    score = test.success
    return SuccessRow(
        claim=test.claim.key,
        claim_classes=test.claim.classes,
        classes=test.classes,
        refusal=test.refusal,
        rates=test.rates,
        figures=None if score is None else (score.value, score.low, score.high),
        chance=None if score is None else score.chance,
        guesses=0 if score is None else score.guesses,
    )


# From rows to what was decided by


def evidence_of(system: SystemRow) -> SystemEvidence:
    """What the verdicts of a system rest on, by the numbers of the report alone."""
    row = system.evidence
    if row is None:
        raise InputError("report: evidence", system.key, "the figures that verdicts rest on; older reports lack them")
    return SystemEvidence(
        key=system.key,
        claims=tuple(claim_of(claim) for claim in system.claims),
        accounted={claim.key: _accounted(claim, row) for claim in system.claims},
        findings=tuple(_finding(finding) for finding in row.findings),
        successes=tuple(_success(success, system.success_claims) for success in row.successes),
        min_trials=row.min_trials,
        ledger=row.ledger,
    )


def claim_of(row: ClaimRow) -> Claim:
    """The claim that a row is about."""
    return Claim(
        key=row.key,
        source=row.source,
        where=row.where,
        statement=row.statement,
        unit=Unit(row.unit),
        adversary=Adversary.parse(row.adversary),
        epsilon=row.epsilon,
        delta=row.delta,
        mu=row.mu,
        stated=row.stated,
    )


def _accounted(claim: ClaimRow, row: EvidenceRow) -> Accounted:
    excess = row.excesses.get(claim.key)
    return Accounted(
        rigorous=budget_of(claim.accounted),
        excess=None if excess is None else CurveExcess(**dict(excess)),
        paper=None if claim.paper_reading is None else budget_of(claim.paper_reading),
        not_applicable=claim.accounted.not_applicable,
        assumed=row.assumed.get(claim.key, ()),
    )


def budget_of(row: BudgetRow) -> Budget:
    """The budget that a row is about."""
    return Budget(
        accountant=row.accountant,
        method=row.method,
        delta=row.delta,
        lower=row.epsilon_lower,
        estimate=row.epsilon,
        upper=row.epsilon_upper,
        mu=row.mu,
        assumptions=row.assumptions,
        approximations=row.approximations,
    )


def _finding(row: FindingRow) -> Finding:
    fields = row.model_dump(exclude={"figures", "of_budget", "claim_units", "claim_keys", "unit", "adversary"})
    figures = row.figures
    return Finding(
        **fields,
        claim_units=None if row.claim_units is None else frozenset(map(Unit, row.claim_units)),
        claim_keys=None if row.claim_keys is None else frozenset(row.claim_keys),
        unit=None if row.unit is None else Unit(row.unit),
        adversary=None if row.adversary is None else Adversary.parse(row.adversary),
        measurement=None if figures is None else _measurement(figures, row.sentence, row.of_budget),
    )


def _measurement(row: FiguresRow, outcome: str, of_budget: BudgetTestRow | None) -> Measurement:
    fields = row.model_dump(exclude={"unit", "view"})
    made = Measurement(
        **fields, unit=Unit(row.unit), view=Adversary.parse(row.view), method="as reported", outcome=outcome
    )
    return made if of_budget is None else replace(made, against=_recorded_test(of_budget))


def _recorded_test(row: BudgetTestRow) -> Callable[[Claim], ClaimTest]:
    """The test of the accounted budget as it was made; of another budget there is none."""

    def against(accounted: Claim) -> ClaimTest:
        if accounted.epsilon != row.epsilon:
            expected = f"{row.epsilon}, against which the measurement was tested"
            raise InputError(f"report: accounted ε of {accounted.key}", accounted.epsilon, expected)
        return ClaimTest(row.measure, row.figure, row.p_value, row.assumptions)

    return against


def _success(row: SuccessRow, claims: tuple[SuccessClaimRow, ...]) -> SuccessTest:
    by_key: Mapping[str, SuccessClaimRow] = {claim.key: claim for claim in claims}
    if row.claim not in by_key:
        raise InputError("report: evidence of a success", row.claim, f"one of the claims {', '.join(by_key)}")
    claim, figures = by_key[row.claim], row.figures
    score = None if figures is None else scored(SHARE, figures, chance=row.chance or 0.0, guesses=row.guesses)
    return SuccessTest(
        claim=SuccessClaim(
            key=claim.key,
            source=claim.source,
            where=claim.where,
            statement=claim.statement,
            unit=Unit(claim.unit),
            adversary=Adversary.parse(claim.adversary),
            attack=claim.attack,
            rate=claim.rate,
            classes=row.claim_classes,
        ),
        success=score,
        refusal=row.refusal,
        classes=row.classes,
        rates=row.rates,
    )
