"""The trainings by which an audit measures a system's claims: in two worlds, and in one run with many canaries."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from vflpriv.audits._trials import TrialStore
from vflpriv.audits._world_trials import Trials
from vflpriv.audits.one_run import OneRun, OneRunAudit
from vflpriv.audits.two_world import TwoWorldAudit
from vflpriv.canaries import CanaryKind
from vflpriv.claims import Claim
from vflpriv.config import AuditConfig, Config, OneRunConfig
from vflpriv.systems import System
from vflpriv.units import Unit
from vflpriv.views import Adversary

__all__ = ["Progress", "one_run", "trainings", "two_worlds"]

TrialsByClaim = dict[str, list[tuple[CanaryKind, Trials]]]


class Progress(Protocol):
    """Who wants to know how far an audit is."""

    def stage(self, text: str) -> None: ...
    def advance(self, work: int) -> None: ...


@dataclass(frozen=True, kw_only=True)
class _Plan:
    """The claims about one unit that a canary of one kind can try, all views in the same trainings."""

    kind: CanaryKind
    trials: int
    unit: Unit
    claims: tuple[Claim, ...]

    @property
    def views(self) -> list[Adversary]:
        return list(dict.fromkeys(c.adversary for c in self.claims))


def _plans(system: System, claims: Sequence[Claim], audit: AuditConfig) -> list[_Plan]:
    plans = []
    for kind in (k for k in CanaryKind if audit.trials_of(k)):
        for unit in dict.fromkeys(c.unit for c in claims):
            found = tuple(
                c
                for c in claims
                if c.unit is unit and TwoWorldAudit.refusal(system, c.adversary, unit=unit, kind=kind) is None
            )
            plans += [_Plan(kind=kind, trials=audit.trials_of(kind), unit=unit, claims=found)] if found else []
    return plans


def trainings(system: System, claims: Sequence[Claim], audit: AuditConfig) -> int:
    """How many trainings the two-world trials of these claims take."""
    return sum(
        TwoWorldAudit.trainings(system, p.views, p.kind, trials=p.trials, unit=p.unit)
        for p in _plans(system, claims, audit)
    )


def two_worlds(
    system: System,
    claims: Sequence[Claim],
    audit: AuditConfig,
    config: Config,
    store: Path | None,
    progress: Progress,
) -> tuple[TrialsByClaim, tuple[str, ...]]:
    """Trials of every claim whose view can be tried; and what was skipped."""
    two_world = TwoWorldAudit(store=TrialStore(store))
    trials: TrialsByClaim = {c.key: [] for c in claims}
    plans = _plans(system, claims, audit)
    # If the other systems have as many tests, Holm's procedure rejects whatever is below this level.
    level = (1 - config.confidence) / max(1, len(config.system) * sum(len(p.claims) for p in plans))
    for one in plans:
        progress.stage(f"{system.key}: {one.kind} canary, {one.unit}, 2 × {one.trials} trials")
        found = two_world.run(
            system,
            one.views,
            one.kind,
            trials=one.trials,
            unit=one.unit,
            confidence=config.confidence,
            reach=audit.reach,
            advance=progress.advance,
            stop=_refuted(one.claims, audit.min_trials, level) if audit.stop_early else None,
        )
        for claim in one.claims:
            trials[claim.key].append((one.kind, found[claim.adversary]))
    kinds = [k for k in CanaryKind if audit.trials_of(k)]
    refusals = {c.key: two_world.refusal(system, c.adversary, unit=c.unit, kind=kinds[0]) for c in claims if kinds}
    return trials, _skipped([c for c in claims if not trials[c.key]], refusals)


def _refuted(claims: Sequence[Claim], min_trials: int, level: float) -> Callable[[Mapping[Adversary, Trials]], bool]:
    def refuted(found: Mapping[Adversary, Trials]) -> bool:
        """Whether every claim that these trials speak of is refuted, whatever the report's other tests say."""
        seen = [(c, found[c.adversary]) for c in claims if c.adversary in found]
        spoken = [(c, t) for c, t in seen if c.unit.implies(t.unit)]
        enough = all(len(t.scores[0]) >= min_trials for _, t in spoken)
        return bool(spoken) and enough and all(t.p_value(c) <= level for c, t in spoken)

    return refuted


def one_run(
    system: System, claims: Sequence[Claim], asked: OneRunConfig, store: Path | None, progress: Progress
) -> tuple[dict[str, OneRun], tuple[str, ...]]:
    """One training for every claim whose view can be tried, all views in it; and what was skipped."""
    audit = OneRunAudit(store=TrialStore(store))
    refusals = {c.key: audit.refusal(system, c.adversary) for c in claims}
    open_claims = [c for c in claims if refusals[c.key] is None and c.unit.implies(Unit.LABEL)]
    found: Mapping[Adversary, OneRun] = {}
    if open_claims:
        progress.stage(f"{system.key}: one run, {asked.canaries} canaries")
        views = list(dict.fromkeys(c.adversary for c in open_claims))
        found = audit.run(system, views, canaries=asked.canaries, guesses=asked.guesses, advance=progress.advance)
    return {c.key: found[c.adversary] for c in open_claims}, _skipped(claims, refusals)


def _skipped(claims: Sequence[Claim], refusals: Mapping[str, str | None]) -> tuple[str, ...]:
    return tuple(f"{c.where} ({c.adversary}): {refusals[c.key]}" for c in claims if refusals.get(c.key))
