"""The trainings by which an audit measures a system's claims: in two worlds, and in one run with many canaries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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

__all__ = ["Progress", "one_run", "two_worlds"]

TrialsByClaim = dict[str, list[tuple[CanaryKind, Trials]]]


class Progress(Protocol):
    """Who wants to know how far an audit is."""

    def stage(self, text: str) -> None: ...
    def advance(self, work: int) -> None: ...


def two_worlds(
    system: System,
    claims: Sequence[Claim],
    audit: AuditConfig,
    config: Config,
    store: Path | None,
    progress: Progress,
) -> tuple[TrialsByClaim, tuple[str, ...]]:
    """Trials of every claim whose view can be tried, all views in the same trainings; and what was skipped."""
    two_world = TwoWorldAudit(store=TrialStore(store))
    refusals = {c.key: two_world.refusal(system, c.adversary) for c in claims}
    open_claims = [c for c in claims if refusals[c.key] is None]
    trials: TrialsByClaim = {c.key: [] for c in claims}
    kinds = [k for k in CanaryKind if audit.trials_of(k)] if open_claims else []
    # If the other systems have as many tests, Holm's procedure rejects whatever is below this level.
    level = (1 - config.confidence) / max(1, len(config.system) * len(kinds) * len(open_claims))

    def refuted(found: Mapping[Adversary, Trials]) -> bool:
        """Whether every claim that these trials speak of is refuted, whatever the report's other tests say."""
        spoken = [(c, found[c.adversary]) for c in open_claims if c.unit.implies(found[c.adversary].unit)]
        enough = all(len(t.scores[0]) >= audit.min_trials for _, t in spoken)
        return bool(spoken) and enough and all(t.p_value(c.mu) <= level for c, t in spoken)

    for kind in kinds:
        count = audit.trials_of(kind)
        progress.stage(f"{system.key}: {kind} canary, {2 * count} trainings")
        found = two_world.run(
            system,
            [c.adversary for c in open_claims],
            kind,
            trials=count,
            advance=progress.advance,
            stop=refuted if audit.stop_early else None,
        )
        for claim in open_claims:
            trials[claim.key].append((kind, found[claim.adversary]))
    return trials, _skipped(claims, refusals)


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
    return tuple(f"{c.where} ({c.adversary}): {refusals[c.key]}" for c in claims if refusals[c.key])
