"""Budgets as data: every system of a configuration accounted for, without training."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vflpriv import __version__
from vflpriv.accountants.curves import PrivacyCurve, RoundCurve, over_rounds, privacy_curve, record_epsilons
from vflpriv.common.registry import find
from vflpriv.config.models import Config
from vflpriv.core.budgets import Accountant
from vflpriv.core.claims import Claim
from vflpriv.core.ledger import Exposure, Reading
from vflpriv.core.systems import BaseSystem
from vflpriv.core.units import Unit
from vflpriv.core.views import Adversary
from vflpriv.errors import InputError
from vflpriv.report.account import AccountedClaim, AccountRow, Accounts, Curves
from vflpriv.run.budgets import account, budget_row, budget_rows
from vflpriv.run.selection import places

__all__ = [
    "Claimed",
    "account_system",
    "accounted_recording",
    "accounted_systems",
    "accounts_of",
    "claim_curves",
    "curves_of",
]

Claimed = tuple[BaseSystem, tuple[Claim, ...]]
"""A system, and what is claimed of it."""


def accounted_systems(config: Config, only: Sequence[str]) -> tuple[list[Claimed], Accountant]:
    """The wanted systems with their claims, and the accountant of the configuration."""
    from vflpriv.run.systems import build_system, claims_of, load_data

    chosen = places(config, only)
    accountant: Accountant = find("accountant", config.accountant)()
    data = load_data(config)
    systems = [(build_system(config, place, data), config.system[place]) for place in chosen]
    return [(system, claims_of(system, section)) for system, section in systems], accountant


def accounted_recording(
    transcript: Path, ledger: Path, accountant: str | None = None
) -> tuple[list[Claimed], Accountant]:
    """A recorded training as a system, and the accountant of its ledger file if none is named."""
    from vflpriv.recording.ledger_file import load_ledger
    from vflpriv.recording.system import read_recording

    config = load_ledger(ledger)
    chosen: Accountant = find("accountant", accountant or config.accountant)()
    system = read_recording(transcript, config)
    return [(system, system.claims)], chosen


def accounts_of(systems: Sequence[Claimed], accountant: Accountant, delta: float | None) -> Accounts:
    """Every system's budgets at `delta`, at its own if that is None."""
    if delta is not None and not 0 <= delta < 1:
        raise InputError("--delta", delta, "a number from 0 to below 1")
    rows = tuple(account_system(system, accountant, delta, claims) for system, claims in systems)
    return Accounts(tool_version=__version__, accountant=accountant.name, systems=rows)


def account_system(
    system: BaseSystem, accountant: Accountant, delta: float | None, claims: Sequence[Claim]
) -> AccountRow:
    """All budgets of a system at `delta` (its own if not given), and what is claimed of it at the claims' own."""
    chosen = system.delta if delta is None else delta
    ledger, schedule = system.ledger, system.schedule
    return AccountRow(
        key=system.key,
        engine=system.engine_name,
        records=schedule.records,
        devices=schedule.devices,
        rounds=schedule.rounds,
        batch_size=schedule.batch_size,
        schedule=schedule.batching.value,
        noise_std=system.noise_std,
        delta=chosen,
        claims=tuple(_claim(system, c, accountant) for c in claims),
        budgets=tuple(budget_rows(ledger, accountant, chosen)),
    )


def _claim(system: BaseSystem, claim: Claim, accountant: Accountant) -> AccountedClaim:
    exposures = [system.ledger.exposure(claim.adversary, claim.unit, reading=r) for r in Reading]
    rigorous, paper = (account(accountant, e, claim.delta) for e in exposures)
    return AccountedClaim(
        key=claim.key,
        source=claim.source,
        where=claim.where,
        statement=claim.statement,
        unit=claim.unit.value,
        adversary=str(claim.adversary),
        delta=claim.delta,
        epsilon=claim.epsilon,
        mu=claim.mu,
        accounted=budget_row(exposures[0], rigorous),
        paper_reading=budget_row(exposures[1], paper) if rigorous.upper != paper.upper else None,
    )


def claim_curves(system: BaseSystem, accountant: Accountant, claims: Sequence[Claim]) -> list[Curves]:
    """The curves of every claim's budgets, of both readings where they differ."""
    found = []
    for claim in claims:
        for reading in Reading:
            exposure = system.ledger.exposure(claim.adversary, claim.unit, reading=reading)
            if reading is not Reading.RIGOROUS and not any("although it does" in note for note in exposure.assumptions):
                continue
            found += curves_of(system, exposure, claim.adversary, accountant, claim.delta, claim)
    return found


def curves_of(
    system: BaseSystem,
    exposure: Exposure,
    adversary: Adversary,
    accountant: Accountant,
    delta: float,
    claim: Claim | None = None,
) -> list[Curves]:
    """The curves of one exposure; none where the question does not arise or the accountant has no answer."""
    if accountant.supports(exposure) is not None or delta == 0:
        return []
    unit: Unit = exposure.unit
    shape: PrivacyCurve = privacy_curve(accountant, exposure)
    rounds: RoundCurve = over_rounds(accountant, system.ledger, adversary, unit, delta, reading=exposure.reading)
    records = record_epsilons(exposure, delta)
    columns: dict[str, Any] = {
        "deltas": shape.deltas,
        "epsilon_lower": shape.epsilon_lower,
        "epsilon_upper": shape.epsilon_upper,
        "alphas": shape.alphas,
        "betas": shape.betas,
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
            exact=shape.exact,
            record_epsilons=None if records is None else tuple(records.tolist()),
            **{name: tuple(values.tolist()) for name, values in columns.items()},
        )
    ]
