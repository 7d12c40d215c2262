"""Systems at a given budget: a configuration's system with its noise calibrated to one unit, view, ε and δ."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from vflpriv.common.registry import find
from vflpriv.config.models import Config
from vflpriv.core.data import BaseData, VerticalData
from vflpriv.core.systems import DeclaredSystem
from vflpriv.core.units import Unit
from vflpriv.core.views import Adversary
from vflpriv.errors import InputError
from vflpriv.run.noise.search import NoiseTarget, largest_label_epsilon
from vflpriv.run.systems import build_system, declare_system

__all__ = ["AtTarget", "at_target"]


@dataclass(frozen=True, eq=False, kw_only=True)
class AtTarget:
    """A system with the least noise that keeps a target, and the configuration that has it in its place.

    Where no noise keeps it there is no system, and `reason` says why in one line.
    """

    config: Config
    system: DeclaredSystem | None = None
    reason: str | None = None


def at_target(config: Config, place: int, data: BaseData, target: NoiseTarget) -> AtTarget:
    """A system of a configuration with its noise calibrated for this target; ready to train if the data has tensors.

    For the label unit it is the noise of `label_protection`, where the system has one; otherwise the engine's own.
    """
    try:
        changed = _changed(config, place, _changes(config, place, data, target))
        if isinstance(data, VerticalData):
            return AtTarget(config=changed, system=build_system(changed, place, data))
        return AtTarget(config=changed, system=declare_system(changed, place, data))
    except InputError as error:
        return AtTarget(config=config, reason=str(error))


def _changes(config: Config, place: int, data: BaseData, target: NoiseTarget) -> dict[str, Any]:
    """The engine settings that the target changes."""
    if target.unit is Unit.LABEL and config.system[place].engine.get("label_protection", "none") != "none":
        system = declare_system(config, place, data)
        accountant = find("accountant", config.accountant)()
        return {"label_noise": None, "label_epsilon": largest_label_epsilon(system, target, accountant)}
    return {
        "noise": "calibrated",
        "epsilon": target.epsilon,
        "delta": target.delta,
        "unit": target.unit.value,
        "protect": str(Adversary.parse(target.view)),
    }


def _changed(config: Config, place: int, changes: dict[str, Any]) -> Config:
    sections = list(config.system)
    sections[place] = sections[place].model_copy(update={"engine": {**sections[place].engine, **changes}})
    return config.model_copy(update={"system": tuple(sections)})
