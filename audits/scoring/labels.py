"""How often an attack was right, against a blind guess and against the same adversary without the protocol."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from scipy.stats import norm as normal
from scipy.stats import t as student
from torch import Tensor

from vflpriv.audits.statistics.bounds import interval
from vflpriv.common.seeds import derive, host_generator
from vflpriv.core.attack import Auxiliary, Conduct, LabelAttack, LabelGuess
from vflpriv.core.systems import System
from vflpriv.core.views import Adversary, View
from vflpriv.core.wire import Message, Transcript, Wire

__all__ = [
    "NOTHING_TO_SCORE",
    "AttackTrials",
    "Leakage",
    "Outcome",
    "Score",
    "Success",
    "Tried",
    "Watched",
    "auc",
    "draw_auxiliary",
    "label_success",
    "leakage",
    "mean_error",
    "mean_interval",
    "p_above",
    "score",
    "untold",
]


@dataclass(frozen=True, kw_only=True)
class Success:
    """Share of right guesses with its Clopper-Pearson interval, beside the share of the commonest label.

    `blind` is the share of the same adversary without the protocol, where it has something to go by.
    """

    rate: float
    low: float
    high: float
    chance: float
    guesses: int
    blind: float | None = None


@dataclass(frozen=True, kw_only=True)
class Score:
    """One seed: shares of right guesses of the attack, of the commonest label, and of the adversary by itself."""

    success: float
    chance: float
    blind: float | None
    guesses: int

    @property
    def leakage(self) -> float:
        """What the protocol adds to what can be guessed without it."""
        return self.success - max(self.chance, self.blind or 0.0)


@dataclass(frozen=True, kw_only=True)
class Leakage:
    """Means over seeds; intervals are Student's over the seeds, trivial ones ([0, 1], [-1, 1]) for a single seed.

    Errors are the means' standard errors, None for a single seed.
    """

    seeds: int
    success: float
    success_low: float
    success_high: float
    success_error: float | None
    chance: float
    blind: float | None
    leakage: float
    low: float
    high: float
    leakage_error: float | None
    guesses: int


def label_success(
    guess: LabelGuess,
    truth: Tensor,
    *,
    confidence: float,
    auxiliary: Auxiliary | None = None,
    blind: LabelGuess | None = None,
) -> Success:
    """Score a label guess. Records count as trials, given the one training of replica 0."""
    one = score(guess, truth, auxiliary=auxiliary, blind=blind)
    low, high = interval(round(one.success * one.guesses), one.guesses, confidence)
    return Success(rate=one.success, low=low, high=high, chance=one.chance, guesses=one.guesses, blind=one.blind)


def score(
    guess: LabelGuess, truth: Tensor, *, auxiliary: Auxiliary | None = None, blind: LabelGuess | None = None
) -> Score:
    """Replica 0's guesses against the truth, on the records the attack speaks of and was not given the label of."""
    fresh = untold(guess, auxiliary)
    records = guess.records[fresh].to(truth.device)
    labels = truth.index_select(0, records)
    right = (guess.labels[0][fresh].to(truth.device) == labels).to(torch.float64).mean()
    alone = None
    if blind is not None:
        table = torch.full_like(truth, -1)
        table[blind.records.to(truth.device)] = blind.labels[0].to(truth.device)
        alone = float((table.index_select(0, records) == labels).to(torch.float64).mean())
    chance = float(torch.bincount(labels).max()) / len(labels)
    return Score(success=float(right), chance=chance, blind=alone, guesses=len(labels))


def untold(guess: LabelGuess, auxiliary: Auxiliary | None) -> Tensor:
    """Which of the guesses are about records whose label the attack was not given; only these are scored."""
    known = guess.records.new_empty(0) if auxiliary is None else auxiliary.records.to(guess.records.device)
    return ~torch.isin(guess.records, known)


NOTHING_TO_SCORE = "guesses about no record whose label it was not told"
"""Why an attack does not count, where `untold` finds nothing."""


def leakage(scores: Sequence[Score], *, confidence: float) -> Leakage:
    """The seeds' scores together."""
    grain = 1 / min(s.guesses for s in scores)
    success, low, high = mean_interval([s.success for s in scores], confidence, (0.0, 1.0), grain=grain)
    beyond = mean_interval([s.leakage for s in scores], confidence, (-1.0, 1.0), grain=grain)
    blind = [s.blind for s in scores if s.blind is not None]
    return Leakage(
        seeds=len(scores),
        success=success,
        success_low=low,
        success_high=high,
        success_error=mean_error([s.success for s in scores], grain=grain),
        chance=sum(s.chance for s in scores) / len(scores),
        blind=sum(blind) / len(blind) if blind else None,
        leakage=beyond[0],
        low=beyond[1],
        high=beyond[2],
        leakage_error=mean_error([s.leakage for s in scores], grain=grain),
        guesses=min(s.guesses for s in scores),
    )


def mean_interval(
    values: Sequence[float], confidence: float, limits: tuple[float, float], *, grain: float = 0.0
) -> tuple[float, float, float]:
    """The mean and Student's interval for it, within the limits; one value alone bounds nothing.

    >>> [round(x, 3) for x in mean_interval([0.4, 0.5, 0.6], 0.95, (0.0, 1.0))]
    [0.5, 0.252, 0.748]
    """
    mean, error = sum(values) / len(values), mean_error(values, grain=grain)
    if error is None:
        return mean, *limits
    reach = float(student.ppf(0.5 + confidence / 2, len(values) - 1)) * error
    return mean, max(limits[0], mean - reach), min(limits[1], mean + reach)


def mean_error(values: Sequence[float], *, grain: float = 0.0) -> float | None:
    """The standard error of the mean; None for one value.

    Values that come in steps of `grain` may be equal by chance: they spread at least as rounding to a step does.

    >>> mean_error([1.0, 3.0]), mean_error([1.0]), mean_error([1.0, 1.0, 1.0], grain=0.06)
    (1.0, None, 0.01)
    """
    count, mean = len(values), sum(values) / len(values)
    if count == 1:
        return None
    spread = max(sum((v - mean) ** 2 for v in values) / (count - 1), grain**2 / 12)
    return math.sqrt(spread / count)


def p_above(mean: float, error: float | None, bound: float, count: int) -> float:
    """The p-value of a mean of `count` values against a bound: at most alpha where the interval lies above it.

    Two-sided Student's, as `mean_interval` is; normal for one value that has an error of its own.

    >>> round(p_above(0.5, 0.0577350, 0.252, 3), 3), p_above(0.5, None, 0.1, 1)
    (0.05, 1.0)
    """
    if error is None or mean <= bound:
        return 1.0
    if error == 0:
        return 0.0
    far = (mean - bound) / error
    return min(1.0, 2 * float(student.sf(far, count - 1) if count > 1 else normal.sf(far)))


def auc(guess: LabelGuess, truth: Tensor, *, auxiliary: Auxiliary | None = None) -> float:
    """The chance that a record of label 1 scores higher than one of label 0; ties count half."""
    assert guess.scores is not None
    fresh = untold(guess, auxiliary)
    labels, scores = truth.index_select(0, guess.records[fresh]), guess.scores[0][fresh]
    zeros, ones = scores[labels == 0].sort().values, scores[labels == 1]
    below, up_to = torch.searchsorted(zeros, ones), torch.searchsorted(zeros, ones, right=True)
    return float((below + up_to).to(torch.float64).mean() / (2 * len(zeros)))


def draw_auxiliary(truth: Tensor, classes: int, *, per_class: int, seed: int, replica: int = 0) -> Auxiliary:
    """The labels of a few records of each class, as many as there are if there are fewer."""
    generator = host_generator(seed, "auxiliary", replica)
    chosen: list[int] = []
    for label in range(classes):
        among = (truth == label).nonzero().flatten().cpu().numpy()
        chosen += generator.permutation(among)[:per_class].tolist()
    records = torch.tensor(sorted(chosen), dtype=torch.int64, device=truth.device)
    coins = derive(seed, "attack", replica) >> 1
    return Auxiliary(records=records, labels=truth.index_select(0, records), seed=coins)


# Attacks on one system: one training of several seeds at once, a view for each adversary, every attack on each.

_NOBODY: Mapping[int, Conduct] = {}


@dataclass(frozen=True, kw_only=True)
class Tried:
    """One attack through one view, or the reason why it was not tried."""

    attack: str
    target: str
    adversary: Adversary
    leakage: Leakage | None
    refusal: str | None


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What was tried on one system, and how well its models do where all devices are honest: mean over the seeds."""

    tried: tuple[Tried, ...]
    accuracy: float


@dataclass
class Watched:
    """What attacks read of a training: all messages of the kinds they need, and one of each other kind and device.

    One message is enough for an attack to say why it does not apply.
    """

    kinds: frozenset[str]
    devices: frozenset[int] | None = None
    transcript: Transcript = field(init=False)
    _samples: dict[tuple[str, int], Message] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.transcript = Transcript(kinds=self.kinds, devices=self.devices)

    def record(self, message: Message) -> None:
        self.transcript.record(message)
        if message.kind not in self.kinds:
            self._samples.setdefault((message.kind, message.device.index), message)

    @property
    def whole(self) -> Transcript:
        return Transcript(messages=[*self.transcript.messages, *self._samples.values()])


@dataclass(frozen=True, kw_only=True)
class AttackTrials:
    """Trains a system once for all attacks of honest devices, and once for each dishonest conduct that applies.

    Each seed is a replica of its own, with its own few known labels. Neither these nor the truth reach an attack in any
    other way than as its `Auxiliary`; success is scored here.
    """

    system: System
    seeds: int
    labels_per_class: int
    confidence: float

    def run(
        self,
        attacks: Sequence[LabelAttack],
        adversaries: Sequence[Adversary],
        *,
        advance: Callable[[int], None] | None = None,
    ) -> Outcome:
        """Every attack through every view."""
        known = frozenset(release.kind for release in self.system.ledger.releases)
        needed = frozenset().union(*(a.needs for a in attacks)) & known
        honest, engine = self.train(adversaries, _NOBODY, needed, advance)
        tried = []
        for attack in attacks:
            for adversary in adversaries:
                view, refusal = honest[adversary], attack.refusal(honest[adversary])
                if refusal is None and attack.conduct is not None and view.own:
                    conducts = dict.fromkeys(adversary.members(self.system.data.devices), attack.conduct)
                    view = self.train([adversary], conducts, needed)[0][adversary]
                found = None if refusal else self.success(attack, view)
                refusal = NOTHING_TO_SCORE if found is None and refusal is None else refusal
                words = {"attack": attack.name, "target": attack.target}
                tried.append(Tried(**words, adversary=adversary, leakage=found, refusal=refusal))
        return Outcome(tried=tuple(tried), accuracy=float(engine.evaluate().accuracy.mean()))

    def train(
        self,
        adversaries: Sequence[Adversary],
        conducts: Mapping[int, Conduct],
        kinds: frozenset[str],
        advance: Callable[[int], None] | None = None,
    ) -> tuple[dict[Adversary, View], Any]:
        """All seeds at once; what each adversary saw, and the engine."""
        data = self.system.data
        watched = Watched(kinds, self._links(adversaries))
        engine: Any = self.system.train(range(self.seeds), conducts=conducts)
        engine.run(Wire(watched), advance=advance)
        whole, shape = watched.whole, {"devices": data.devices, "classes": data.classes}
        members = {m for adversary in adversaries for m in adversary.members(data.devices)}
        own = {m: engine.belongings(m) for m in sorted(members)}
        return {adversary: View.of(whole, adversary, own=own, **shape) for adversary in adversaries}, engine

    def _links(self, adversaries: Sequence[Adversary]) -> frozenset[int] | None:
        """The devices whose messages somebody sees; all of them if somebody is no device."""
        if not all(adversary.is_device for adversary in adversaries):
            return None
        return frozenset(m for adversary in adversaries for m in adversary.members(self.system.data.devices))

    def success(self, attack: LabelAttack, view: View) -> Leakage | None:
        """One attack on what it saw of each seed; None if in one of them there is no guess to score."""
        scores = []
        data = self.system.data
        truth = data.labels.to(self.system.torch_device)
        for r in range(self.seeds):
            per_class = self.labels_per_class if attack.auxiliary else 0
            auxiliary = draw_auxiliary(truth, data.classes, per_class=per_class, seed=self.system.seed, replica=r)
            mine = view.replica(r)
            blind = attack.blind(mine.silent(), auxiliary)
            guess = attack.run(mine, auxiliary)
            if not bool(untold(guess, auxiliary).any()):
                return None
            scores.append(score(guess, truth, auxiliary=auxiliary, blind=blind))
        return leakage(scores, confidence=self.confidence)
