"""What `vflpriv calibrate` does: the noise that a target budget takes, under one view."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rich.console import Console

from vflpriv.accountants.calibration import calibrate_noise
from vflpriv.cli.commands.account import is_json, parse_unit
from vflpriv.common import formatting as f
from vflpriv.common.registry import find
from vflpriv.config.models import parse_settings
from vflpriv.core.budgets import Accountant
from vflpriv.core.ledger import Exposure, Reading
from vflpriv.core.views import Adversary
from vflpriv.errors import InputError
from vflpriv.report.audit import BudgetRow
from vflpriv.run.budgets import budget_row

__all__ = ["Target", "run_calibrate"]

_FIELDS = ("noise_std", "label_noise", "server_noise_std")


@dataclass(frozen=True, kw_only=True)
class Target:
    """The budget to keep: epsilon at delta, of a unit, under a view, with state that leaks read one way."""

    epsilon: float
    delta: float
    view: str
    unit: str
    reading: str


def run_calibrate(
    target: Target,
    *,
    engine: str,
    settings: Mapping[str, Any],
    records: int,
    devices: int,
    seed: int,
    field: str,
    accountant: str,
    format_: str,
) -> None:
    """Find the noise, print it with the budget it has."""
    as_json = is_json(format_)
    if target.reading not in [r.value for r in Reading]:
        raise InputError("--reading", target.reading, f"one of {', '.join(r.value for r in Reading)}")
    for name, number in (("--records", records), ("--devices", devices)):
        if number < 1:
            raise InputError(name, number, "a number >= 1")
    counter: Accountant = find("accountant", accountant)()
    exposure_of = _exposures(target, engine, settings, records, devices, seed, field)
    noise = safe_side(calibrate_noise(exposure_of, epsilon=target.epsilon, delta=target.delta, accountant=counter))
    exposure = exposure_of(noise)
    row = budget_row(exposure, counter.budget(exposure, target.delta))
    if as_json:
        found = {"field": field, "noise": noise, "target": {"epsilon": target.epsilon, "delta": target.delta}}
        budget = json.loads(row.model_dump_json(exclude={"participation_histogram"}))
        print(json.dumps({"schema_version": "vflpriv-calibrate/1", **found, "budget": budget}, indent=2))  # noqa: T201
    else:
        _show(field, noise, target, row)


def _exposures(
    target: Target, name: str, raw: Mapping[str, Any], records: int, devices: int, seed: int, field: str
) -> Any:
    """From a noise level to what then reaches the adversary."""
    engine = find("engine", name)
    fields = engine.settings_type.model_fields
    if field not in fields or field not in _FIELDS:
        raise InputError("--field", field, f"one of {', '.join(known for known in _FIELDS if known in fields)}")
    given = {"noise": "given", field: 1.0} if "noise" in fields else {field: 1.0}
    settings: Any = parse_settings(engine.settings_type, {**given, **raw}, "engine")
    if field == "label_noise" and settings.label_protection != "alibi":
        raise InputError("engine.label_protection", settings.label_protection, "alibi: rr's label_noise is its ε")
    schedule = engine.draw_schedule(settings, records=records, devices=devices, seed=seed)
    adversary, unit, reading = Adversary.parse(target.view), parse_unit(target.unit), Reading(target.reading)

    def exposure_of(noise: float) -> Exposure:
        ledger = engine.ledger(settings.model_copy(update={field: noise}), schedule)
        found: Exposure = ledger.exposure(adversary, unit, reading=reading)
        return found

    return exposure_of


def safe_side(noise: float) -> float:
    """Seven significant digits, rounded up: what is printed keeps the budget too.

    >>> safe_side(0.12345678), safe_side(2.0)
    (0.1234568, 2.0)
    """
    digits = 6 - math.floor(math.log10(noise))
    rounded = round(noise, digits)
    return rounded if rounded >= noise else round(noise + 10.0**-digits, digits)


def _show(field: str, noise: float, target: Target, row: BudgetRow) -> None:
    from vflpriv.render.console import Writer

    writer = Writer(Console())
    lower = "" if row.epsilon_lower == row.epsilon_upper else f" (at least {row.epsilon_lower:.6g})"
    lines = [
        (field, f"{noise:.7g}"),
        ("accounted ε", f"{row.epsilon_upper:.6g}{lower}, target {target.epsilon:g}, at δ = {f.delta(target.delta)}"),
        ("seen by", f"{row.adversary}, batches {row.batches}"),
        ("unit", row.unit),
        ("reading", row.reading),
        ("method", f.clean(row.method)),
    ]
    if row.mu is not None:
        lines.insert(2, ("accounted μ", f"{row.mu:.6g}"))
    if row.participations is not None and row.batches == "known":
        lines.append(("worst record", f"takes part {row.participations} times"))
    writer.list([*lines, *(("if", f.clean(note)) for note in row.assumptions)])
