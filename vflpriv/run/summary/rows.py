"""From findings, attempts, schedules and ledgers to rows of the report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass

import numpy as np

from vflpriv.audits.scoring.attempts import Attempt
from vflpriv.audits.statistics.bounds import epsilon_from_mu, interval
from vflpriv.audits.statistics.power import EXCESS
from vflpriv.audits.verdict import CorrectedFinding, JudgedSuccess
from vflpriv.common import formatting
from vflpriv.common.seeds import STREAMS
from vflpriv.core import wire
from vflpriv.core.audit import EPSILON, KNOWN_NOISE, Bound
from vflpriv.core.budgets import epsilon_of
from vflpriv.core.claims import Claim, Verdict
from vflpriv.core.engine import Evaluation
from vflpriv.core.ledger import Exposure, Ledger
from vflpriv.core.schedules import Schedule
from vflpriv.core.systems import Source
from vflpriv.report.audit import (
    AttackRow,
    BoundRow,
    CheckRow,
    ErrorsRow,
    MeasurementRow,
    ReleaseRow,
    SamplingRow,
    Staleness,
    SuccessClaimRow,
    Traffic,
    Utility,
)
from vflpriv.run.summary.advice import premise_changes, success_changes
from vflpriv.run.summary.budgets import claim_fields

__all__ = [
    "ClaimContext",
    "attack_row",
    "check_row",
    "measurement_row",
    "noise_source",
    "release_rows",
    "sampling_row",
    "staleness_row",
    "success_row",
    "traffic_row",
    "utility_row",
]


@dataclass(frozen=True, kw_only=True)
class ClaimContext:
    """What rows of a claim's tests need to know beside the test."""

    claim: Claim
    exposure: Exposure
    """Under the paper's reading."""
    refusal: str | None
    """Why a bound on μ gives no ε, or None where it does."""
    level: float
    """The p-value at which Holm's procedure rejects any test of the report, whatever the others show."""


def measurement_row(test: CorrectedFinding, context: ClaimContext, *, decides: bool) -> MeasurementRow | None:
    """What a test of the claim measured, whoever made it; None if it compares no bound on ε or μ with the claim."""
    measurement, finding = test.finding.measurement, test.finding
    if measurement is None:
        return None
    delta, gaussian, errors = context.claim.delta, context.refusal is None, measurement.errors
    bounds = [bound for bound in measurement.bounds if gaussian or bound.basis != KNOWN_NOISE]
    bounds += [Bound(EPSILON, epsilon_of(b.value, delta), b.basis) for b in bounds if b.basis == KNOWN_NOISE]
    from_mu = None if measurement.mu is None else epsilon_from_mu(measurement.mu, delta, gaussian=gaussian)
    return MeasurementRow(
        audit=finding.audit,
        subject=finding.subject,
        description=measurement.description,
        adversary=str(measurement.view),
        unit=measurement.unit.value,
        method=measurement.method,
        outcome=measurement.outcome,
        measure=measurement.decides,
        figure=measurement.figure,
        mu=measurement.mu,
        epsilon=measurement.epsilon,
        epsilon_gaussian=from_mu,
        gaussian_refusal=context.refusal,
        exact=measurement.exact,
        confidence=measurement.confidence,
        assumptions=measurement.assumptions,
        assumes_gaussian=measurement.assumes_gaussian,
        witness=measurement.witness,
        trials=measurement.trials,
        errors=None if errors is None else ErrorsRow(**asdict(errors)),
        mu_accounted=context.exposure.mu if context.exposure.gaussian else None,
        p_value=finding.p_value,
        p_adjusted=test.p_adjusted,
        refutes=test.refutes,
        decides=decides,
        refuted_claim="" if test.claim == context.claim or test.claim is None else test.claim.key,
        power=None if measurement.power is None else measurement.power(context.level),
        power_excess=EXCESS,
        tool=measurement.tool or f"the {finding.audit} audit",
        effort=measurement.effort or measurement.outcome,
        bounds=tuple(BoundRow(**bound._asdict()) for bound in bounds),
        facts=dict(measurement.facts),
        notes=measurement.notes,
        curve=measurement.curve,
    )


def check_row(corrected: CorrectedFinding, claims: Mapping[str, Claim], reproduce: str) -> CheckRow:
    """A finding of any audit, known or not; `reproduce` is the command of the whole audit."""
    finding, reason = corrected.finding, corrected.finding.sentence + corrected.finding.note
    if finding.claim is not None:
        reason += f"; tests {claims[finding.claim].where}"
    if corrected.p_adjusted is not None:
        reason += f", p {formatting.p_value(corrected.p_adjusted)} after Holm's correction"
    return CheckRow(
        audit=finding.audit,
        subject=finding.subject,
        unit="" if finding.unit is None else finding.unit.value,
        figure=finding.figure,
        measure=finding.measure,
        limit=finding.limit,
        verdict=corrected.verdict,
        reason=reason,
        basis=finding.basis,
        reproduce=finding.reproduce or reproduce,
        changes=tuple(premise_changes(finding)) if corrected.verdict is Verdict.VIOLATED or finding.repair else (),
    )


def success_row(judged: JudgedSuccess, reproduce: str) -> SuccessClaimRow:
    """A claim about an attack, beside the attack's success."""
    claim, success = judged.test.claim, judged.test.success
    low, high = (None, None) if judged.bounds is None else judged.bounds
    return SuccessClaimRow(
        **claim_fields(claim),
        attack=claim.attack,
        rate=claim.rate,
        success=judged.test.rate,
        low=low,
        high=high,
        chance=success.chance if success else None,
        guesses=success.guesses if success else 0,
        trainings=max(1, len(judged.test.rates)) if success else 0,
        p_adjusted=judged.p_adjusted,
        verdict=judged.judgement.verdict,
        reason=judged.judgement.reason,
        reproduce=reproduce,
        changes=success_changes(judged),
    )


def attack_row(attempt: Attempt) -> AttackRow:
    """One attack through one view."""
    success = attempt.success
    return AttackRow(
        attack=attempt.attack,
        adversary=str(attempt.adversary),
        target=attempt.target,
        success=success.value if success else None,
        low=success.low if success else None,
        high=success.high if success else None,
        chance=success.chance if success else None,
        blind=success.blind if success else None,
        guesses=success.guesses if success else 0,
        population=success.population if success else None,
        not_applicable=attempt.refusal,
        adaptive=attempt.adaptive,
    )


def utility_row(before: Evaluation, after: Evaluation, *, tests: int, confidence: float) -> Utility:
    """The first replica's accuracy on so many test records, and its loss before and after training."""
    accuracy = float(after.accuracy[0])
    low, high = interval(round(accuracy * tests), tests, confidence)
    return Utility(
        tests=tests,
        accuracy=accuracy,
        accuracy_low=low,
        accuracy_high=high,
        loss_before=float(before.loss[0]),
        loss_after=float(after.loss[0]),
    )


def staleness_row(ages: Counter[int]) -> Staleness | None:
    """From the ages of embeddings that rounds read; None where every device takes part in every round."""
    if not ages:
        return None
    sent = sorted(age for age in ages.elements() if age >= 0)
    return Staleness(
        reads=ages.total(),
        never_sent=ages[-1] / ages.total(),
        median=sent[len(sent) // 2] if sent else 0,
        largest=sent[-1] if sent else 0,
    )


def traffic_row(traffic: wire.Traffic) -> Traffic:
    """Bytes of one training by direction."""
    messages = dict(sorted(traffic.messages.items()))
    return Traffic(up=traffic.up.total(), down=traffic.down.total(), ids=traffic.id_bytes, messages=messages)


def release_rows(ledger: Ledger) -> tuple[ReleaseRow, ...]:
    """Every release of the ledger."""
    return tuple(
        ReleaseRow(
            kind=r.kind,
            what=r.what,
            noise=str(r.noise),
            seen_by=tuple(sorted(r.seen_by)),
            rounds=int(np.count_nonzero(r.rounds)),
            sensitivity={unit.value: float(r.sensitivity[unit]) for unit in sorted(r.sensitivity)},
            protects=tuple(unit.value for unit in sorted(r.sensitivity) if r.protects(unit)),
            assumption=r.noise.sealed_by,
        )
        for r in ledger.releases
    )


def sampling_row(schedule: Schedule) -> SamplingRow:
    """How the batches were drawn."""
    return SamplingRow(
        batching=schedule.batching.value,
        description=schedule.batching.description,
        batch_size=schedule.batch_size,
        records=schedule.records,
        fewest=int(schedule.size.min(initial=schedule.records)),
        most=int(schedule.size.max(initial=0)),
    )


def noise_source(system: Source) -> str:
    """Where the secret random numbers of a training came from, all of them named, and who can compute them."""
    if system.secure_noise is None:
        return "not known: no setting of this system says it"
    if not system.secret_draws:
        return "nothing secret is drawn"
    drawn = ", ".join(STREAMS[name].drawn for name in system.secret_draws)
    if system.secret_key is not None:
        return f"{drawn}: ChaCha20 under a key of 256 bits from the operating system's entropy, which no report holds"
    return (
        f"{drawn}: Philox4x32-10 from the seed {system.seed}, so that the run can be repeated: anyone with the seed "
        "can subtract the noise and undo the rest; `vflpriv train` takes them from the operating system's entropy, as "
        "audits do with secure_noise = true"
    )
