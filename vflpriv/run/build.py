"""From audited systems to the report: budgets, the decision of `vflpriv.audits.verdict`, and a row for each result."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from vflpriv import __version__
from vflpriv.audits.scoring.attempts import Attempt
from vflpriv.audits.statistics.bounds import gaussian_refusal
from vflpriv.audits.verdict import (
    Accounted,
    SystemDecision,
    SystemEvidence,
    decide,
    exceeds,
    success_tests,
)
from vflpriv.common.machine import machine
from vflpriv.common.registry import find
from vflpriv.config.models import Config
from vflpriv.core.audit import Finding
from vflpriv.core.budgets import Accountant, Budget, CurveExcess
from vflpriv.core.claims import MIN_TRIALS, Claim, SuccessClaim
from vflpriv.core.ledger import Exposure, Ledger, Reading
from vflpriv.core.systems import Source
from vflpriv.core.wire import Traffic
from vflpriv.recording.ledger_file import LedgerConfig
from vflpriv.report.attacks import FeatureCell
from vflpriv.report.audit import BudgetRow, ClaimRow, Report, SystemRow, Utility
from vflpriv.run.summary.advice import Advised, broken_premises, changes
from vflpriv.run.summary.budgets import (
    account,
    budget_row,
    budget_rows,
    claim_fields,
    curve_excess,
    spendings,
    view_budgets,
)
from vflpriv.run.summary.evidence import evidence_row
from vflpriv.run.summary.fingerprints import fingerprints
from vflpriv.run.summary.rows import (
    ClaimContext,
    attack_row,
    check_row,
    measurement_row,
    noise_source,
    release_rows,
    sampling_row,
    staleness_row,
    success_row,
    traffic_row,
)

__all__ = ["Audited", "build_report"]

_NEVER_TESTED = (
    "active or malicious devices: every party follows the protocol and looks",
    "what is not on the wire: timing, logs, files, sizes of packets",
    "leaks that show only to the holder of a key, only for one particular record, or only while nobody audits",
)
_UNCOUNTED = "hyper-parameter tuning was not counted: tuning_runs = N says how many trainings on this data came before"
_NO_FEATURES = "feature inference: the configuration has no section attack.features"


@dataclass(frozen=True, kw_only=True)
class Audited:
    """One system with its claims, the findings of all audits, and the results of one training."""

    system: Source
    claims: tuple[Claim, ...] = ()
    success_claims: tuple[SuccessClaim, ...] = ()
    findings: tuple[Finding, ...] = ()
    not_tested: tuple[str, ...] = ()
    """What could not be tested, a line each."""
    min_trials: int = MIN_TRIALS
    attempts: tuple[Attempt, ...] = ()
    repeated: tuple[Attempt, ...] = ()
    """The attacks that claims are about, each in several trainings."""
    utility: Utility | None = None
    traffic: Traffic | None = None
    importance: tuple[float, ...] = ()
    importance_caveat: str | None = None
    features: tuple[FeatureCell, ...] = ()
    assumed: tuple[str, ...] = ()
    """What every budget takes for granted and nothing measures: no claim is consistent on its strength."""

    @property
    def ledger(self) -> Ledger:
        """The system's ledger with the releases that audits found on the wire and that it lacks."""
        declared = self.system.ledger
        undeclared = tuple(release for finding in self.findings for release in finding.undeclared)
        return replace(declared, releases=(*declared.releases, *undeclared))


@dataclass(frozen=True, kw_only=True)
class _Budgets:
    """One claim's exposures and budgets by reading."""

    exposures: Mapping[Reading, Exposure]
    budgets: Mapping[Reading, Budget]
    excess: CurveExcess | None = None
    """Where the accounted curve exceeds that of a claim of μ-GDP, at other δ than the claim's."""

    @classmethod
    def of(cls, claim: Claim, ledger: Ledger, accountant: Accountant) -> _Budgets:
        exposures = {r: ledger.exposure(claim.adversary, claim.unit, reading=r) for r in Reading}
        budgets = {r: account(accountant, e, claim.delta) for r, e in exposures.items()}
        rigorous, budget = exposures[Reading.RIGOROUS], budgets[Reading.RIGOROUS]
        # Where μ is accounted it is the whole curve; and what exceeds the claim at its own δ needs no other.
        whole = claim.stated == "mu" and budget.mu is None and rigorous.not_applicable is None
        elsewhere = whole and not exceeds(budget, claim)
        excess = curve_excess(accountant, rigorous, claim.mu) if elsewhere else None
        return cls(exposures=exposures, budgets=budgets, excess=excess)

    @property
    def leaks(self) -> bool:
        """Whether the paper's reading leaves something out of account."""
        return self.budgets[Reading.RIGOROUS].upper != self.budgets[Reading.PAPER].upper

    @property
    def accounted(self) -> Accounted:
        return Accounted(
            rigorous=self.budgets[Reading.RIGOROUS],
            excess=self.excess,
            paper=self.budgets[Reading.PAPER] if self.leaks else None,
            not_applicable=self.exposures[Reading.RIGOROUS].not_applicable,
            assumed=self.exposures[Reading.RIGOROUS].assumed,
        )

    def row(self, reading: Reading) -> BudgetRow:
        return budget_row(self.exposures[reading], self.budgets[reading])


def build_report(
    audited: Sequence[Audited],
    config: Config | LedgerConfig,
    *,
    reproduce: str,
    select: bool = True,
    trust_ledger: bool = False,
    own: Mapping[str, str | None] | None = None,
) -> Report:
    """The report of all systems; `reproduce` is the command, to which `--only` is added if `select`.

    With `trust_ledger`, claims that rest on the ledger's word alone do not count for the exit code. `own` are the
    hashes of a user's transcript or training function, by what it is.
    """
    accountant: Accountant = find("accountant", config.accountant)()
    budgets = {
        a.system.key: {claim.key: _Budgets.of(claim, a.ledger, accountant) for claim in a.claims} for a in audited
    }
    written = "the ledger you wrote" if isinstance(config, LedgerConfig) else "the ledger"
    evidence = {a.system.key: _evidence(a, budgets[a.system.key], written) for a in audited}
    decision = decide(
        list(evidence.values()),
        alpha=1 - config.verdict_confidence,
        confidence=config.confidence,
        trust_ledger=trust_ledger,
    )
    level = (1 - config.verdict_confidence) / max(1, decision.tests)
    systems = []
    for a in audited:
        key = a.system.key
        command = f"{reproduce} --only {key}" if select else reproduce
        row = _system(a, decision.systems[key], budgets[key], accountant, config, command, level)
        systems.append(row.model_copy(update={"evidence": evidence_row(evidence[key])}))
    given = json.loads(config.model_dump_json())
    return Report(
        tool_version=__version__,
        machine=machine(),
        seed=config.seed,
        confidence=config.confidence,
        verdict_confidence=config.verdict_confidence,
        ledger_trusted=trust_ledger,
        systems=tuple(systems),
        not_tested=_not_tested(audited, asked=isinstance(config, LedgerConfig)),
        config=given,
        exit_code=decision.exit_code,
        fingerprints=fingerprints(given, systems, own=own or {}),
    )


def _evidence(audited: Audited, budgets: Mapping[str, _Budgets], ledger: str) -> SystemEvidence:
    system = audited.system
    return SystemEvidence(
        key=system.key,
        claims=audited.claims,
        accounted={key: _assuming(b.accounted, audited.assumed) for key, b in budgets.items()},
        findings=audited.findings,
        successes=success_tests(
            audited.success_claims,
            audited.attempts,
            devices=system.schedule.devices,
            classes=system.classes,
            repeated=audited.repeated,
        ),
        min_trials=audited.min_trials,
        ledger=ledger,
    )


def _assuming(accounted: Accounted, assumed: tuple[str, ...]) -> Accounted:
    return replace(accounted, assumed=(*accounted.assumed, *assumed))


def _not_tested(audited: Sequence[Audited], *, asked: bool) -> tuple[str, ...]:
    """What no part of the audit tested; `asked` if the systems say themselves what was not asked of features."""
    lines = [f"{a.system.key}: {line}" for a in audited for line in a.not_tested]
    lines += [
        f"{a.system.key}: no trials were run" for a in audited if a.claims and not any(f.is_test for f in a.findings)
    ]
    uncounted = [a.system.key for a in audited if a.ledger.tuning_runs is None]
    lines += [_UNCOUNTED] if len(uncounted) == len(audited) else [f"{key}: {_UNCOUNTED}" for key in uncounted]
    features = asked or any(a.features for a in audited)
    return (*lines, *_NEVER_TESTED, *(() if features else (_NO_FEATURES,)))


def _system(
    audited: Audited,
    decision: SystemDecision,
    claim_budgets: Mapping[str, _Budgets],
    accountant: Accountant,
    config: Config | LedgerConfig,
    reproduce: str,
    level: float,
) -> SystemRow:
    system, ledger = audited.system, audited.ledger
    budgets = tuple(budget_rows(ledger, accountant, system.delta))
    rows = [_claim(c, decision, claim_budgets[c.key], audited.min_trials, reproduce, level) for c in audited.claims]
    rows = [_spent(row, c, system, ledger, accountant, budgets) for row, c in zip(rows, audited.claims, strict=True)]
    claims = tuple(
        _advised(row, c, audited, decision, claim_budgets[c.key], accountant)
        for row, c in zip(rows, audited.claims, strict=True)
    )
    by_key = {claim.key: claim for claim in audited.claims}
    shown = [c for c in decision.findings if not c.finding.is_untested]
    return SystemRow(
        key=system.key,
        title=system.title or system.key,
        engine=system.engine_name,
        settings=system.settings_facts,
        data=system.data_facts,
        rounds=system.rounds,
        claims=claims,
        success_claims=tuple(success_row(judged, reproduce) for judged in decision.successes),
        budgets=budgets,
        # Measurements are rows of their claims.
        checks=tuple(check_row(c, by_key, reproduce) for c in shown if c.finding.measurement is None),
        attacks=tuple(attack_row(attempt) for attempt in audited.attempts),
        utility=audited.utility,
        traffic=None if audited.traffic is None else traffic_row(audited.traffic),
        staleness=staleness_row(system.staleness()),
        importance=audited.importance,
        importance_caveat=audited.importance_caveat,
        features=audited.features,
        releases=release_rows(ledger),
        sampling=sampling_row(system.schedule),
        noise_source=noise_source(system),
    )


def _claim(
    claim: Claim,
    decision: SystemDecision,
    budgets: _Budgets,
    min_trials: int,
    reproduce: str,
    level: float,
) -> ClaimRow:
    judgement = decision.judgements[claim.key]
    context = ClaimContext(
        claim=claim,
        exposure=budgets.exposures[Reading.PAPER],
        refusal=gaussian_refusal(budgets.exposures[Reading.RIGOROUS], leaks=budgets.leaks),
        level=level,
    )
    deciding = decision.deciding(claim, min_trials)
    rows = [measurement_row(test, context, decides=test is deciding) for test in decision.tests_of(claim)]
    return ClaimRow(
        **claim_fields(claim),
        unit_description=claim.unit.description,
        delta=claim.delta,
        epsilon=claim.epsilon,
        mu=claim.mu,
        stated=claim.stated,
        accounted=budgets.row(Reading.RIGOROUS),
        paper_reading=budgets.row(Reading.PAPER) if budgets.leaks else None,
        measurements=tuple(row for row in rows if row is not None),
        verdict=judgement.verdict,
        reason=judgement.reason,
        reproduce=reproduce,
    )


def _spent(
    row: ClaimRow,
    claim: Claim,
    system: Source,
    ledger: Ledger,
    accountant: Accountant,
    budgets: Sequence[BudgetRow],
) -> ClaimRow:
    """The claim with its budgets for every view, over rounds as the training counts them, and over records."""
    own = [b for b in (row.accounted, row.paper_reading) if b is not None]
    spent = [
        s.model_copy(update={"rounds": tuple(map(system.rounds_after, s.rounds))})
        for s in spendings(ledger, claim, accountant, own)
    ]
    views = view_budgets(ledger, claim, accountant, budgets)
    return row.model_copy(update={"views": views, "spending": tuple(spent)})


def _advised(
    row: ClaimRow,
    claim: Claim,
    audited: Audited,
    decision: SystemDecision,
    budgets: _Budgets,
    accountant: Accountant,
) -> ClaimRow:
    """The claim with its broken premises, and with what to change."""
    budget = budgets.budgets[Reading.RIGOROUS]
    advised = Advised(
        system=audited.system,
        ledger=audited.ledger,
        claim=claim,
        verdict=row.verdict,
        budget=budget,
        exposure=budgets.exposures[Reading.RIGOROUS],
        within=budgets.excess is None and not exceeds(budget, claim),
        findings=decision.findings,
    )
    return row.model_copy(update={"broken": broken_premises(advised), "changes": changes(advised, accountant)})
