"""Which settings would make a claim hold: the least noise that keeps it, and where to clip and add it if that helps."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, get_args

from vflpriv.core.budgets import Accountant
from vflpriv.core.claims import Claim
from vflpriv.core.ledger import Exposure, Ledger
from vflpriv.core.releases import Release
from vflpriv.core.systems import DeclaredSystem, Source
from vflpriv.core.units import Unit
from vflpriv.errors import InputError
from vflpriv.run.noise.search import NoiseTarget, find_noise

__all__ = ["Repair", "find_repair", "rounded_up"]

_WAYS = ("clip_rule", "protection", "server_update")
"""Settings that decide what is clipped and noised; those beside them change the training, not its protection."""
_CLOSE = 3.0
"""A repair with fewer changes is preferred while it needs at most so many times the least noise."""
_DIGITS = 4


@dataclass(frozen=True, kw_only=True)
class Repair:
    """Settings with which a claim holds: the noise, by name and with its old value, and what else has to change."""

    field: str
    before: float | None
    after: float
    batches: str
    """Whether the claim's adversary then knows the batches: "known" or "secret"."""
    others: Mapping[str, tuple[str, str]] = dataclasses.field(default_factory=dict)
    """Further settings, each with its old and its new value."""
    scales: Mapping[str, tuple[float, float]] | None = None
    """Of a ledger file: old and new scale of the noise by kind of message."""

    @property
    def settings(self) -> dict[str, float | str]:
        """The settings with their new values, as a configuration has them."""
        if self.scales is not None:
            return {f"{kind}.scale": new for kind, (_, new) in self.scales.items()}
        given: dict[str, float | str] = {"noise": "given"} if self.field == "noise_std" else {}
        return {**given, self.field: self.after, **{name: new for name, (_, new) in self.others.items()}}


def find_repair(system: Source, ledger: Ledger, claim: Claim, accountant: Accountant) -> Repair | None:
    """The settings with which the system keeps the claim; None where no noise does it, wherever it is added.

    `ledger` is the system's own with what audits found on the wire beside it, which no setting changes.
    """
    undeclared = ledger.releases[len(system.ledger.releases) :]
    if isinstance(system, DeclaredSystem):
        return _of_settings(system, undeclared, claim, accountant)
    return _of_scales(ledger, claim, accountant)


def rounded_up(value: float, *, up: bool = True) -> float:
    """A noise with four significant digits, not below it: what is printed keeps the budget, too.

    >>> rounded_up(1.20031), rounded_up(863.2), rounded_up(0.5, up=False), rounded_up(0.33337, up=False)
    (1.201, 863.2, 0.5, 0.3333)
    """
    step = 10.0 ** (math.floor(math.log10(value)) - _DIGITS + 1)
    steps = value / step
    whole = round(steps) if math.isclose(steps, round(steps), rel_tol=1e-9) else math.floor(steps) + up
    return float(f"{whole * step:.{_DIGITS}g}")


def _of_settings(
    system: DeclaredSystem, undeclared: tuple[Release, ...], claim: Claim, accountant: Accountant
) -> Repair | None:
    """The repair with the fewest changes among those that need little noise."""
    if claim.unit is Unit.LABEL and system.settings.label_mechanism is not None:
        return _of_labels(system, undeclared, claim, accountant)
    if not hasattr(system.settings, "with_std"):
        return None
    repairs = []
    for changed, settings in _ways(system.settings):
        least = _least(system, undeclared, claim, accountant, settings.with_std, "noise_std")
        if least is not None:
            noise, batches = rounded_up(least[0]), least[1]
            repair = Repair(field="noise_std", before=system.noise_std, after=noise, batches=batches, others=changed)
            repairs.append(repair)
    close = [repair for repair in repairs if repair.after <= _CLOSE * min(r.after for r in repairs)]
    return min(close, key=lambda repair: (len(repair.others), repair.after), default=None)


def _of_labels(
    system: DeclaredSystem, undeclared: tuple[Release, ...], claim: Claim, accountant: Accountant
) -> Repair | None:
    """The largest ε of each label with which the claim holds."""
    settings = system.settings

    def noised(noise: float) -> Any:
        return settings.with_label_epsilon(1 / noise)

    least = _least(system, undeclared, claim, accountant, noised, "label_epsilon")
    if least is None:
        return None
    after = rounded_up(1 / least[0], up=False)
    return Repair(field="label_epsilon", before=settings.label_epsilon, after=after, batches=least[1])


def _ways(settings: Any) -> Iterator[tuple[dict[str, tuple[str, str]], Any]]:
    """The settings as they are, and with other choices of where to clip and add noise; those that fit together."""
    fields = type(settings).model_fields
    names = [name for name in _WAYS if name in fields]
    for values in product(*(get_args(fields[name].annotation) for name in names)):
        chosen = dict(zip(names, values, strict=True))
        changed = {
            name: (getattr(settings, name), new) for name, new in chosen.items() if getattr(settings, name) != new
        }
        given = {**settings.model_dump(), **chosen, "noise": "given", "noise_std": 1.0}
        try:
            yield changed, settings if not changed else type(settings).model_validate(given)
        except ValueError:
            continue


def _least(
    system: DeclaredSystem,
    undeclared: tuple[Release, ...],
    claim: Claim,
    accountant: Accountant,
    noised: Callable[[float], Any],
    field: str,
) -> tuple[float, str] | None:
    """The least noise with which the claim holds by these settings, and whether batches are known; None where none."""

    def exposure_of(noise: float) -> Exposure:
        ledger = _described(system, noised(noise))
        ledger = replace(ledger, releases=(*ledger.releases, *undeclared))
        return ledger.exposure(claim.adversary, claim.unit)

    return _searched(exposure_of, claim, accountant, field)


def _described(system: DeclaredSystem, settings: Any) -> Ledger:
    """What the engine lists with settings that it was not audited with; an engine of others' may not know them."""
    try:
        return replace(system, settings=settings).ledger
    except Exception as error:
        expected = "one that lists its releases with these settings, too"
        raise InputError("engine", system.engine.name, expected) from error


def _searched(
    exposure_of: Callable[[float], Exposure], claim: Claim, accountant: Accountant, field: str
) -> tuple[float, str] | None:
    """The least noise; None where none keeps the claim, or where the claim would rest on an assumption."""
    target = NoiseTarget(epsilon=claim.epsilon, delta=claim.delta, unit=claim.unit, view=str(claim.adversary))
    try:
        exposure = exposure_of(1.0)
        if exposure.assumed:
            return None
        return find_noise(exposure_of, target, accountant, field=field), exposure.batches
    except InputError:
        return None


def _of_scales(ledger: Ledger, claim: Claim, accountant: Accountant) -> Repair | None:
    """The factor by which all noise of a ledger file has to grow."""

    def exposure_of(factor: float) -> Exposure:
        return _scaled(ledger, factor).exposure(claim.adversary, claim.unit)

    least = _searched(exposure_of, claim, accountant, "the noise")
    if least is None:
        return None
    factor, batches = least
    scales = {}
    for release in ledger.releases:
        old = release.noise.level
        if old is not None and claim.adversary.kind in release.seen_by and claim.unit in release.sensitivity:
            scales[release.kind] = (old, rounded_up(old * factor))
    return Repair(field="scale", before=1.0, after=rounded_up(factor), batches=batches, scales=scales)


def _scaled(ledger: Ledger, factor: float) -> Ledger:
    """The ledger with all its noise that has a size so many times as large."""
    releases = [replace(release, noise=release.noise.scaled(factor)) for release in ledger.releases]
    return replace(ledger, releases=tuple(releases))
