"""Noise that keeps a budget: the std that settings ask for, and systems whose noise is calibrated to a target.

What cannot be calibrated is refused in one line that names the release, without noise or without a bounded sensitivity,
that the view reads.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from vflpriv.accountants.calibration import calibrate_noise
from vflpriv.core.budgets import Accountant
from vflpriv.core.ledger import Exposure
from vflpriv.core.systems import DeclaredSystem
from vflpriv.core.units import Unit
from vflpriv.core.views import Adversary
from vflpriv.errors import InputError

__all__ = ["NoiseTarget", "find_noise", "largest_label_epsilon", "with_noise"]


@dataclass(frozen=True, kw_only=True)
class NoiseTarget:
    """The budget that noise is to keep: ε at δ, for one unit under one view."""

    epsilon: float
    delta: float
    unit: Unit
    view: str


def with_noise(system: DeclaredSystem, accountant: Accountant) -> Any:
    """The settings of a system with the noise std that their field `noise` asks for."""
    settings = system.settings
    if system.noise_parameters.mode == "given":
        return settings
    if system.noise_parameters.mode == "paper":
        return settings.with_std(system.engine.published_noise(settings, system.schedule))
    target = NoiseTarget(
        epsilon=settings.epsilon, delta=settings.delta, unit=settings.protected_unit, view=settings.protect
    )
    std = find_noise(_exposures(system, settings.with_std, target), target, accountant, field="noise_std")
    return settings.with_std(std)


def largest_label_epsilon(system: DeclaredSystem, target: NoiseTarget, accountant: Accountant) -> float:
    """The largest ε of each label with which a system's labels keep a target, trainings for tuning included."""
    settings = system.settings
    exposures = _exposures(system, lambda noise: settings.with_label_epsilon(1 / noise), target)
    return 1 / find_noise(exposures, target, accountant, field="label_epsilon")


def _exposures(
    system: DeclaredSystem, noised: Callable[[float], Any], target: NoiseTarget
) -> Callable[[float], Exposure]:
    """A function from a noise level to what the target's view is then exposed to."""
    adversary = Adversary.parse(target.view)

    def exposure_of(noise: float) -> Exposure:
        exposure: Exposure = replace(system, settings=noised(noise)).ledger.exposure(adversary, target.unit)
        return exposure

    return exposure_of


def find_noise(
    exposure_of: Callable[[float], Exposure],
    target: NoiseTarget,
    accountant: Accountant,
    *,
    field: str,
    view_field: str = "protect",
) -> float:
    """The least noise with which the target is kept; an error says why no noise keeps it."""
    if (reason := _obstacle(exposure_of, target, field)) is not None:
        raise InputError(view_field, target.view, f"a view for which {field} keeps a budget: {reason}")
    return calibrate_noise(exposure_of, epsilon=target.epsilon, delta=target.delta, accountant=accountant)


def _obstacle(exposure_of: Callable[[float], Exposure], target: NoiseTarget, field: str) -> str | None:
    """Why this noise keeps no budget of the unit, whatever its size; None if it may."""
    exposure, unit = exposure_of(1.0), target.unit
    if exposure.not_applicable is not None:
        return exposure.not_applicable
    if exposure.unprotected:
        return f"unprotected there for the {unit} unit: {'; '.join(exposure.unprotected)}"
    if not exposure.events:
        return f"nothing that {target.view} observes depends on the {unit} unit"
    noisier = exposure_of(2.0).events
    if [(e.kind, e.noise) for e in exposure.events] == [(e.kind, e.noise) for e in noisier]:
        kinds = ", ".join(dict.fromkeys(event.kind for event in exposure.events))
        return f"what {target.view} learns for the {unit} unit is in {kinds}, whose noise {field} does not change"
    return None
