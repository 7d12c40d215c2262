"""What `vflpriv account` does: the budgets of a configuration, without training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from vflpriv.config.models import load_config
from vflpriv.core.budgets import Accountant
from vflpriv.core.units import Unit
from vflpriv.core.views import Adversary
from vflpriv.errors import InputError
from vflpriv.run.account import Claimed, accounted_recording, accounted_systems, accounts_of, claim_curves, curves_of

__all__ = ["is_json", "parse_unit", "run_account"]


def run_account(
    path: Path | None,
    *,
    overrides: Mapping[str, Any],
    only: Sequence[str],
    delta: float | None,
    format_: str,
    curves: Path | None,
    view: str | None,
    unit: str | None,
    recorded: tuple[Path, Path] | None = None,
) -> None:
    """Account for every system of a configuration, print it, and write curves where a folder is given.

    Curves are those of the claims' budgets, or of the one budget that `view` and `unit` name. With `recorded`, a
    transcript and its ledger file, that one system stands in place of a configuration's.
    """
    as_json = is_json(format_)
    chosen = (
        None if view is None and unit is None else (Adversary.parse(view or "device"), parse_unit(unit or "record"))
    )
    if recorded is None:
        systems, accountant = accounted_systems(load_config(path, overrides), only)
    else:
        systems, accountant = accounted_recording(*recorded, overrides.get("accountant"))
    if curves is None and chosen is not None:
        raise InputError(
            "--curves", "nothing", "a folder: --view and --unit choose the budget whose curves are written"
        )
    accounts = accounts_of(systems, accountant, delta)
    if as_json:
        print(accounts.to_json())  # noqa: T201
    else:
        from vflpriv.render.account import print_accounts

        print_accounts(accounts, Console())
    if curves is not None:
        _write_curves(systems, accountant, curves, chosen, delta)


def is_json(name: str) -> bool:
    """Whether to print for programs."""
    if name not in ("text", "json"):
        raise InputError("--format", name, "text or json")
    return name == "json"


def parse_unit(text: str) -> Unit:
    """A unit by its name."""
    if text not in [unit.value for unit in Unit]:
        raise InputError("--unit", text, f"one of {', '.join(unit.value for unit in Unit)}")
    return Unit(text)


def _write_curves(
    systems: Sequence[Claimed],
    accountant: Accountant,
    folder: Path,
    chosen: tuple[Adversary, Unit] | None,
    delta: float | None,
) -> None:
    from vflpriv.render.console import say
    from vflpriv.render.plots.curves import write_curves

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError("--curves", str(folder), f"a folder that can be written to ({error.strerror})") from error
    console = Console(stderr=True)
    for system, claims in systems:
        if chosen is None:
            found = claim_curves(system, accountant, claims)
        else:
            at = system.delta if delta is None else delta
            found = curves_of(system, system.ledger.exposure(*chosen), chosen[0], accountant, at)
        for curve in found:
            for path in write_curves(curve, folder):
                say(console, f"wrote {path}")
