"""A user's ledger beside what a trace of the script shows: differences are named, and the worse of both counts."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from vflpriv.core.units import Unit
from vflpriv.recording.ledger_file import LedgerConfig, ReleaseConfig
from vflpriv.run.traced.derived import DerivedKind, MovedKind

__all__ = ["as_seen", "differences"]

_ROUNDING = 1e-4


def differences(declared: LedgerConfig, kinds: Sequence[DerivedKind]) -> Iterator[str]:
    """A sentence for each thing that is declared better than it was seen."""
    for derived in kinds:
        for own in declared.release:
            if own.kind == derived.kind:
                yield from _Compared(own, derived).sentences


def as_seen(declared: LedgerConfig, kinds: Sequence[DerivedKind]) -> LedgerConfig:
    """The ledger with all that is declared better than it was seen as it was seen."""
    by_kind = {derived.kind: derived for derived in kinds}
    releases = [_Compared(own, by_kind[own.kind]).release if own.kind in by_kind else own for own in declared.release]
    return declared.model_copy(update={"release": tuple(releases)})


@dataclass(eq=False)
class _Compared:
    """One release beside its kind as it was seen."""

    declared: ReleaseConfig
    seen: DerivedKind
    sentences: list[str] = field(default_factory=list)
    _changes: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        sealed = self.seen.sealed
        if sealed and self.seen.law is not None:
            self._noise()
        for unit, moved in self.seen.units.items():
            if moved.state == "bare":
                self._bare(unit, moved)
            elif unit in sealed and self.seen.law not in (None, "rr") and self._same_law:
                self._sensitivity(unit, moved)
                self._leak(unit, moved)
        if self.declared.once and sealed and not all(moved.once for moved in sealed.values()):
            self._say(f"once = true, and {_lines(sealed.values())} draws noise in several rounds")
            self._changes["once"] = False

    @property
    def release(self) -> ReleaseConfig:
        """The release as it counts."""
        if not self._changes:
            return self.declared
        fields = self.declared.model_dump(exclude_unset=True) | self._changes
        return ReleaseConfig.model_validate({name: value for name, value in fields.items() if value is not None})

    @property
    def _same_law(self) -> bool:
        return self.declared.noise == self.seen.law

    def _say(self, what: str) -> None:
        self.sentences.append(f"{self.declared.kind}: the ledger declares {what}")

    def _noise(self) -> None:
        """Law and size of the noise."""
        lines, scale = _lines(self.seen.sealed.values()), self.seen.scale
        if not self._same_law:
            self._say(f"{self.declared.noise}, and {lines} adds {self.seen.law} noise")
            return
        if self.declared.scale is None:
            return
        better = self.declared.scale / scale if self.seen.law != "rr" else scale / self.declared.scale
        if better > 1 + _ROUNDING:
            self._say(f"scale = {self.declared.scale:.6g}, and {lines} draws {scale:.6g}")
            self._changes["scale"] = scale

    def _bare(self, unit: Unit, moved: MovedKind) -> None:
        """A unit that leaves without noise, whatever is declared of it."""
        bound = self.declared.bounds().get(unit, 0.0)
        if self.declared.noise == "none" and bound > 0:
            return
        what = f"noise on the unit {unit}" if bound > 0 else f"independent_of = [{unit}]"
        self._say(f"{what}, and it leaves bare at {moved.where}")
        self._bound(unit, math.inf)

    def _sensitivity(self, unit: Unit, moved: MovedKind) -> None:
        """How far the unit moves one message."""
        bound, seen = self.declared.bounds().get(unit, 0.0), self.seen.sensitivity(unit)
        if math.isinf(seen):
            seen = moved.gap
            known = f"the traced pair moves it by {seen:.6g}"
        else:
            known = f"what comes before the noise at {', '.join(moved.lines)} bounds it by {seen:.6g}"
        if seen > bound * (1 + _ROUNDING):
            self._say(f"sensitivity.{unit} = {bound:.6g}, and {known}")
            self._bound(unit, seen)

    def _leak(self, unit: Unit, moved: MovedKind) -> None:
        """State that learns from exact values."""
        leak, declared = self.seen.leak(unit), self.declared.leak
        if leak is None or self.declared.once:
            return
        stated = 0.0 if declared in (None, "none") else declared.state().sensitivity.get(unit, 0.0)  # type: ignore[union-attr]
        if leak <= stated * (1 + _ROUNDING):
            return
        size = f"by up to {leak:.6g}" if math.isfinite(leak) else "without bound"
        self._say(f"no such leak, and state that learns from exact values moves it {size} ({', '.join(moved.lines)})")
        if math.isinf(leak):
            self._bound(unit, math.inf)
            return
        kept = {} if declared in (None, "none") else dict(declared.sensitivity)  # type: ignore[union-attr]
        own = unit is Unit.FEATURES if declared in (None, "none") else declared.own  # type: ignore[union-attr]
        carrier = "a model that learns from exact values"
        self._changes["leak"] = {"carrier": carrier, "sensitivity": kept | {unit: leak}, "own": own}

    def _bound(self, unit: Unit, bound: float) -> None:
        """The unit has this sensitivity, and so have those that include it where theirs is smaller."""
        bounds = dict(self._changes.get("sensitivity", self.declared.sensitivity))
        value = bound if math.isfinite(bound) else "unbounded"
        for wide in Unit:
            stated = bounds.get(wide)
            if wide is unit or (wide.implies(unit) and stated is not None and _less(stated, bound)):
                bounds[wide] = value
        self._changes["sensitivity"] = bounds
        free = self._changes.get("independent_of", self.declared.independent_of)
        self._changes["independent_of"] = tuple(own for own in free if own is not unit and not own.implies(unit))


def _less(stated: Any, bound: float) -> bool:
    return not isinstance(stated, str) and stated < bound


def _lines(several: Any) -> str:
    return ", ".join(dict.fromkeys(line for moved in several for line in moved.lines))
