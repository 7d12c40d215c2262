"""The flow audit: a training is followed through every operation between private values, draws and the wire.

One training of a pair of worlds shows of each message whether noise hides what it carries, and the exact loss of the
pair where noise is all that does. There are no statistics in it. What `docs/what-a-trace-proves.md` says holds of it.
A claim about a view that is sent something which the trace does not explain is never consistent.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from typing import Any

from pydantic import BaseModel, Field

from vflpriv.audits.flow.engines import MODEL
from vflpriv.audits.flow.figures import SAME, Figures, figures_of
from vflpriv.audits.flow.observation import Observation, observe
from vflpriv.audits.flow.plain.wire import View
from vflpriv.audits.flow.sources import TracedPair, traceable
from vflpriv.audits.statistics.losses import (
    epsilon_of_losses,
    missed,
    mu_of_losses,
    p_value_losses,
    p_value_reached,
)
from vflpriv.common.machine import single_threaded
from vflpriv.common.registry import register
from vflpriv.core.audit import (
    AT_CLIP,
    EPSILON,
    MU,
    ROUNDING,
    Audit,
    AuditContext,
    Finding,
    Measurement,
    above,
    measured,
    untested,
)
from vflpriv.core.budgets import delta_of, epsilon_of, mu_of
from vflpriv.core.claims import Claim, Verdict
from vflpriv.core.systems import Offer, Source
from vflpriv.core.units import Unit

__all__ = ["FlowAudit", "FlowSettings"]

_DRAWS = 200
"""Transcripts along which the loss is drawn where it follows them."""
_REACHED, _LESS, _APART = 30, 0.5, 1_000
"""Transcripts that a figure is tried on, how much of the first one's it is, and where their seeds begin."""
_TRANSCRIPTS = 3
"""Further transcripts of a training whose branches read what was sent."""
_FIRST = 20
"""Rounds that are followed first: where they refute a claim, the others are not."""
_THIS_PAIR = "of this pair of worlds; other pairs may differ more"

_BEYOND = "rounds that are not followed have the noise of those that are; the noise audit holds it against its draws"


class FlowSettings(BaseModel, frozen=True, extra="forbid"):
    """Settings of the flow audit."""

    rounds: int = Field(
        100, gt=0, description="rounds that are followed; what happens later is not said to be without leaks"
    )


@register("audit")
class FlowAudit(Audit[Source]):
    """Follows one training of a pair of neighbouring worlds for each claim, operation by operation.

    Where noise is all that hides a pair, its figure is exact, and stands first among the measurements of the claim. A
    message that nothing hides, or a figure above the claim, refutes it. What the trace does not explain leaves the
    claim unmeasured, whatever other audits find; what it was not asked (rounds beyond `rounds`, absence of a record)
    is left to them.
    """

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
                reason = traces.refusal(claim)
                findings.append(untested(self.name, claim, reason) if reason else traces.finding(claim, context))
        return findings


class _Traces:
    """Observations of the first rounds of a source, each made once."""

    def __init__(self, source: Source, rounds: int) -> None:
        self._source, self._whole = traceable(source), source.rounds
        self._rounds = min(rounds, source.rounds)
        self._known: dict[tuple[str, View, int, int], Observation] = {}
        self._pairs: dict[str, TracedPair | str] = {}
        self._along: dict[str, str] = {}
        """Why the figure of a pair refutes nothing: other draws lead to another one. By the claim's key."""
        self._others: dict[str, Finding | None] = {}
        """What other transcripts say of a claim, where they were asked for."""

    def refusal(self, claim: Claim) -> str | None:
        """Why there is nothing to follow, or None."""
        if claim.adversary.kind == "outsider":
            return "a trace takes the batches as known, and an outsider does not know them"
        if claim.unit is Unit.ADD_REMOVE:
            return "a trace compares values, and in one world the record has none"
        if claim.adversary.kind == MODEL and self._rounds < self._whole:
            return f"a trained model is there after {self._whole} rounds, and {self._rounds} are followed"
        if claim.key not in self._pairs:
            self._pairs[claim.key] = self._source.traced_pair(claim, self._rounds)
        pair = self._pairs[claim.key]
        return pair if isinstance(pair, str) else None

    def _pair(self, claim: Claim) -> TracedPair:
        pair = self._pairs[claim.key]
        assert isinstance(pair, TracedPair)
        return pair

    def _observed(self, claim: Claim, rounds: int, number: int = 0, *, pair: TracedPair | None = None) -> Observation:
        view, pair = self._source.traced_view(claim.adversary), pair or self._pair(claim)
        key = f"{claim.unit}: {pair.what}", view, rounds, number
        if key not in self._known:
            self._known[key] = observe(pair.program(rounds), view, self._source.seed + number)
        return self._known[key]

    def finding(self, claim: Claim, context: AuditContext) -> Finding:
        """What the first rounds say of a claim, and all that are followed where those do not refute it."""
        short = claim.adversary.kind != MODEL and self._rounds > _FIRST
        first = self._after(claim, _FIRST if short else self._rounds, context)
        if first.verdict is Verdict.VIOLATED:
            return first
        at_clip = self._at_clip(claim, context)
        if at_clip is not None and at_clip.verdict is Verdict.VIOLATED:
            return at_clip
        # What refutes the claim whatever else is sent needs no longer trace.
        drawn = self._otherwise(claim, context) if claim.key in self._along else None
        if drawn is not None and drawn.verdict is Verdict.VIOLATED:
            return drawn
        followed = self._after(claim, self._rounds, context) if short else first
        clear = followed.verdict is Verdict.CONSISTENT and followed.measurement is not None
        return at_clip if at_clip is not None and clear and at_clip.figure > followed.figure else followed

    def _at_clip(self, claim: Claim, context: AuditContext) -> Finding | None:
        """What is measured of the mechanism's own worst pair; None where it has none, or nothing is seen of it."""
        pair = self._pair(claim).at_clip
        if pair is None or claim.adversary.kind == MODEL:
            return None
        # Of a training that is not followed to its end, the first rounds in which anything is moved show the noise.
        tried = (self._rounds,) if self._rounds == self._whole else dict.fromkeys((_FIRST, self._rounds))
        for rounds in tried:
            figures = _figures(claim, observation := self._observed(claim, rounds, pair=pair))
            if figures.least:
                figures = self._to_the_end(claim, figures, rounds, pair)
                return self._tested(claim, context, self._measurement(claim, figures, observation, rounds, pair), pair)
        return None

    def _to_the_end(self, claim: Claim, figures: Figures, rounds: int, pair: TracedPair) -> Figures:
        """The figures of all rounds, where those that were followed are as a plain training adds them up."""
        if pair.squares is None or figures.mu is None or rounds == self._whole:
            return figures
        squares = pair.squares()
        if not math.isclose(math.fsum(squares[:rounds]), figures.mu**2, rel_tol=ROUNDING):
            return figures
        mu = math.sqrt(math.fsum(squares))
        epsilon = epsilon_of(mu, claim.delta)
        least = mu if _decides(claim) == MU else epsilon
        return Figures(least=least, most=math.inf, mu=mu, epsilon=epsilon)

    def _tested(
        self, claim: Claim, context: AuditContext, measurement: Measurement, pair: TracedPair
    ) -> Finding | None:
        """The claim against a figure at the clip; None if other draws lead to another one."""
        finding = measured(FlowAudit.name, measurement.method, claim, measurement, context)
        if finding.verdict is not Verdict.VIOLATED:
            return finding
        rounds = self._rounds if self._rounds == self._whole else _FIRST
        first, again = (_figures(claim, self._observed(claim, rounds, seed, pair=pair)).least for seed in (0, 1))
        same = math.isclose(first, again, rel_tol=SAME)
        return replace(finding, repair=_repair(measurement, claim)) if same else None

    def _after(self, claim: Claim, rounds: int, context: AuditContext) -> Finding:
        """What so many rounds say of a claim."""
        first = self._observed(claim, rounds)
        if claim.adversary.kind == MODEL and not first.messages and not first.unknown:
            return untested(FlowAudit.name, claim, "the program hands its trained model to nobody")
        seen = [first]
        if first.decided and _leak(claim, first) is None:
            # What is done next depends on what was sent: other transcripts may tell more.
            seen += [self._observed(claim, rounds, number) for number in range(1, _TRANSCRIPTS + 1)]
        leaks = [leak for observation in seen if (leak := _leak(claim, observation)) is not None]
        if leaks:
            return leaks[0]
        reasons = [reason for observation in seen for reason in _reasons(observation)]
        figures = _figures(claim, first)
        if not reasons and not math.isfinite(figures.most) and math.isinf(first.loss.mu):
            reasons = ["the law of some noise is not known"]
        measurement = self._measurement(claim, figures, first, rounds, self._pair(claim))
        if above(measurement, claim):
            again = figures if claim.key in self._along else _figures(claim, self._observed(claim, rounds, 1))
            if not math.isclose(again.least, figures.least, rel_tol=SAME):
                along = f"{figures.least:.4g} along one transcript and {again.least:.4g} along another"
                self._along[claim.key] = f"{measurement.decides} is {along}, and one transcript refutes nothing"
            if claim.key not in self._along:
                finding = measured(FlowAudit.name, measurement.method, claim, measurement, context)
                return replace(finding, repair=_repair(measurement, claim))
            reasons.append(self._along[claim.key])
            drawn = self._otherwise(claim, context) if rounds == self._rounds else None
            if drawn is not None and drawn.verdict is Verdict.VIOLATED:
                return drawn
        if reasons:
            return _unexplained(claim, first, reasons)
        if figures.most > _claimed(claim) * (1 + ROUNDING):
            between = f"{measurement.decides} of this pair is between {figures.least:.4g} and {figures.most:.4g}"
            return _unexplained(claim, first, [f"{between}, and {_claimed(claim):.4g} is claimed"])
        if figures.least == 0 < figures.most:
            return _sealed(claim, measurement, figures)
        return measured(FlowAudit.name, measurement.method, claim, measurement, context)

    def _otherwise(self, claim: Claim, context: AuditContext) -> Finding | None:
        """The claim against other transcripts, where the figure follows what was sent; None if nothing is known."""
        if claim.key not in self._others:
            self._others[claim.key] = self._drawn(claim, context, self._rounds)
        return self._others[claim.key]

    def _drawn(self, claim: Claim, context: AuditContext, rounds: int) -> Finding | None:
        """The claim against draws of the loss, or figures, along other transcripts."""
        pair, decides, confidence = self._pair(claim), _decides(claim), context.confidence
        losses = None if pair.losses is None else pair.losses(rounds, _DRAWS)
        if losses is None:
            return self._reached(claim, context, rounds)
        measurement = Measurement(
            **_along(
                claim, pair, f"exact losses along {len(losses)} transcripts of {rounds} rounds", "draws of the loss"
            ),
            mu=mu_of_losses(losses, confidence) if decides == MU else None,
            epsilon=epsilon_of_losses(losses, claim.delta, confidence) if claim.delta else 0.0,
            confidence=confidence,
            p_value=p_value_losses(losses, *_allowed(claim)),
            trials=len(losses),
            effort=f"{pair.what}: {len(losses)} pairs of trainings",
        )
        return measured(FlowAudit.name, measurement.method, claim, measurement, context)

    def _reached(self, claim: Claim, context: AuditContext, rounds: int) -> Finding | None:
        """The claim against a figure that every one of some further transcripts reaches; None if they need not be made.

        The figure is chosen by the first transcript, and by none of those that test it.
        """
        pair, count = self._pair(claim), max(_REACHED, context.min_trials)
        first = _figures(claim, self._observed(claim, rounds)).mu
        least = _LESS * first if first is not None and math.isfinite(first) else 0.0
        p_value = p_value_reached(least, count, *_allowed(claim))
        if p_value > context.verdict_alpha:
            return None
        view = self._source.traced_view(claim.adversary)
        for number in range(count):
            observed = observe(pair.program(rounds), view, self._source.seed + _APART + number)
            along = _figures(claim, observed).mu
            if along is None or not least <= along < math.inf:
                return None
        share = missed(count, context.confidence)
        measurement = Measurement(
            **_along(claim, pair, f"μ ≥ {least:.4g} along {count} of {count} transcripts", "other transcripts"),
            mu=mu_of(0.0, max(0.0, delta_of(least, 0.0) - share)) if _decides(claim) == MU else None,
            epsilon=epsilon_of(least, min(1.0, claim.delta + share)),
            confidence=context.confidence,
            p_value=p_value,
            trials=count,
            effort=f"{pair.what}: {count} traced trainings",
        )
        return measured(FlowAudit.name, measurement.method, claim, measurement, context)

    def _measurement(
        self, claim: Claim, figures: Figures, observation: Observation, rounds: int, pair: TracedPair
    ) -> Measurement:
        """The figure of the pair as a measurement, exact where all rounds were followed and noise is all there is."""
        decides = _decides(claim)
        states = Counter(message.state for message in observation.messages)
        exact = figures.exact and rounds == self._whole
        followed = "" if rounds == self._whole else f" in the first {rounds} rounds"
        beyond = rounds < self._whole and math.isinf(figures.most)
        return Measurement(
            unit=claim.unit,
            view=claim.adversary,
            method="exact, this pair" if exact else "at least, this pair",
            outcome=f"{pair.what}: {states['sealed']} messages under noise, {states['clean']} without private values"
            + followed
            + (f", the same noise in all {self._whole}" if beyond else ""),
            decides=decides,
            mu=figures.least if decides == MU else figures.mu,
            epsilon=figures.epsilon,
            delta=claim.delta,
            exact=exact,
            confidence=1.0,
            assumptions=(_THIS_PAIR, _BEYOND) if beyond else (_THIS_PAIR,),
            witness=pair.what,
            tool="one traced training",
            description="the two worlds of one traced training",
            effort=f"{pair.what}: one traced training and three plain ones",
            facts={AT_CLIP: True} if pair is self._pair(claim).at_clip else {},
        )


def _along(claim: Claim, pair: TracedPair, outcome: str, method: str) -> dict[str, Any]:
    """What is said of measurements along several transcripts."""
    return {
        "unit": claim.unit,
        "view": claim.adversary,
        "method": method,
        "outcome": f"{pair.what}: {outcome}",
        "decides": _decides(claim),
        "delta": claim.delta,
        "assumptions": (_THIS_PAIR,),
        "witness": pair.what,
        "tool": method,
        "description": "the two worlds of one traced training",
    }


def _allowed(claim: Claim) -> tuple[float, float]:
    """An ε, and the δ that the claim allows there."""
    return (0.0, delta_of(claim.mu, 0.0)) if _decides(claim) == MU else (claim.epsilon, claim.delta)


def _claimed(claim: Claim) -> float:
    return claim.mu if _decides(claim) == MU else claim.epsilon


def _decides(claim: Claim) -> str:
    return MU if claim.stated == "mu" else EPSILON


def _figures(claim: Claim, observation: Observation) -> Figures:
    return figures_of(observation, claim.delta, by_mu=_decides(claim) == MU)


def _leak(claim: Claim, observation: Observation) -> Finding | None:
    """The finding that something differs between the worlds which no noise hides, if anything does."""
    bare = [message for message in observation.messages if message.state == "bare"]
    if bare:
        trail = bare[0].trail
        kind = trail.message.kind
        return replace(
            _finding(
                claim,
                kind,
                Verdict.VIOLATED,
                f"{trail.where}: {kind} is sent without noise on what it carries: {bare[0].why}",
            ),
            figure=float(len(bare)),
            measure="messages without noise",
            note=f"{trail.where} sends it",
            repair=f"Noise what {kind} carries, or do not send it ({trail.where}).",
        )
    if observation.form is not None:
        repair = "Send as many messages, of the same sizes, whatever the private values are."
        return replace(_finding(claim, "messages", Verdict.VIOLATED, observation.form), repair=repair)
    total = observation.shown.leak or (None if observation.unknown else observation.loss.leak)
    if total is None:
        return None
    return replace(
        _finding(claim, "noise", Verdict.VIOLATED, total),
        repair="Draw the noise on every value that is sent by itself.",
    )


def _reasons(observation: Observation) -> list[str]:
    """Why it is not known what some messages tell."""
    unexplained = (message for message in observation.messages if message.state == "unexplained")
    return [*observation.unknown, *(f"{message.trail.where}: {message.why}" for message in unexplained)]


def _unexplained(claim: Claim, observation: Observation, reasons: list[str]) -> Finding:
    """The finding that the view is sent something of which nobody knows what it tells."""
    unknown = [message.trail for message in observation.messages if message.state == "unexplained"]
    kind = unknown[0].message.kind if unknown else "every operation"
    because = Counter(reasons).most_common(1)[0][0]
    return replace(
        _finding(claim, kind, Verdict.UNMEASURED, f"the trace does not explain everything: {because}"),
        figure=float(max(1, len(unknown))),
        measure="messages unexplained",
    )


def _sealed(claim: Claim, measurement: Measurement, figures: Figures) -> Finding:
    """The finding that all private values are under noise, but that no figure of the pair is known from below."""
    at_most = f"{measurement.decides} of this pair is at most {figures.most:.4g}, by what messages are made of"
    sentence = f"{measurement.outcome}; {at_most}"
    return replace(
        _finding(claim, "every operation", Verdict.CONSISTENT, sentence),
        figure=figures.most,
        measure=f"{measurement.decides} at most",
    )


def _finding(claim: Claim, subject: str, verdict: Verdict, sentence: str) -> Finding:
    return Finding(
        audit=FlowAudit.name,
        subject=subject,
        verdict=verdict,
        sentence=sentence,
        figure=1.0,
        measure="leaks",
        claim=claim.key,
        unit=claim.unit,
        adversary=claim.adversary,
    )


def _repair(measurement: Measurement, claim: Claim) -> str:
    """What to change where the figure of a pair is above what is claimed."""
    figure = f"{measurement.decides} {measurement.relation} {measurement.figure:.4g}"
    seen = f"{figure} of one pair of worlds ({measurement.witness})"
    if measurement.mu is None:
        return f"Let responses keep fewer true labels: {seen} is above the claimed {_claimed(claim):.4g}."
    times = measurement.mu / claim.mu if claim.mu else math.inf
    if math.isinf(times):
        return f"Claim a δ above 0, or use noise of bounded loss: {seen}."
    return f"Make the noise at least {times:.3g} times as large, or the clip as much smaller: {seen}."
