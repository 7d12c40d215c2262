"""Results of an audit of one system, before they become rows of the report."""

from __future__ import annotations

from dataclasses import dataclass

from vflpriv.audits.scoring.labels import Attempt
from vflpriv.core.audit import Finding
from vflpriv.core.claims import MIN_TRIALS, Claim, SuccessClaim
from vflpriv.core.systems import BaseSystem
from vflpriv.core.wire import Traffic
from vflpriv.report.attacks import FeatureCell
from vflpriv.report.audit import Utility

__all__ = ["Audited"]


@dataclass(frozen=True, kw_only=True)
class Audited:
    """One system with its claims, the findings of all audits, and the results of one training."""

    system: BaseSystem
    claims: tuple[Claim, ...] = ()
    success_claims: tuple[SuccessClaim, ...] = ()
    findings: tuple[Finding, ...] = ()
    not_tested: tuple[str, ...] = ()
    """What could not be tested, a line each."""
    min_trials: int = MIN_TRIALS
    attempts: tuple[Attempt, ...] = ()
    utility: Utility | None = None
    traffic: Traffic | None = None
    importance: tuple[float, ...] = ()
    features: tuple[FeatureCell, ...] = ()
