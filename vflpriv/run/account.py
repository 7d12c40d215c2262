"""`vflpriv account`: the budgets and curves of every system of a configuration or of a recording, without training."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vflpriv import __version__
from vflpriv.accountants.cross_checks import cross_checks
from vflpriv.accountants.curves import PrivacyCurve, RoundCurve, over_rounds, privacy_curve, record_epsilons
from vflpriv.common.registry import find
from vflpriv.config.models import Config
from vflpriv.core.budgets import Accountant, Budget
from vflpriv.core.claims import Claim
from vflpriv.core.ledger import Exposure, Reading
from vflpriv.core.systems import Source
from vflpriv.core.units import Unit
from vflpriv.core.views import Adversary
from vflpriv.errors import InputError
from vflpriv.recording.ledger_file import load_ledger
from vflpriv.recording.system import read_recording
from vflpriv.report.account import AccountedClaim, AccountRow, Accounts, CrossCheckRow, Curves
from vflpriv.run.selection import places
from vflpriv.run.summary.budgets import both_readings, budget_row, budget_rows, claim_fields
from vflpriv.run.systems import claims_of, declare_system, read_data

__all__ = [
    "Claimed",
    "account_system",
    "accounted_recording",
    "accounted_systems",
    "accounts_of",
    "claim_curves",
    "curves_of",
    "with_cross_checks",
]

Claimed = tuple[Source, tuple[Claim, ...]]
"""A system and its claims."""


def accounted_systems(config: Config, only: Sequence[str]) -> tuple[list[Claimed], Accountant]:
    """The selected systems with their claims, and the accountant of the configuration."""
    chosen = places(config, only)
    accountant: Accountant = find("accountant", config.accountant)()
    data = read_data(config)
    systems = [(declare_system(config, place, data), config.system[place]) for place in chosen]
    return [(system, claims_of(system, section)) for system, section in systems], accountant


def accounted_recording(
    transcript: Path, ledger: Path, accountant: str | None = None
) -> tuple[list[Claimed], Accountant]:
    """A recorded training as a system with its claims, and the accountant; that of the ledger file if none is named."""
    config = load_ledger(ledger)
    chosen: Accountant = find("accountant", accountant or config.accountant)()
    system = read_recording(transcript, config)
    return [(system, system.claims)], chosen


def accounts_of(systems: Sequence[Claimed], accountant: Accountant, delta: float | None) -> Accounts:
    """Every system's budgets at `delta`; at each system's own if that is None."""
    if delta is not None and not 0 <= delta < 1:
        raise InputError("--delta", delta, "a number from 0 to below 1")
    rows = tuple(account_system(system, accountant, delta, claims) for system, claims in systems)
    return Accounts(tool_version=__version__, accountant=accountant.name, systems=rows)


def account_system(system: Source, accountant: Accountant, delta: float | None, claims: Sequence[Claim]) -> AccountRow:
    """All budgets of a system at `delta` (its own if None), and its claims, each accounted at the claim's delta."""
    chosen = system.delta if delta is None else delta
    ledger, schedule = system.ledger, system.schedule
    return AccountRow(
        key=system.key,
        engine=system.engine_name,
        records=schedule.records,
        devices=schedule.devices,
        rounds=system.rounds,
        batch_size=schedule.batch_size,
        schedule=schedule.batching.value,
        noise_std=system.noise_std,
        delta=chosen,
        claims=tuple(_claim(system, c, accountant) for c in claims),
        budgets=tuple(budget_rows(ledger, accountant, chosen)),
    )


def _claim(system: Source, claim: Claim, accountant: Accountant) -> AccountedClaim:
    rows = [budget_row(exposure, budget) for exposure, budget in _claim_budgets(system, claim, accountant)]
    return AccountedClaim(
        **claim_fields(claim),
        delta=claim.delta,
        epsilon=claim.epsilon,
        mu=claim.mu,
        accounted=rows[0],
        paper_reading=rows[1] if len(rows) > 1 else None,
    )


def _claim_budgets(system: Source, claim: Claim, accountant: Accountant) -> list[tuple[Exposure, Budget]]:
    return both_readings(system.ledger, claim.adversary, claim.unit, accountant, claim.delta)


def claim_curves(system: Source, accountant: Accountant, claims: Sequence[Claim]) -> list[Curves]:
    """The curves of every claim's budgets, in both readings where they differ."""
    return [
        curves
        for claim in claims
        for exposure, _ in _claim_budgets(system, claim, accountant)
        for curves in curves_of(system, exposure, claim.adversary, accountant, claim.delta, claim)
    ]


def curves_of(
    system: Source,
    exposure: Exposure,
    adversary: Adversary,
    accountant: Accountant,
    delta: float,
    claim: Claim | None = None,
) -> list[Curves]:
    """The curves of one exposure; none where it does not apply or the accountant has no bound."""
    if accountant.supports(exposure) is not None or delta == 0:
        return []
    unit: Unit = exposure.unit
    privacy: PrivacyCurve = privacy_curve(accountant, exposure)
    rounds: RoundCurve = over_rounds(accountant, system.ledger, adversary, unit, delta, reading=exposure.reading)
    records = record_epsilons(exposure, delta)
    columns: dict[str, Any] = {
        "deltas": privacy.deltas,
        "epsilon_lower": privacy.epsilon_lower,
        "epsilon_upper": privacy.epsilon_upper,
        "alphas": privacy.alphas,
        "betas": privacy.betas,
        "rounds": rounds.rounds,
        "rounds_epsilon_lower": rounds.epsilon_lower,
        "rounds_epsilon_upper": rounds.epsilon_upper,
    }
    return [
        Curves(
            system=system.key,
            adversary=str(adversary),
            unit=unit.value,
            reading=exposure.reading.value,
            batches=exposure.batches,
            accountant=accountant.name,
            claimed_epsilon=None if claim is None else claim.epsilon,
            claimed_mu=None if claim is None else claim.mu,
            delta=delta,
            exact=privacy.exact,
            record_epsilons=None if records is None else tuple(records.tolist()),
            **{name: tuple(values.tolist()) for name, values in columns.items()},
        )
    ]


def with_cross_checks(accounts: Accounts, systems: Sequence[Claimed]) -> Accounts:
    """The same accounts, with what other libraries answer about the budgets of every claim."""
    rows = []
    for row, (system, claims) in zip(accounts.systems, systems, strict=True):
        checked = [_checked(accounted, system, claim) for accounted, claim in zip(row.claims, claims, strict=True)]
        rows.append(row.model_copy(update={"claims": tuple(checked)}))
    return accounts.model_copy(update={"systems": tuple(rows)})


def _checked(accounted: AccountedClaim, system: Source, claim: Claim) -> AccountedClaim:
    """Both readings where they differ; a reading with an infinite budget has nothing to be checked."""
    rows = []
    for budget in (accounted.accounted, accounted.paper_reading):
        if budget is None:
            continue
        exposure = system.ledger.exposure(claim.adversary, claim.unit, reading=Reading(budget.reading))
        rows += [
            CrossCheckRow(
                reading=budget.reading,
                library=check.library,
                epsilon=check.epsilon,
                error=check.error,
                note=check.note,
                refusal=check.refusal,
                too_low=check.is_too_low(budget.epsilon_lower),
            )
            for check in cross_checks(exposure, claim.delta)
        ]
    return accounted.model_copy(update={"cross_checks": tuple(rows)})
