"""The one-run audit: many canaries in a single training, each in a world by a fair coin; how many can a view guess?

Of recorded trainings whose labels held canaries, the coins are guessed by attacks on labels, or by a learned score.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vflpriv.audits.learned.recorded import Split
from vflpriv.audits.statistics.confirmation import by_both, suspected
from vflpriv.audits.statistics.one_run import (
    Guesses,
    epsilon_one_run,
    mu_one_run,
    p_value_one_run,
    p_value_one_run_gdp,
)
from vflpriv.audits.statistics.pilot import Pilot
from vflpriv.audits.twins.probes import CoinProbe, Released
from vflpriv.audits.two_world.scores import noise_stds
from vflpriv.common.formatting import count
from vflpriv.common.numerics import Floats
from vflpriv.common.registry import register
from vflpriv.common.seeds import derive
from vflpriv.common.store import Entry, Store, TensorForm
from vflpriv.common.tasks import Advancing, Executor, InProcess, Tasks, Worker
from vflpriv.core.attack import Guess
from vflpriv.core.audit import EPSILON, MU, Audit, AuditContext, ClaimTest, Finding, Measurement, measured, untested
from vflpriv.core.canaries import Canaries, MemberCanaries, OneRunSettings, draw_canaries
from vflpriv.core.claims import MIN_TRIALS, Claim
from vflpriv.core.ledger import Ledger, Reading
from vflpriv.core.systems import Offer, System, accelerated
from vflpriv.core.units import Unit
from vflpriv.core.views import Adversary
from vflpriv.errors import InputError

__all__ = [
    "ASSUMPTIONS",
    "LEARNED",
    "CoinScores",
    "OneRun",
    "OneRunAudit",
    "guess",
    "guess_coins",
    "guess_members",
    "plant",
    "train_with_coins",
]

_PLANNED_AT = 0.95
ASSUMPTIONS = (
    "each canary's world is decided by a fair coin of its own, independent of all others",
    "each record holds at most one canary",
    "how many canaries are guessed about was fixed without their coins; canaries set aside for that are not counted",
    "scores read the view and the records, never a coin: all state is post-processing of releases",
)


@dataclass(frozen=True, eq=False, kw_only=True)
class OneRun:
    """The guesses of one view about the coins of one training. Positive scores say world 0; `worlds` are the coins.

    A claim that is stated as μ-GDP is tested as that trade-off curve, a claim of (ε, δ) as (ε, δ), so that nothing is
    assumed of the mechanism.
    """

    adversary: Adversary
    scores: Floats
    worlds: NDArray[np.int64]
    set_aside: int
    guesses: Guesses
    unit: Unit = Unit.LABEL
    how: str = "one run"
    """How the coins were guessed."""
    assumptions: tuple[str, ...] = ASSUMPTIONS

    def against(self, claim: Claim, confidence: float) -> ClaimTest:
        """The test of a claim: in μ, or in ε where it is tested as (ε, δ)."""
        guesses = self.guesses
        if claim.stated == "mu":
            return ClaimTest(MU, mu_one_run(guesses, confidence), p_value_one_run_gdp(guesses, claim.mu))
        p_value = p_value_one_run(guesses, claim.epsilon, claim.delta)
        return ClaimTest(EPSILON, epsilon_one_run(guesses, claim.delta, confidence), p_value)

    def finding(self, claim: Claim, context: AuditContext) -> Finding:
        """The test of one claim."""
        guesses, confidence = self.guesses, context.confidence
        test = self.against(claim, confidence)
        planned = f" ({self.set_aside} more to plan the guesses)" if self.set_aside else ""
        measurement = Measurement(
            unit=self.unit,
            view=self.adversary,
            method=self.how,
            outcome=f"{guesses.right} of {guesses.made} guesses right about {guesses.canaries} canaries{planned} in "
            "one training",
            decides=test.measure,
            mu=mu_one_run(guesses, confidence),
            epsilon=epsilon_one_run(guesses, claim.delta, confidence),
            delta=claim.delta,
            confidence=confidence,
            assumptions=self.assumptions,
            p_value=test.p_value,
            trials=guesses.made,
            against=lambda other: self.against(other, confidence),
            strength=-2,
            tool="canaries in one training",
            effort=f"one training with {count(guesses.canaries)} canaries, {count(guesses.made)} guesses",
            facts={"canaries": guesses.canaries, "set_aside": self.set_aside, "right": guesses.right},
        )
        guessed = f"{guesses.right} of {guesses.made} coins guessed, {guesses.canaries} canaries"
        sentence = f"{self.how}, view {self.adversary}, {guessed}"
        return measured(OneRunAudit.name, "one-run", claim, measurement, context, sentence=sentence)


class CoinScores:
    """(R, m) evidence for world 0 of each canary, the other canaries' coins taken as more noise.

    A release X = centre ± h_1 ± … ± h_k + N(0, σ²) adds 2 h_i (X - centre) / (σ² + Σ_{j≠i} h_j²) to canary i's.
    """

    def __init__(self, ledger: Ledger, canaries: int) -> None:
        self._stds = noise_stds(ledger)
        self.total = torch.zeros(1, canaries)

    def add(self, value: Released) -> None:
        """Take one released value into account, if canaries move it."""
        shift = value.shift
        if shift is None or value.kind not in self._stds:
            return
        away, square = value.released - shift.centre, shift.halves.square()
        others = square.sum(1, keepdim=True) - square
        gain = 2 * shift.halves * away.unsqueeze(1) / (self._stds[value.kind] ** 2 + others)
        if self.total.device != away.device or len(self.total) != len(away):
            self.total = torch.zeros(len(away), self.total.shape[1], device=away.device)
        self.total.index_add_(1, shift.canaries, gain)


def guess(scores: Floats, worlds: NDArray[np.int64], *, made: int | None = None) -> tuple[Guesses, int]:
    """Guess the coins of the canaries with the largest scores; return the guesses, and how many were set aside.

    Without `made` the first canaries are set aside, their coins looked at, and the number of guesses about the others
    is planned from them. Given those coins, what is left is a run with so many canaries fewer.
    """
    aside = 0 if made is not None else min(max(50, len(scores) // 10), len(scores) // 4)
    counted, coins = scores[aside:], worlds[aside:]
    if made is None:
        seen = worlds[:aside]
        known = [scores[:aside][seen == world] for world in (0, 1)]
        both = all(len(part) > 1 for part in known)
        pilot = Pilot.of(*known) if both else Pilot.of_ratios()

        def promise(planned: int, right: int) -> float:
            return mu_one_run(Guesses(canaries=len(counted), made=planned, right=right), _PLANNED_AT)

        made = pilot.guesses(len(counted), promise)
    surest = np.argsort(-np.abs(counted), kind="stable")[:made]
    right = int(((counted[surest] > 0) == (coins[surest] == 0)).sum())
    return Guesses(canaries=len(counted), made=len(surest), right=right), aside


@register("audit")
class OneRunAudit(Audit[System]):
    """Trains once with the labels of many canaries decided by coins, and guesses the coins through a view."""

    name = "one-run"
    summary = "trains once with many canaries and measures how many of their coins a view can guess"
    order = 50
    needs = frozenset({Offer.RELEASE_POINTS})
    settings_type = OneRunSettings
    on_request = True

    def __init__(self, *, store: Store | None = None, executor: Executor | None = None) -> None:
        self.store, self.executor = store or Store(), executor or InProcess()

    def work(self, system: System, context: AuditContext) -> int:
        return system.schedule.rounds if self._testable(system, context) else 0

    def run(self, system: System, context: AuditContext) -> list[Finding]:
        """A test of every claim about labels, all views in one training; and why, of claims that it cannot test."""
        settings: OneRunSettings = context.settings or OneRunSettings()
        findings, claims = [], self._testable(system, context)
        if claims:
            context.progress.stage(f"{system.key}: one run, {settings.canaries} canaries")
            findings = self._tested(system, claims, context, settings)
            keys = suspected([findings], context)
            suspects = [claim for claim in claims if claim.key in keys]
            fresh = {f.claim: f for f in self._tested(system, suspects, context, settings, fresh=True)}
            findings = [by_both(f, fresh[f.claim]) if f.claim in fresh else f for f in findings]
        refusals = [(claim, self.view_refusal(system, claim.adversary)) for claim in context.claims]
        return findings + [untested(self.name, claim, reason) for claim, reason in refusals if reason is not None]

    def _tested(
        self,
        system: System,
        claims: Sequence[Claim],
        context: AuditContext,
        settings: OneRunSettings,
        *,
        fresh: bool = False,
    ) -> list[Finding]:
        """A test of each of these claims, by one training for all of them."""
        if not claims:
            return []
        runs = OneRunAudit(store=Store(context.store), executor=context.executor).measure(
            system,
            list(dict.fromkeys(claim.adversary for claim in claims)),
            canaries=settings.canaries,
            guesses=settings.guesses,
            advance=None if fresh else context.progress.advance,
            fresh=fresh,
        )
        return [runs[claim.adversary].finding(claim, context) for claim in claims]

    def _testable(self, system: System, context: AuditContext) -> list[Claim]:
        """The claims that cover labels, against adversaries that can guess the coins."""
        claims = [claim for claim in context.claims if claim.unit.implies(Unit.LABEL)]
        return [claim for claim in claims if self.view_refusal(system, claim.adversary) is None]

    def view_refusal(self, system: System, adversary: Adversary) -> str | None:
        """Why this system cannot be audited through this view, or None."""
        name = system.engine.name
        if not system.engine.capabilities.relabels:
            return f"one-run needs an engine that says how canaries move its releases, and {name} does not"
        if system.settings.label_mechanism is not None:
            return "one-run needs labels that are used as they are"
        if not adversary.knows_batches:
            return f"one-run needs a view that knows the batches, and {adversary} does not"
        exposure = system.ledger.exposure(adversary, Unit.LABEL)
        if exposure.not_applicable is not None:
            return exposure.not_applicable
        if exposure.unprotected or not exposure.events or not exposure.gaussian:
            return f"one-run needs labels that reach {adversary} through Gaussian noise only"
        carriers = [r.leak.carrier for r in system.ledger.releases if r.leak and Unit.LABEL in r.leak.sensitivity]
        if carriers:
            return f"one-run needs state that follows from releases, and {carriers[0]} moves by exact labels"
        # Of releases that it does not see, the paper's reading counts none, though models carry them to its messages.
        seen, sent = (
            system.ledger.exposure(a, Unit.LABEL, reading=Reading.PAPER).counts
            for a in (adversary, Adversary.parse("devices(all)"))
        )
        if seen is None or sent is None or (seen < sent).any():
            return f"one-run needs a view of all releases that the state follows from, and {adversary} sees only some"
        return None

    def measure(
        self,
        system: System,
        adversaries: Sequence[Adversary],
        *,
        canaries: int,
        guesses: int | None = None,
        advance: Callable[[int], None] | None = None,
        fresh: bool = False,
    ) -> Mapping[Adversary, OneRun]:
        """One training with so many canaries, scored through several views. `advance` receives the rounds done.

        With `fresh` it is another training, with other canaries and other coins.
        """
        planted = plant(system, canaries, fresh=fresh)
        if guesses is not None and guesses > canaries:
            raise InputError("audit.one-run.guesses", guesses, f"at most canaries = {canaries}")
        names = [str(adversary) for adversary in adversaries]
        entry = Entry(
            key=system.result_key(self.store, "one-run", canaries, "+".join(names), *(["fresh"] if fresh else [])),
            form=TensorForm(names=names, rows=canaries),
            work=system.schedule.rounds,
        )
        tasks = Tasks(
            function=train_with_coins,
            common=system,
            items=[(tuple(adversaries), planted, int(fresh))],
            names=[f"{system.key}, one run, {canaries} canaries"],
            accelerated=accelerated(system),
        )
        progress = Advancing(advance)
        (trained,) = self.store.results([entry], lambda _: tasks, executor=self.executor, progress=progress)
        worlds = planted.worlds[0].numpy()
        result = {}
        for adversary in adversaries:
            scores = trained[str(adversary)].to(torch.float64).numpy()
            made, aside = guess(scores, worlds, made=guesses)
            result[adversary] = OneRun(adversary=adversary, scores=scores, worlds=worlds, set_aside=aside, guesses=made)
        return result


def train_with_coins(
    system: System, asked: tuple[tuple[Adversary, ...], Canaries, int], worker: Worker
) -> dict[str, Tensor]:
    """The evidence of one training, by its number, about each canary's coin, by adversary."""
    adversaries, planted, number = asked
    probe = CoinProbe(planted, system.schedule)
    engine = system.train([number], data=planted.into(system.data), probe=probe)
    scores = {a: CoinScores(system.ledger, len(planted.records)) for a in adversaries}
    for round_ in range(system.schedule.rounds):
        for value in probe.round(engine, round_):
            for adversary, score in scores.items():
                if value.message is not None and adversary.sees(value.message, system.data.devices):
                    score.add(value)
        worker.progress.advance(1)
    return {str(adversary): score.total[0].cpu() for adversary, score in scores.items()}


def plant(system: System, canaries: int, *, fresh: bool = False) -> Canaries:
    """Canaries in the labels of a system's records; with `fresh` others than without."""
    data, seed = system.data, derive(system.seed, "canary", canaries) if fresh else system.seed
    field = "audit.one-run.canaries"
    return draw_canaries(data.labels, data.classes, canaries=canaries, seed=seed, field=field)


_RECORDED_ASSUMPTIONS = (
    "each canary's label was decided by a fair coin of its own, independent of all others, before training",
    "each record holds at most one canary",
    "a third of the canaries was set aside: the score was learned from them, and the attack or score, the view and how "
    "many of the other canaries are guessed about were chosen by them; they are not counted",
    "attacks and scores read the view, labels that are told and canaries set aside, never the coin of a counted canary",
)
_MEMBER_ASSUMPTIONS = (
    "which record of a canary was trained on, or whether it was, was decided by a fair coin of its own, independent of "
    "all others, before training",
    "only messages of the training's end about all candidates, left out or not, are read, and who sees one knows which "
    "candidate it is about; who took part in the training is taken to be known, and is not guessed from",
    *_RECORDED_ASSUMPTIONS[2:],
)
LEARNED = "a score learned from canaries set aside"


def guess_coins(
    canaries: Canaries,
    split: Split,
    guesses: Mapping[Adversary, Mapping[str, Guess]],
    learned: Mapping[Adversary, Floats] | None = None,
) -> OneRun | None:
    """The coins of a recorded training as attacks on labels, or learned scores, guess them; None without either.

    The attack or score, the view, and the share of canaries with the largest scores that is guessed about are those
    with the largest bound to be expected from `split.choosing`; where none is, all canaries are guessed about, by what
    is right most often. A label that is neither of a canary's two counts for world 0.
    """
    scores = {(a, name): _scores(canaries, g) for a, named in guesses.items() for name, g in named.items()}
    scores |= {(a, LEARNED): s for a, s in (learned or {}).items()}
    worlds: NDArray[np.int64] = canaries.worlds[0].cpu().numpy()
    return _guess_best(scores, worlds, split, _RECORDED_ASSUMPTIONS) if scores else None


def guess_members(
    canaries: MemberCanaries, split: Split, scores: Mapping[tuple[Adversary, str], Floats]
) -> OneRun | None:
    """The same of coins that decided which records were trained on; None without scores.

    `scores` of each canary are by adversary and by what made them: positive where its first record, or its only one,
    looks trained on.
    """
    if not scores:
        return None
    run = _guess_best(scores, canaries.worlds.cpu().numpy(), split, _MEMBER_ASSUMPTIONS)
    return replace(run, unit=canaries.unit)


def _guess_best(
    scores: Mapping[tuple[Adversary, str], Floats],
    worlds: NDArray[np.int64],
    split: Split,
    assumptions: tuple[str, ...],
) -> OneRun:
    """The guesses about counted canaries by the scores, and about the share of them, that `split.choosing` decides."""
    counted = len(split.counted)
    plans = [(key, share) for key in scores for share in _SHARES if share == 1 or share * len(split.choosing) >= _LEAST]
    (adversary, how), share = max(plans, key=lambda plan: _promise(scores[plan[0]], worlds, split, plan[1]))
    chosen = scores[adversary, how]
    made = _made(counted, share)
    surest = split.counted[np.argsort(-np.abs(chosen[split.counted]), kind="stable")[:made]]
    right = int(((chosen[surest] > 0) == (worlds[surest] == 0)).sum())
    return OneRun(
        adversary=adversary,
        scores=chosen,
        worlds=worlds,
        set_aside=len(split.aside),
        guesses=Guesses(canaries=counted, made=made, right=right),
        how=f"{how} on one recorded training",
        assumptions=assumptions,
    )


_SHARES = (1.0, 0.5, 0.2, 0.1)
_LEAST = 10
"""A share is considered if at least so many of the choosing canaries are in it."""


def _made(counted: int, share: float) -> int:
    return min(counted, max(MIN_TRIALS, round(share * counted)))


def _promise(scores: Floats, worlds: NDArray[np.int64], split: Split, share: float) -> tuple[float, int]:
    """The bound on ε to be expected from this share of the counted canaries, and how many choosing ones are right.

    The rate of right guesses is taken to be that of the choosing canaries less one standard error.
    """
    right = (scores[split.choosing] > 0) == (worlds[split.choosing] == 0)
    tried = round(share * len(right))
    surest = np.argsort(-np.abs(scores[split.choosing]), kind="stable")[:tried]
    rate = (int(right[surest].sum()) + 1) / (tried + 2)
    rate -= math.sqrt(rate * (1 - rate) / (tried + 2))
    counted = len(split.counted)
    made = _made(counted, share)
    expected = Guesses(canaries=counted, made=made, right=math.floor(max(0.0, rate) * made))
    return epsilon_one_run(expected, 0.0, _PLANNED_AT), int(right.sum())


def _scores(canaries: Canaries, guess: Guess) -> NDArray[np.float64]:
    """Minus one where the attack names a canary's label of world 1, plus one elsewhere."""
    named = dict(zip(guess.records.tolist(), guess.values[0].tolist(), strict=True))
    second = canaries.labels[:, 1].tolist()
    return np.array([-1.0 if named.get(r) == y else 1.0 for r, y in zip(canaries.records, second, strict=True)])
