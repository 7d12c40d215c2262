"""Membership attacks: their scores, and all attempts on one system.

Which records a model was trained on is decided by a coin for each pair of candidates. An attack scores candidates; it
is judged by the AUC, by the advantage of its yes-or-no answers, and by the share of members it finds while 1 %, or
0.1 %, of the non-members are taken for members.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from scipy.stats import binom, norm
from torch import Tensor

from vflpriv.audits.scoring.trainings import attempt_work
from vflpriv.audits.statistics.bounds import interval
from vflpriv.audits.statistics.resampling import auc_interval
from vflpriv.audits.statistics.significance import mean_error, mean_interval
from vflpriv.common.devices import precise_device
from vflpriv.common.numerics import Floats
from vflpriv.common.seeds import derive
from vflpriv.core.attack import Candidates, MembershipAttack, MembershipAuxiliary, ShadowModels
from vflpriv.core.data import VerticalData
from vflpriv.core.engine import Engine
from vflpriv.core.systems import System
from vflpriv.core.views import Adversary, View
from vflpriv.core.wire import SERVER, Message, Transcript, Wire, device

__all__ = [
    "FEW_ERRORS",
    "SHADOW_MODELS",
    "VERY_FEW_ERRORS",
    "Figure",
    "MembershipAttempt",
    "MembershipLeak",
    "MembershipScore",
    "MembershipTrials",
    "found_at_few_errors",
    "membership_leak",
    "membership_score",
    "predictions",
]

FEW_ERRORS, VERY_FEW_ERRORS = 0.01, 0.001
"""The false-positive rates at which the share of found members is reported."""
SHADOW_MODELS = 32
"""How many models an attack that needs some has trained."""


# Scores


@dataclass(frozen=True)
class Figure:
    """A value and the ends of its interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class MembershipScore:
    """Scores of one seed; intervals are over candidates.

    `found` is None with too few non-members for a rate of 1 %, `rarely_found` with too few for 0.1 %.
    """

    auc: Figure
    advantage: Figure
    found: Figure | None
    rarely_found: Figure | None
    records: int


@dataclass(frozen=True, kw_only=True)
class MembershipLeak:
    """Means over seeds. With one seed, intervals are over candidates.

    With several, they are the wider of Student's over the seeds, which has no width where all seeds agree, and the mean
    of the seeds' own intervals.
    """

    auc: Figure
    advantage: Figure
    found: Figure | None
    rarely_found: Figure | None
    auc_error: float
    """The standard error of the AUC: over seeds, but no less than over candidates."""
    records: int

    @property
    def chance(self) -> float:
        """The AUC of random scores."""
        return 0.5


def membership_score(scores: Tensor, inside: Tensor, *, confidence: float) -> MembershipScore:
    """Scores (n,) of candidates, against whether each was trained on."""
    members, others = scores[inside], scores[~inside]
    found = partial(found_at_few_errors, *(x.double().cpu().numpy() for x in (members, others)), confidence=confidence)
    return MembershipScore(
        auc=Figure(*auc_interval(others, members, confidence)),
        advantage=_advantage(members, others, confidence),
        found=found(rate=FEW_ERRORS),
        rarely_found=found(rate=VERY_FEW_ERRORS),
        records=len(scores),
    )


def membership_leak(scores: Sequence[MembershipScore], *, confidence: float) -> MembershipLeak:
    """The means of the seeds' scores with their intervals."""
    return MembershipLeak(
        auc=_mean([s.auc for s in scores], confidence, (0.0, 1.0)),
        advantage=_mean([s.advantage for s in scores], confidence, (-1.0, 1.0)),
        found=_mean_share([s.found for s in scores], confidence),
        rarely_found=_mean_share([s.rarely_found for s in scores], confidence),
        auc_error=max(mean_error([s.auc.value for s in scores]) or 0.0, _error([s.auc for s in scores], confidence)),
        records=min(s.records for s in scores),
    )


def _error(figures: Sequence[Figure], confidence: float) -> float:
    """The mean standard error of figures, from the lengths of their intervals; the seeds share their candidates."""
    return sum(f.high - f.low for f in figures) / (2 * float(norm.ppf(0.5 + confidence / 2)) * len(figures))


def _mean(figures: Sequence[Figure], confidence: float, limits: tuple[float, float]) -> Figure:
    if len(figures) == 1:
        return figures[0]
    mean, low, high = mean_interval([f.value for f in figures], confidence, limits)
    ends = [sum(end) / len(figures) for end in zip(*((f.low, f.high) for f in figures), strict=True)]
    return Figure(mean, min(low, ends[0]), max(high, ends[1]))


def _mean_share(figures: Sequence[Figure | None], confidence: float) -> Figure | None:
    """The mean of shares, if every seed has one."""
    present = [figure for figure in figures if figure is not None]
    return _mean(present, confidence, (0.0, 1.0)) if len(present) == len(figures) else None


def _advantage(members: Tensor, others: Tensor, confidence: float) -> Figure:
    """The share of members above 0 less that of non-members; Newcombe's interval from two Clopper-Pearson intervals."""
    right, wrong = int((members > 0).sum()), int((others > 0).sum())
    p, q = right / len(members), wrong / len(others)
    (p_low, p_high), (q_low, q_high) = (
        interval(k, n, confidence) for k, n in ((right, len(members)), (wrong, len(others)))
    )
    low, high = math.hypot(p - p_low, q_high - q), math.hypot(p_high - p, q - q_low)
    return Figure(p - q, max(-1.0, p - q - low), min(1.0, p - q + high))


def found_at_few_errors(
    members: Floats, others: Floats, *, confidence: float, rate: float = FEW_ERRORS
) -> Figure | None:
    """The share of members above the score that non-members (`others`) exceed at this rate.

    The k-th highest of n others is exceeded at a rate of k/(n + 1) on average; with fewer than 99 others no k fits 1 %,
    with fewer than 999 none fits 0.1 %, and the answer is None. For the interval, two ranks enclose the true quantile,
    and the shares above each have Clopper-Pearson bounds; each of the two steps may fail in half of the cases that the
    confidence allows.
    """
    count = len(others)
    # A millionth of a rank, so that 0.01 · 700 is seven.
    k = int(rate * (count + 1) + 1e-6)
    if k < 1:
        return None
    falling, level = np.sort(others)[::-1], (1 - confidence) / 4
    # How many others exceed the quantile is Binomial(n, rate): it lies below the `before`-th and above the `after`-th.
    after, before = int(binom.ppf(1 - level, count, rate)) + 1, int(binom.ppf(level, count, rate))
    below = falling[after - 1] if after <= count else -np.inf
    above = falling[before - 1] if before >= 1 else np.inf
    low, high = (interval(int((members > cut).sum()), len(members), 1 - 2 * level) for cut in (above, below))
    return Figure(float((members > falling[k - 1]).mean()), low[0], high[1])


# All attacks on one system


@dataclass(frozen=True, kw_only=True)
class MembershipAttempt:
    """One attack through one view: what it reached, or the reason why it was not tried."""

    attack: str
    adversary: Adversary
    knows: frozenset[str]
    leak: MembershipLeak | None = None
    refusal: str | None = None


@dataclass(frozen=True, kw_only=True)
class MembershipTrials:
    """Trains a system on one record of each of `pairs` pairs and on all others, every seed with coins of its own.

    After the training the model predicts the candidates; each adversary sees these predictions and nothing of the
    training. Of `known` candidates, in whole pairs, the attack is told whether they were members; they are not scored.

    An attack that needs `shadow_models` is given predictions by as many models of the same system, which its adversary
    trains on the same pairs with coins of its own: their first parameters, batches and noise are others, too.
    """

    system: System
    seeds: int
    confidence: float
    pairs: int
    known: int
    shadow_models: int = SHADOW_MODELS

    @property
    def candidates(self) -> Candidates:
        """The pairs and every seed's coins."""
        records = self.system.data.records
        return Candidates.draw(records, self.pairs, replicas=range(self.seeds), seed=self.system.seed)

    @property
    def trained(self) -> System:
        """The system that is trained: its batches are drawn again, from fewer records."""
        return self._with_coins(self.candidates, self.system.seed)

    def _with_coins(self, candidates: Candidates, seed: int) -> System:
        """The system on what these coins leave of its data, with the random draws of this seed."""
        system, data = self.system, candidates.into(self.system.data)
        draw = system.engine.draw_schedule
        schedule = draw(system.settings, records=data.records, devices=data.devices, seed=seed)
        return replace(system, data=data, schedule=schedule, seed=seed)

    def run(
        self,
        attacks: Sequence[MembershipAttack],
        adversaries: Sequence[Adversary],
        *,
        advance: Callable[[int], None] | None = None,
    ) -> tuple[MembershipAttempt, ...]:
        """Try every attack through every view."""
        candidates = self.candidates
        predicted = self._predictions(self.trained, candidates, advance)
        data = self.system.data.to(precise_device(self.system.torch_device))
        views = [_view(predicted, adversary, data) for adversary in adversaries]
        shadows = self._shadows(candidates, advance) if any("shadows" in a.knows for a in attacks) else None
        tried = []
        for attack in attacks:
            for view in views:
                tried.append(self._try(attack, view, candidates, data, shadows))
                if advance is not None:
                    advance(attempt_work(self.system))
        return tuple(tried)

    def _predictions(self, system: System, candidates: Candidates, advance: Callable[[int], None] | None) -> Transcript:
        """Train a replica for each row of coins; what the trained models say of all candidates."""
        engine = system.train(range(len(candidates.coins)))
        engine.run(Wire(), advance=advance)
        where = self.system.torch_device
        return predictions(engine, self.system.data.to(where), candidates.records.to(where))

    def _shadows(self, candidates: Candidates, advance: Callable[[int], None] | None) -> ShadowModels:
        """The models that the adversary trains itself."""
        seed = derive(self.system.seed, "attack")
        thrown = candidates.thrown_again(self.shadow_models, seed=seed)
        predicted = self._predictions(self._with_coins(thrown, seed), thrown, advance)
        confidences = predicted.messages[0].tensors["confidences"]
        members = torch.stack([thrown.members(r) for r in range(self.shadow_models)])
        return ShadowModels(confidences=confidences, members=members.to(confidences.device))

    def _try(
        self,
        attack: MembershipAttack,
        view: View,
        candidates: Candidates,
        data: VerticalData,
        shadows: ShadowModels | None,
    ) -> MembershipAttempt:
        attempt = MembershipAttempt(attack=attack.name, adversary=view.adversary, knows=attack.knows)
        scores, device_ = [], data.labels.device
        labels = data.labels[candidates.records.to(device_)]
        known = _known(candidates, self.known).to(device_)
        told = known if "membership" in attack.knows else known[:0]
        given = shadows if "shadows" in attack.knows else None
        for r in range(self.seeds):
            inside, seen = candidates.members(r).to(device_), view.replica(r)
            auxiliary = MembershipAuxiliary(labels=labels, records=told, members=inside[told].long(), shadows=given)
            refusal = attack.refusal(seen, auxiliary)
            if refusal is not None:
                return replace(attempt, refusal=refusal)
            guess = attack.run(seen, auxiliary)
            rows = ~torch.isin(guess.records, known)
            truth = inside[guess.records[rows]]
            scores.append(membership_score(guess.scores[0][rows], truth, confidence=self.confidence))
        return replace(attempt, leak=membership_leak(scores, confidence=self.confidence))


@torch.no_grad()
def predictions(engine: Engine, data: VerticalData, records: Tensor) -> Transcript:
    """The messages by which a trained model predicts these records: every device is sent all confidences."""
    logits = engine.predicted([block[records] for block in data.blocks], len(engine.replicas))
    logits = logits.to(precise_device(logits.device), torch.float64)
    confidences = torch.softmax(logits, dim=-1)
    numbers = torch.arange(len(records), device=logits.device)
    messages = [
        Message(
            round=engine.schedule.rounds,
            sender=SERVER,
            receiver=device(m),
            kind="predictions",
            tensors={"confidences": confidences},
            records=numbers,
        )
        for m in range(data.devices)
    ]
    return Transcript(messages=messages)


def _view(predicted: Transcript, adversary: Adversary, data: VerticalData) -> View:
    """What an adversary sees of the predictions; the holder of the model can compute them itself."""
    if adversary.kind == "model":
        return View(adversary, tuple(predicted.messages[:1]), data.classes)
    return View.of(predicted, adversary, devices=data.devices, classes=data.classes)


def _known(candidates: Candidates, known: int) -> Tensor:
    """The candidates of the first pairs, at most half of all pairs; pairs are in random order."""
    pairs = len(candidates.pairs)
    first = torch.arange(min(known, pairs) // 2)
    return torch.cat((first, first + pairs))
