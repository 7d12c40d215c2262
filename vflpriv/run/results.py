"""What an audit found about one system, before it becomes a report."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from vflpriv.audits.noise import NoiseFinding
from vflpriv.audits.one_run import OneRun
from vflpriv.audits.scoring.labels import Attempt
from vflpriv.audits.sensitivity import Finding
from vflpriv.audits.server_state import EmptiedFinding, StateFinding
from vflpriv.audits.worlds.trials import Trials
from vflpriv.config.models import SystemConfig
from vflpriv.core.canaries import CanaryKind
from vflpriv.core.claims import Claim, SuccessClaim
from vflpriv.core.engine import Evaluation
from vflpriv.core.systems import System
from vflpriv.core.wire import Traffic
from vflpriv.report.attacks import FeatureCell

__all__ = ["Audited"]


@dataclass(frozen=True, kw_only=True)
class Audited:
    """Everything found about one system."""

    system: System
    config: SystemConfig
    claims: tuple[Claim, ...]
    success_claims: tuple[SuccessClaim, ...] = ()
    trials: dict[str, list[tuple[CanaryKind, Trials]]] = field(default_factory=dict)
    """By claim key."""
    one_run: dict[str, OneRun] = field(default_factory=dict)
    """By claim key."""
    findings: tuple[Finding, ...] = ()
    witnesses: dict[int, Path] = field(default_factory=dict)
    """Files of findings, by their identity."""
    noise: tuple[NoiseFinding, ...] = ()
    state: tuple[StateFinding, ...] = ()
    emptied: tuple[EmptiedFinding, ...] = ()
    attempts: tuple[Attempt, ...] = ()
    before: Evaluation | None = None
    after: Evaluation | None = None
    traffic: Traffic | None = None
    importance: tuple[float, ...] = ()
    features: tuple[FeatureCell, ...] = ()
    skipped: tuple[str, ...] = ()
    broken: tuple[str, ...] = ()
    """Further premises of every guarantee that do not hold, in words."""
