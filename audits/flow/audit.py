"""The flow audit: a training is followed through every operation between private values, draws and the wire.

One training of a pair of worlds shows of each message whether noise hides what it carries, and the exact loss of the
pair where noise is all that does. There are no statistics in it. What `docs/what-a-trace-proves.md` says holds of it.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace

from pydantic import BaseModel, Field

from vflpriv.audits.flow.observation import Observation, observe
from vflpriv.audits.flow.plain.wire import View
from vflpriv.audits.flow.sources import TracedPair, traceable
from vflpriv.common.machine import single_threaded
from vflpriv.common.registry import register
from vflpriv.core.audit import EPSILON, MU, Audit, AuditContext, Finding, Measurement, measured, untested
from vflpriv.core.claims import Claim, Verdict
from vflpriv.core.systems import Offer, Source
from vflpriv.core.units import Unit

__all__ = ["FlowAudit", "FlowSettings"]

_SAME = 1e-6
"""A figure that two transcripts agree on so closely, relative to its size, does not depend on what was sent."""
_FIRST = 20
"""Rounds that are followed first: where they refute a claim, the others are not."""
_THIS_PAIR = "of this pair of worlds; other pairs may differ more"


class FlowSettings(BaseModel, frozen=True, extra="forbid"):
    """Settings of the flow audit."""

    rounds: int = Field(
        100, gt=0, description="rounds that are followed; what happens later is not said to be without leaks"
    )


@register("audit")
class FlowAudit(Audit[Source]):
    """Follows one training of a pair of neighbouring worlds for each claim, operation by operation."""

    name = "flow"
    summary = "follows every operation from private values and draws to the wire; exact figures of one pair of worlds"
    order = 8
    needs = frozenset({Offer.TRACE})
    settings_type = FlowSettings

    def run(self, source: Source, context: AuditContext) -> list[Finding]:
        """What the trace says of every claim; of those that it cannot speak of, why."""
        settings = context.settings or FlowSettings()
        context.progress.stage(f"{source.key}: every operation of one training")
        traces, findings = _Traces(source, settings.rounds), []
        with single_threaded():
            for claim in context.claims:
                reason = _refusal(claim) or traces.refusal(claim)
                findings.append(untested(self.name, claim, reason) if reason else traces.finding(claim, context))
        return findings


def _refusal(claim: Claim) -> str | None:
    """Why a trace cannot speak of a claim, or None."""
    if claim.adversary.kind in ("model", "outsider"):
        return f"a trace follows messages to parties, and {claim.adversary} is none"
    if claim.unit is Unit.ADD_REMOVE:
        return "a trace compares values, and in one world the record has none"
    return None


class _Traces:
    """Observations of the first rounds of a source, each made once."""

    def __init__(self, source: Source, rounds: int) -> None:
        self._source, self._whole = traceable(source), source.rounds
        self._rounds = min(rounds, source.rounds)
        self._known: dict[tuple[str, View, int, int], Observation] = {}
        self._pairs: dict[str, TracedPair | str] = {}

    def _pair(self, claim: Claim) -> TracedPair | str:
        if claim.key not in self._pairs:
            self._pairs[claim.key] = self._source.traced_pair(claim, self._rounds)
        return self._pairs[claim.key]

    def refusal(self, claim: Claim) -> str | None:
        """Why there is nothing to follow, or None."""
        pair = self._pair(claim)
        return pair if isinstance(pair, str) else None

    def _observed(self, claim: Claim, rounds: int, number: int = 0) -> Observation:
        view, pair = self._source.traced_view(claim.adversary), self._pair(claim)
        assert isinstance(pair, TracedPair)
        key = f"{claim.unit}: {pair.what}", view, rounds, number
        if key not in self._known:
            self._known[key] = observe(pair.program(rounds), view, self._source.seed + number)
        return self._known[key]

    def finding(self, claim: Claim, context: AuditContext) -> Finding:
        """What the first rounds say of a claim, and all that are followed where those do not refute it."""
        first = self._after(claim, min(_FIRST, self._rounds), context)
        if first.verdict is Verdict.VIOLATED or self._rounds <= _FIRST:
            return first
        return self._after(claim, self._rounds, context)

    def _after(self, claim: Claim, rounds: int, context: AuditContext) -> Finding:
        first = self._observed(claim, rounds)
        bare = [message for message in first.messages if message.state == "bare"]
        if bare:
            message = bare[0]
            return Finding(
                audit=FlowAudit.name,
                subject=message.trail.message.kind,
                verdict=Verdict.VIOLATED,
                sentence=f"{message.trail.where}: {message.trail.message.kind} is sent without noise on what it "
                f"carries: {message.why}",
                figure=float(len(bare)),
                measure="messages without noise",
                claim=claim.key,
                unit=claim.unit,
                adversary=claim.adversary,
                note=f"{message.trail.where} sends it",
                repair=f"Noise what {message.trail.message.kind} carries, or do not send it ({message.trail.where}).",
            )
        reasons = [*first.unknown, *(f"{m.trail.where}: {m.why}" for m in first.messages if m.state == "unexplained")]
        if reasons or not math.isfinite(first.loss.mu):
            because = Counter(reasons).most_common(1)[0][0] if reasons else "the law of some noise is not known"
            return untested(FlowAudit.name, claim, f"the trace does not explain everything: {because}")
        measurement = self._measured(claim, first, rounds)
        if isinstance(measurement, str):
            return untested(FlowAudit.name, claim, measurement)
        finding = measured(FlowAudit.name, "every operation", claim, measurement, context)
        claimed = claim.mu if measurement.decides == MU else claim.epsilon
        violated = finding.verdict is Verdict.VIOLATED
        return replace(finding, repair=_repair(measurement, claimed)) if violated else finding

    def _measured(self, claim: Claim, first: Observation, rounds: int) -> Measurement | str:
        """The exact figure of the pair; why there is none, as a phrase."""
        loss, pair = first.loss, self._pair(claim)
        assert isinstance(pair, TracedPair)
        if loss.mu and loss.epsilon:
            return f"noise gives μ = {loss.mu:.4g} and responses ε = {loss.epsilon:.4g}, which are not added up here"
        decides = EPSILON if loss.epsilon else MU
        figure, claimed = (loss.epsilon, claim.epsilon) if loss.epsilon else (loss.mu, claim.mu)
        if figure > claimed * (1 + _SAME):
            again = self._observed(claim, rounds, 1).loss
            other = again.epsilon if loss.epsilon else again.mu
            if abs(other - figure) > _SAME * figure:
                return f"{decides} of this pair is {figure:.4g} along one transcript and {other:.4g} along another"
            if loss.epsilon and claim.delta > 0:
                return f"responses of ε = {figure:.4g} may still be within the claimed ε at its δ"
        figure = min(figure, claimed) if figure <= claimed * (1 + _SAME) else figure
        whole = rounds == self._whole
        if figure <= claimed and not whole:
            return f"{decides} of this pair is {figure:.4g} after {rounds} of {self._whole} rounds"
        states = Counter(message.state for message in first.messages)
        return Measurement(
            unit=claim.unit,
            view=claim.adversary,
            method="every operation followed",
            outcome=f"{pair.what}: {states['sealed']} messages under noise, {states['clean']} without private values",
            decides=decides,
            mu=None if loss.epsilon else figure,
            epsilon=figure if loss.epsilon else None,
            exact=whole,
            confidence=1.0,
            assumptions=(_THIS_PAIR,),
            witness=pair.what,
            tool="one traced training",
            effort="one traced training and three plain ones",
        )


def _repair(measurement: Measurement, claimed: float) -> str:
    """What to change where the figure of a pair is above what is claimed."""
    times = measurement.figure / claimed if claimed else math.inf
    figure = f"{measurement.decides} {measurement.relation} {measurement.figure:.4g}"
    seen = f"{figure} of one pair of worlds ({measurement.witness})"
    if measurement.decides == EPSILON:
        return f"Let responses keep fewer true labels: {seen} is {times:.3g} times the claimed ε."
    return f"Make the noise at least {times:.3g} times as large, or the clip as much smaller: {seen}."
