"""Budgets as data: every system of a configuration accounted for, without training."""

from __future__ import annotations

from collections.abc import Sequence

from vflpriv import __version__
from vflpriv.budgets import Accountant
from vflpriv.config import Config
from vflpriv.errors import InputError
from vflpriv.registry import find
from vflpriv.report_account import Accounts, account_system
from vflpriv.run_choice import places
from vflpriv.systems import System

__all__ = ["accounted_systems", "accounts_of"]


def accounted_systems(config: Config, only: Sequence[str]) -> tuple[list[System], Accountant]:
    """The wanted systems, and the accountant of the configuration."""
    from vflpriv.run import build_system, load_data

    chosen = places(config, only)
    accountant: Accountant = find("accountant", config.accountant)()
    data = load_data(config)
    return [build_system(config, place, data) for place in chosen], accountant


def accounts_of(systems: Sequence[System], accountant: Accountant, delta: float | None) -> Accounts:
    """Every system's budgets at `delta`, at its own if that is None."""
    if delta is not None and not 0 <= delta < 1:
        raise InputError("--delta", delta, "a number from 0 to below 1")
    rows = tuple(account_system(system, accountant, delta) for system in systems)
    return Accounts(tool_version=__version__, accountant=accountant.name, systems=rows)
