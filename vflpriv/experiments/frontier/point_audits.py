"""Audits of the points of `vflpriv frontier`: trials in two worlds, of a system that is smaller where size is free.

What a worst-case canary shows depends on clip, noise and rounds, not on how many records or features there are: the
noise is calibrated for as few records as are audited, and a candidate names the settings by which it is made smaller.
A few hundred trials are made without these, and have to show the same distance between the worlds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from vflpriv.audits.label_draws import LabelDraws, label_draws
from vflpriv.audits.statistics.power import trials_for_ratio
from vflpriv.audits.two_world.audit import TwoWorldAudit
from vflpriv.common.tasks import Executor
from vflpriv.config.claims import ClaimConfig
from vflpriv.config.models import AuditConfig
from vflpriv.core.canaries import CanaryKind
from vflpriv.core.systems import System
from vflpriv.core.units import Unit
from vflpriv.core.views import Adversary
from vflpriv.experiments.frontier.profile import Candidate, FrontierConfig
from vflpriv.experiments.frontier.result import Audit, FullSize, Point, Reduced
from vflpriv.experiments.frontier.targets import AtTarget
from vflpriv.report.rows import ClaimRow
from vflpriv.run.audit import audit_config
from vflpriv.run.summary.budgets import accounted

__all__ = ["PointAudits", "SystemAt"]

_AUDIT = AuditConfig(canaries=(CanaryKind.WORST_CASE,), full_trials=32, whole_view=0, attacks=())
_FEWEST = 1000
"""Trials in each world of a point that fewer would do for."""
_FULL_SIZE = 200
"""Trials in each world without the settings that make a candidate smaller."""
_APART = 1e-3
"""How far the distances between the worlds may be from each other, relative to them."""


class SystemAt(Protocol):
    """A candidate with settings at an ε, on so many training records."""

    def __call__(
        self, candidate: Candidate, settings: Mapping[str, Any], epsilon: float, *, seed: int, train: int
    ) -> AtTarget: ...


@dataclass(frozen=True, eq=False, kw_only=True)
class PointAudits:
    """Audits points of one question; `records` are those there are."""

    config: FrontierConfig
    system_at: SystemAt
    records: int
    executor: Executor
    store: Path | None
    quiet: bool | None

    def audited(self, candidate: Candidate, point: Point) -> Point:
        """The point with what its audit found; as it is where no trials are asked for, or none can be made."""
        if not self.config.trials:
            return point
        kept = {
            name: point.settings[name] for settings in candidate.tries for name in settings if name in point.settings
        }
        records = min(max(self.config.audit_records, point.settings["batch_size"]), self.records)
        audited = self._at(candidate, kept, point, records)
        reduced, full_size = _reduced(candidate, point), None
        if reduced:
            smaller = self._at(candidate, {**kept, **candidate.audit}, point, records)
            full_size = self._compared(audited, smaller)
            audited, reduced = (smaller, reduced) if full_size is not None and full_size.same else (audited, ())
        trials = self._trials(audited.system)
        claim = self._claim(audited, trials, point.epsilon)
        if claim is None:
            return point
        draws = self._draws(audited.system)
        return point.model_copy(
            update={
                "audit": Audit(
                    verdict=claim.verdict,
                    accounted_mu=claim.accounted.mu,
                    measured_mu=max((m.mu for m in claim.measurements if m.mu is not None), default=None),
                    trials=trials,
                    records=records,
                    reduced=reduced,
                    full_size=full_size,
                    accounted_epsilon=None if draws is None else claim.accounted.epsilon_upper,
                    measured_epsilon=None if draws is None else draws.epsilon_lower,
                    draws=None if draws is None else draws.draws,
                )
            }
        )

    def _draws(self, system: object) -> LabelDraws | None:
        """What noised labels tell, where labels are protected by them."""
        c = self.config
        if c.unit is not Unit.LABEL or not isinstance(system, System):
            return None
        return label_draws(system, trials=c.trials, confidence=c.confidence)

    def _at(self, candidate: Candidate, settings: Mapping[str, Any], point: Point, records: int) -> AtTarget:
        return self.system_at(candidate, settings, point.epsilon, seed=self.config.seed, train=records)

    def _trials(self, system: object) -> int:
        """As many as the tightness that is asked for takes on average."""
        c = self.config
        if not isinstance(system, System):
            return c.trials
        mu = accounted(c.accountant, system, Adversary.parse(c.view), c.unit).mu
        needed = c.trials if mu is None else trials_for_ratio(mu, c.tightness, c.confidence)
        return min(c.trials, max(_FEWEST, needed))

    def _compared(self, whole: AtTarget, smaller: AtTarget) -> FullSize | None:
        """What trials of either size show of the distance between the worlds; None where they show none."""
        distances = [self._distance(size.system, trials) for size, trials in ((whole, _FULL_SIZE), (smaller, 1))]
        if distances[0] is None or distances[1] is None:
            return None
        apart = abs(distances[0] - distances[1])
        return FullSize(
            trials=_FULL_SIZE, distance=distances[0], reduced_distance=distances[1], same=apart <= _APART * distances[0]
        )

    def _distance(self, system: object, trials: int) -> float | None:
        """Between the worlds' releases, in units of the noise, as trials find it on the wire."""
        adversary, unit = Adversary.parse(self.config.view), self.config.unit
        if not isinstance(system, System) or TwoWorldAudit.view_refusal(system, adversary, unit=unit) is not None:
            return None
        audit = TwoWorldAudit(executor=self.executor)
        full = min(trials, _AUDIT.full_trials)
        measured = audit.measure(system, [adversary], CanaryKind.WORST_CASE, trials=trials, unit=unit, full=full)
        strengths = measured[adversary].strengths
        return math.sqrt(float(strengths.mean())) if len(strengths) else None

    def _claim(self, audited: AtTarget, trials: int, epsilon: float) -> ClaimRow | None:
        """The claim of the point's budget, tested; label protections claim it for a single device alone."""
        audit = _AUDIT.model_copy(update={"trials": trials})
        c = self.config
        stated = ClaimConfig(key="point", unit=c.unit, view=c.view, epsilon=epsilon, delta=c.delta)
        changes = {"audit": audit, **({"claim": (stated,)} if c.unit is Unit.LABEL else {})}
        section = audited.config.system[0].model_copy(update=changes)
        report = audit_config(
            audited.config.model_copy(update={"system": (section,)}),
            store=self.store,
            command="",
            quiet=self.quiet,
            executor=self.executor,
        )
        view, unit = self.config.view, self.config.unit.value
        claims = report.systems[0].claims
        return next((c for c in claims if c.unit == unit and str(Adversary.parse(c.adversary)) == view), None)


def _reduced(candidate: Candidate, point: Point) -> tuple[Reduced, ...]:
    """The settings that a candidate's audit changes."""
    return tuple(
        Reduced(setting=name, point=point.settings[name], audited=value)
        for name, value in candidate.audit.items()
        if name in point.settings and point.settings[name] != value
    )
