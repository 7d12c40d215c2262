"""Budgets as data: every system of a configuration accounted for, without training."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from vflpriv import __version__
from vflpriv.common.registry import find
from vflpriv.config.models import Config
from vflpriv.core.budgets import Accountant
from vflpriv.core.claims import Claim
from vflpriv.core.systems import System
from vflpriv.errors import InputError
from vflpriv.report.account import Accounts, account_system
from vflpriv.run.selection import places

__all__ = ["Claimed", "accounted_recording", "accounted_systems", "accounts_of"]

Claimed = tuple[System, tuple[Claim, ...]]
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
    system = read_recording(transcript, config).system
    return [(system, system.engine.claims(config, system.schedule))], chosen


def accounts_of(systems: Sequence[Claimed], accountant: Accountant, delta: float | None) -> Accounts:
    """Every system's budgets at `delta`, at its own if that is None."""
    if delta is not None and not 0 <= delta < 1:
        raise InputError("--delta", delta, "a number from 0 to below 1")
    rows = tuple(account_system(system, accountant, delta, claims) for system, claims in systems)
    return Accounts(tool_version=__version__, accountant=accountant.name, systems=rows)
