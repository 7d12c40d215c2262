"""How well members were told from others: the area under the ROC curve, the advantage, and the rate at few errors."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import binom, norm
from torch import Tensor

from vflpriv.audits.scoring.labels import mean_error, mean_interval
from vflpriv.audits.statistics.bounds import interval
from vflpriv.audits.statistics.resampling import auc_interval
from vflpriv.core.attack import Candidates, MembershipAttack, MembershipAuxiliary
from vflpriv.core.data import VerticalData
from vflpriv.core.systems import System
from vflpriv.core.views import Adversary, View
from vflpriv.core.wire import SERVER, Message, Transcript, Wire, device

__all__ = [
    "FEW_ERRORS",
    "Figure",
    "MembershipLeak",
    "MembershipScore",
    "MembershipTrials",
    "MembershipTried",
    "found_at_few_errors",
    "membership_leak",
    "membership_score",
    "predictions",
]

FEW_ERRORS = 0.01
"""The false-positive rate at which the rate of found members is reported."""


@dataclass(frozen=True)
class Figure:
    """A value and the ends of its interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class MembershipScore:
    """One seed; intervals are over candidates. `found` needs enough others to tell an error rate of 1 % at all."""

    auc: Figure
    advantage: Figure
    found: Figure | None
    records: int


@dataclass(frozen=True, kw_only=True)
class MembershipLeak:
    """Means over seeds. With one seed intervals are over candidates; with several they are the wider of Student's over
    the seeds, which is nothing where all agree, and the mean of the seeds' own."""

    auc: Figure
    advantage: Figure
    found: Figure | None
    auc_error: float
    """The standard error of the AUC: over seeds, but no less than over candidates."""
    records: int

    @property
    def chance(self) -> float:
        """The AUC of a coin."""
        return 0.5


def membership_score(scores: Tensor, inside: Tensor, *, confidence: float) -> MembershipScore:
    """Scores (n,) of candidates, against whether each was trained on."""
    members, others = scores[inside], scores[~inside]
    return MembershipScore(
        auc=Figure(*auc_interval(others, members, confidence)),
        advantage=_advantage(members, others, confidence),
        found=found_at_few_errors(members.double().cpu().numpy(), others.double().cpu().numpy(), confidence=confidence),
        records=len(scores),
    )


def membership_leak(scores: Sequence[MembershipScore], *, confidence: float) -> MembershipLeak:
    """The seeds' scores together."""
    found = [s.found for s in scores if s.found is not None]
    return MembershipLeak(
        auc=_mean([s.auc for s in scores], confidence, (0.0, 1.0)),
        advantage=_mean([s.advantage for s in scores], confidence, (-1.0, 1.0)),
        found=_mean(found, confidence, (0.0, 1.0)) if len(found) == len(scores) else None,
        auc_error=max(mean_error([s.auc.value for s in scores]) or 0.0, _error([s.auc for s in scores], confidence)),
        records=min(s.records for s in scores),
    )


def _error(figures: Sequence[Figure], confidence: float) -> float:
    """The mean standard error of figures, from the lengths of their intervals: seeds share their candidates."""
    return sum(f.high - f.low for f in figures) / (2 * float(norm.ppf(0.5 + confidence / 2)) * len(figures))


def _mean(figures: Sequence[Figure], confidence: float, limits: tuple[float, float]) -> Figure:
    if len(figures) == 1:
        return figures[0]
    mean, low, high = mean_interval([f.value for f in figures], confidence, limits)
    ends = [sum(end) / len(figures) for end in zip(*((f.low, f.high) for f in figures), strict=True)]
    return Figure(mean, min(low, ends[0]), max(high, ends[1]))


def _advantage(members: Tensor, others: Tensor, confidence: float) -> Figure:
    """Members above 0 less others above 0, each a share of its own; Newcombe's interval from two Clopper-Pearson's."""
    right, wrong = int((members > 0).sum()), int((others > 0).sum())
    p, q = right / len(members), wrong / len(others)
    (p_low, p_high), (q_low, q_high) = (
        interval(k, n, confidence) for k, n in ((right, len(members)), (wrong, len(others)))
    )
    low, high = math.hypot(p - p_low, q_high - q), math.hypot(p_high - p, q - q_low)
    return Figure(p - q, max(-1.0, p - q - low), min(1.0, p - q + high))


def found_at_few_errors(
    members: NDArray[np.float64], others: NDArray[np.float64], *, confidence: float
) -> Figure | None:
    """The share of members above a score that others exceed at a rate of `FEW_ERRORS`.

    The k-th highest of n others is exceeded at a rate of k/(n + 1) on average; with fewer than 99 others no k fits. For
    the interval, two ranks enclose the true quantile, and the shares above either have Clopper-Pearson bounds; each of
    the two steps may fail in half of the cases that the confidence allows.
    """
    count = len(others)
    k = int(FEW_ERRORS * (count + 1))
    if k < 1:
        return None
    falling, doubt = np.sort(others)[::-1], (1 - confidence) / 4
    # How many others exceed the quantile is Binomial(n, 1 %): it lies below the `before`-th and above the `after`-th.
    after, before = int(binom.ppf(1 - doubt, count, FEW_ERRORS)) + 1, int(binom.ppf(doubt, count, FEW_ERRORS))
    below = falling[after - 1] if after <= count else -np.inf
    above = falling[before - 1] if before >= 1 else np.inf
    low, high = (interval(int((members > cut).sum()), len(members), 1 - 2 * doubt) for cut in (above, below))
    return Figure(float((members > falling[k - 1]).mean()), low[0], high[1])


# Membership: one training in which a coin decided which record of each pair is in it, and attacks afterwards.


@dataclass(frozen=True, kw_only=True)
class MembershipTried:
    """One attack through one view, or the reason why it was not tried."""

    attack: str
    adversary: Adversary
    knows: frozenset[str]
    leak: MembershipLeak | None = None
    refusal: str | None = None


@dataclass(frozen=True, kw_only=True)
class MembershipTrials:
    """Trains a system on one record of each of `pairs` pairs and on all others, every seed with coins of its own.

    After the training the candidates are predicted; each adversary sees these predictions and none of the training.
    `known` candidates, pair by pair, are given away and not scored.
    """

    system: System
    seeds: int
    confidence: float
    pairs: int
    known: int

    @property
    def candidates(self) -> Candidates:
        """The pairs and every seed's coins."""
        records = self.system.data.records
        return Candidates.draw(records, self.pairs, replicas=range(self.seeds), seed=self.system.seed)

    @property
    def trained(self) -> System:
        """The system that is trained: its batches are drawn anew, from fewer records."""
        system = self.system
        data = self.candidates.into(system.data)
        draw = system.engine.draw_schedule
        schedule = draw(system.settings, records=data.records, devices=data.devices, seed=system.seed)
        return replace(system, data=data, schedule=schedule)

    def run(
        self,
        attacks: Sequence[MembershipAttack],
        adversaries: Sequence[Adversary],
        *,
        advance: Callable[[int], None] | None = None,
    ) -> tuple[MembershipTried, ...]:
        """Every attack through every view."""
        candidates, data = self.candidates, self.system.data.to(self.system.torch_device)
        engine: Any = self.trained.train(range(self.seeds))
        engine.run(Wire(), advance=advance)
        asked = predictions(engine, data, candidates.records.to(self.system.torch_device))
        views = [_view(asked, adversary, data) for adversary in adversaries]
        return tuple(self._try(attack, view, candidates, data) for attack in attacks for view in views)

    def _try(self, attack: MembershipAttack, view: View, candidates: Candidates, data: VerticalData) -> MembershipTried:
        tried = MembershipTried(attack=attack.name, adversary=view.adversary, knows=attack.knows)
        scores, where = [], data.labels.device
        labels = data.labels[candidates.records.to(where)]
        told = _told(candidates, self.known).to(where)
        for r in range(self.seeds):
            inside, mine = candidates.members(r).to(where), view.replica(r)
            auxiliary = MembershipAuxiliary(labels=labels, records=told, members=inside[told].long())
            refusal = attack.refusal(mine, auxiliary)
            if refusal is not None:
                return replace(tried, refusal=refusal)
            guess = attack.run(mine, auxiliary)
            rows = ~torch.isin(guess.records, told)
            truth = inside[guess.records[rows]]
            scores.append(membership_score(guess.scores[0][rows], truth, confidence=self.confidence))
        return replace(tried, leak=membership_leak(scores, confidence=self.confidence))


@torch.no_grad()
def predictions(engine: Any, data: VerticalData, records: Tensor) -> Transcript:
    """What passes when a trained model is asked for these records: every device is sent all confidences."""
    logits = engine.predict([block[records] for block in data.blocks], len(engine.replicas))
    confidences = torch.softmax(logits.double(), dim=-1)
    numbers = torch.arange(len(records), device=records.device)
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


def _view(asked: Transcript, adversary: Adversary, data: VerticalData) -> View:
    """What an adversary sees of the predictions; who holds the model computes them."""
    if adversary.kind == "model":
        return View(adversary, tuple(asked.messages[:1]), data.classes)
    return View.of(asked, adversary, devices=data.devices, classes=data.classes)


def _told(candidates: Candidates, known: int) -> Tensor:
    """Both candidates of the first pairs, of at most half of them: pairs are in no order."""
    pairs = len(candidates.pairs)
    first = torch.arange(min(known, pairs) // 2)
    return torch.cat((first, first + pairs))
