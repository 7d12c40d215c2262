"""The audit of a training function: it is trained in two worlds, and claims are tested by what views see of that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from vflpriv.audits.ciphertexts import Sealed, recorded_ciphertexts
from vflpriv.audits.statistics.confirmation import by_both, suspected, times_as_many
from vflpriv.audits.two_world.findings import TWO_WORLD, whole_view_finding
from vflpriv.audits.two_world.whole_view import WholeViewScores
from vflpriv.common.registry import register
from vflpriv.core.audit import Audit, AuditContext, Finding, untested
from vflpriv.core.canaries import CanaryKind
from vflpriv.core.claims import Claim
from vflpriv.core.systems import Offer
from vflpriv.core.units import Unit
from vflpriv.core.views import DEVICES_TRIED, Adversary

__all__ = ["FunctionTrialAudit", "tested_views", "worlds_refusal"]


@register("audit")
class FunctionTrialAudit(Audit[Any]):
    """Trains a user's function again and again in its two worlds, and scores what each view sees of each training."""

    name = "function-trials"
    topic = TWO_WORLD
    summary = "trains a user's function in its two worlds and measures how well a view tells them apart"
    order = 41
    needs = frozenset({Offer.MESSAGES, Offer.LEDGER_FILE, Offer.WORLDS})

    def run(self, source: Any, context: AuditContext) -> list[Finding]:
        """A test of every claim that the worlds can test; of the others, why there is none."""
        context = replace(context, min_trials=source.worlds.min_trials)
        refusals = {claim.key: _refusal(source, claim) for claim in context.claims}
        views = {c.key: tested_views(source, c.adversary) for c in context.claims if refusals[c.key] is None}
        trials = _Trials(source, views, context) if views else None
        findings = []
        for claim in context.claims:
            reason = refusals[claim.key]
            if trials is None or reason is not None:
                findings.append(untested(TWO_WORLD, claim, reason or ""))
            else:
                findings.append(trials.finding(claim, views[claim.key], context))
        return self._confirmed(source, findings, views, context)

    def _confirmed(
        self, source: Any, findings: Sequence[Finding], views: Mapping[str, Sequence[Adversary]], context: AuditContext
    ) -> list[Finding]:
        """The findings; a claim that the trials refute was tested again on fresh ones."""
        keys = suspected([findings], context)
        suspects = {f.claim: f for f in findings if f.claim in keys}
        if not suspects:
            return list(findings)
        times = times_as_many(suspects.values(), context)
        fresh = _Trials(source, {key: views[key] for key in keys}, context, times=times, fresh=True)
        again = {c.key: fresh.finding(c, views[c.key], context) for c in context.claims if c.key in keys}
        return [by_both(f, again[f.claim]) if f.claim in again and again[f.claim].is_test else f for f in findings]


class _Trials:
    """The trainings of a function in its two worlds, and the scores learned from what views saw of them."""

    def __init__(
        self,
        source: Any,
        views: Mapping[str, Sequence[Adversary]],
        context: AuditContext,
        *,
        times: int = 1,
        fresh: bool = False,
    ) -> None:
        self._source, count = source, times * source.worlds.per_world
        watched = dict.fromkeys(view for several in views.values() for view in several)
        sealed = Sealed(source.ledger, recorded_ciphertexts(source.ledger, source.messages, context.claims))
        hidden = {view: sealed.kinds_in_clear(source.reference.messages, view) for view in watched}
        canary, trained = source.train_worlds(
            hidden, count=count, fresh=fresh, store=context.store, executor=context.executor
        )
        self._same_batches = trained.same_batches
        self._scores = WholeViewScores(trained.features, canary=canary, trials=count)

    def finding(self, claim: Claim, views: Sequence[Adversary], context: AuditContext) -> Finding:
        """The test of a claim, or why trials with the same batches do not test it."""
        reason = self._batches_refusal(claim)
        if reason is not None:
            return untested(TWO_WORLD, claim, reason)
        whole = self._scores.tested(views)
        assert whole is not None
        finding = whole_view_finding(claim, CanaryKind.NATURAL, whole, context)
        meant = len(claim.adversary.each(self._source.worlds.devices))
        if meant == 1:
            return finding
        return replace(finding, sentence=f"{finding.sentence}, the most telling of {len(views)} of {meant} devices")

    def _batches_refusal(self, claim: Claim) -> str | None:
        """Why trials with the same batches do not test a claim that counts on secret ones."""
        if claim.adversary.knows_batches or not self._same_batches:
            return None
        events = self._source.ledger.exposure(claim.adversary, claim.unit).events
        if not any(event.sampling is not None for event in events):
            return None
        return f"all trials have the same batches, which are a secret to {claim.adversary}: draw them from the seed"


def tested_views(source: Any, adversary: Adversary) -> list[Adversary]:
    """The views meant by an adversary, of any device the first few, without those that hold what differs."""
    devices, owners = source.worlds.devices, source.worlds.owners
    others = [view for view in adversary.each(devices) if not owners & set(view.members(devices))]
    return others[:DEVICES_TRIED]


def _refusal(source: Any, claim: Claim) -> str | None:
    """Why the trials say nothing about a claim, or None."""
    if not source.worlds.per_world:
        return "no trials in two worlds were asked for"
    return worlds_refusal(source, claim)


def worlds_refusal(source: Any, claim: Claim) -> str | None:
    """Why the two worlds of a function say nothing about a claim, or None."""
    worlds, reference = source.worlds, source.reference
    if not reference.differ:
        return (
            f"the two worlds do not differ: with each of {reference.seeds} seeds they sent the same messages; does "
            "train() use `world`, and does what differs take part?"
        )
    if not claim.unit.implies(worlds.unit):
        return f"the two worlds differ in {worlds.unit.description}, the claim is about {claim.unit.description}"
    return _view_refusal(source, claim)


def _view_refusal(source: Any, claim: Claim) -> str | None:
    worlds, ledger, adversary = source.worlds, source.ledger, claim.adversary
    exposure = ledger.exposure(adversary, claim.unit)
    if exposure.not_applicable is not None:
        return f"two-world has nothing to tell: {exposure.not_applicable}"
    if adversary.holds_model:
        return "what is sent is seen here, and the trained model is not"
    if worlds.label_differs and adversary.kind in ledger.label_holders:
        instead = "" if worlds.unit is Unit.LABEL else "; worlds of unit = 'features' test it"
        return f"{adversary} holds the labels, in which the two worlds may differ{instead}"
    if not tested_views(source, adversary):
        instead = "; a device in [trials], or unit = 'label', says less" if worlds.device is None else ""
        return f"{adversary} holds what differs between the two worlds{instead}"
    return None
