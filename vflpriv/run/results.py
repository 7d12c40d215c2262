"""Results of an audit of one system, before they become rows of the report."""

from __future__ import annotations

from dataclasses import dataclass

from vflpriv.audits.scoring.labels import Success
from vflpriv.core.audit import Finding
from vflpriv.core.claims import MIN_TRIALS, Claim, SuccessClaim
from vflpriv.core.systems import BaseSystem
from vflpriv.core.views import Adversary
from vflpriv.core.wire import Traffic
from vflpriv.report.attacks import FeatureCell
from vflpriv.report.audit import Utility

__all__ = ["Attempt", "Audited"]


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One attack through one view, or the reason why it was not tried."""

    attack: str
    target: str
    adversary: Adversary
    success: Success | None
    refusal: str | None


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
