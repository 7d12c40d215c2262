"""Calibration as data: the least noise with which an engine keeps a target budget under one view."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from vflpriv.common.registry import find
from vflpriv.config.errors import parse_settings
from vflpriv.core.budgets import Accountant
from vflpriv.core.ledger import Exposure, Reading
from vflpriv.core.schedules import Schedule
from vflpriv.core.units import Unit
from vflpriv.core.views import Adversary
from vflpriv.errors import InputError
from vflpriv.report.account import Calibration
from vflpriv.run.noise.search import NoiseTarget, find_noise
from vflpriv.run.summary.budgets import budget_row

__all__ = ["Setup", "Target", "calibrate", "parse_unit", "safe_side"]

_FIELDS = ("noise_std", "label_epsilon", "label_noise", "server_noise_std")


@dataclass(frozen=True, kw_only=True)
class Target:
    """The budget to keep: epsilon at delta for a unit under a view, in one reading of state without noise."""

    epsilon: float
    delta: float
    view: str
    unit: str
    reading: str


@dataclass(frozen=True, kw_only=True)
class Setup:
    """What is trained: an engine with its settings, on so many records and devices."""

    engine: str
    settings: Mapping[str, Any]
    records: int
    devices: int
    seed: int


def calibrate(target: Target, setup: Setup, *, field: str, accountant: str) -> Calibration:
    """The least noise with which the budget is at most the target, on the safe side, as a value of the setting `field`.

    More noise is a larger standard deviation, and a smaller ε of each label.
    """
    if target.reading not in [reading.value for reading in Reading]:
        raise InputError("--reading", target.reading, f"one of {', '.join(reading.value for reading in Reading)}")
    for name, number in (("--records", setup.records), ("--devices", setup.devices)):
        if number < 1:
            raise InputError(name, number, "a number >= 1")
    counter: Accountant = find("accountant", accountant)()
    exposure_of = _exposures(target, setup, field)
    goal = NoiseTarget(epsilon=target.epsilon, delta=target.delta, unit=parse_unit(target.unit), view=target.view)
    noise = find_noise(exposure_of, goal, counter, field=field, view_field="--view")
    value = safe_side(1 / noise, up=False) if field == "label_epsilon" else safe_side(noise)
    exposure = exposure_of(1 / value if field == "label_epsilon" else value)
    budget = budget_row(exposure, counter.budget(exposure, target.delta))
    return Calibration(field=field, noise=value, epsilon=target.epsilon, delta=target.delta, budget=budget)


def parse_unit(text: str) -> Unit:
    """A unit by its name."""
    if text not in [unit.value for unit in Unit]:
        raise InputError("--unit", text, f"one of {', '.join(unit.value for unit in Unit)}")
    return Unit(text)


def _exposures(target: Target, setup: Setup, field: str) -> Callable[[float], Exposure]:
    """A function from a noise level to what the adversary is then exposed to."""
    engine = find("engine", setup.engine)
    fields = engine.settings_type.model_fields
    if field not in fields or field not in _FIELDS:
        raise InputError("--field", field, f"one of {', '.join(known for known in _FIELDS if known in fields)}")
    given = {"noise": "given", field: 1.0} if "noise" in fields else {field: 1.0}
    settings: Any = parse_settings(engine.settings_type, {**given, **setup.settings}, "engine")
    if field != "noise_std" and settings.noise_parameters.mode != "given":
        raise InputError("engine.noise", settings.noise_parameters.mode, f"given, while {field} is sought")
    if field == "label_noise" and settings.label_protection != "alibi":
        expected = "alibi, whose label_noise is a standard deviation; for the others ask for label_epsilon"
        raise InputError("engine.label_protection", settings.label_protection, expected)
    schedule: Schedule = engine.draw_schedule(settings, records=setup.records, devices=setup.devices, seed=setup.seed)
    adversary, unit, reading = Adversary.parse(target.view), parse_unit(target.unit), Reading(target.reading)

    def exposure_of(noise: float) -> Exposure:
        ledger = engine.ledger(_noised(settings, field, noise), schedule)
        exposure: Exposure = ledger.exposure(adversary, unit, reading=reading)
        return exposure

    return exposure_of


def _noised(settings: Any, field: str, noise: float) -> Any:
    """The settings with this much noise by this field."""
    if field == "label_epsilon":
        return settings.with_label_epsilon(1 / noise)
    return settings.model_copy(update={field: noise})


def safe_side(value: float, *, up: bool = True) -> float:
    """A noise rounded up, or an ε rounded down, to seven significant digits: what is printed keeps the budget too.

    >>> safe_side(0.12345678), safe_side(2.0), safe_side(0.12345678, up=False)
    (0.1234568, 2.0, 0.1234567)
    """
    digits = 6 - math.floor(math.log10(value))
    rounded = round(value, digits)
    if (rounded >= value) if up else (rounded <= value):
        return rounded
    return round(value + (1 if up else -1) * 10.0**-digits, digits)
