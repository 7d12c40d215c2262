"""Attacks on labels: one attempt through one view, its score against two baselines, and all attempts on one system.

An attack's success is the share of right guesses among records whose label it was not given. It is held against two
baselines: `chance`, the share of the commonest label, and `blind`, the success of the same adversary without the
protocol, or without what the protocol tells of the label in question where that is more (`LabelGuess.others`). What the
protocol leaks is the success beyond the better of the two.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from vflpriv.audits.scoring.trainings import Training, attempt_work, needed_kinds, train
from vflpriv.audits.statistics.bounds import interval
from vflpriv.audits.statistics.significance import mean_error, mean_interval
from vflpriv.common.devices import precise_device
from vflpriv.common.seeds import derive, host_generator
from vflpriv.core.attack import Auxiliary, Conduct, Defences, LabelAttack, LabelGuess, adapts, run_and_blind
from vflpriv.core.systems import System
from vflpriv.core.views import Adversary, View

__all__ = [
    "LABELS_PER_CLASS",
    "NOTHING_TO_SCORE",
    "NO_LABELS",
    "AttackTrials",
    "Attempt",
    "LabelAttempts",
    "Leakage",
    "Outcome",
    "Score",
    "Success",
    "draw_auxiliary",
    "label_success",
    "leakage",
    "score",
    "scored",
]

LABELS_PER_CLASS = 4
"""Labels of each class that an attack with auxiliary labels is given in an audit."""
NOTHING_TO_SCORE = "no guess to score: the label of every record it guesses about was given to it, or is not known"
"""Why an attempt does not count, where `scored` selects nothing."""
NO_LABELS = "needs labels to start from, and had none: every record with a known label is a canary, its label a coin"
"""Why an attack that is given a few labels is not tried, where there are no labels of two classes to give."""


# Scores


@dataclass(frozen=True, kw_only=True)
class Success:
    """Share of right guesses in one training with its Clopper-Pearson interval over records, and the two baselines."""

    rate: float
    low: float
    high: float
    chance: float
    guesses: int
    blind: float | None = None
    population: int | None = None


@dataclass(frozen=True, kw_only=True)
class Score:
    """Shares of right guesses in one training: of the attack, of the commonest label, of the adversary by itself.

    `population` is the number of records of which those guessed about are a random sample; None where they are all.
    """

    success: float
    chance: float
    blind: float | None
    guesses: int
    population: int | None = None

    @property
    def leakage(self) -> float:
        """Success beyond the better baseline."""
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
    population: int | None = None


def score(
    guess: LabelGuess, truth: Tensor, *, auxiliary: Auxiliary | None = None, blind: LabelGuess | None = None
) -> Score:
    """Compare replica 0's guesses with the labels (N,), on the records that `scored` selects."""
    counted = scored(guess, truth, auxiliary)
    records = guess.records[counted].to(truth.device)
    labels = truth.index_select(0, records)
    right = (guess.labels[0][counted].to(truth.device) == labels).to(torch.float64).mean()
    blind_rate = None if blind is None else _share(blind.records, blind.labels[0], truth, records)
    if guess.others is not None:
        blind_rate = max(blind_rate or 0.0, _share(guess.records, guess.others[0], truth, records))
    chance = float(torch.bincount(labels).max()) / len(labels)
    return Score(
        success=float(right), chance=chance, blind=blind_rate, guesses=len(labels), population=guess.population
    )


def _share(guessed: Tensor, guesses: Tensor, truth: Tensor, records: Tensor) -> float:
    """The share of these records whose label is guessed right; one that is not guessed about counts as wrong."""
    table = torch.full_like(truth, -1)
    table[guessed.to(truth.device)] = guesses.to(truth.device)
    return float((table == truth).index_select(0, records).to(torch.float64).mean())


def scored(guess: LabelGuess, truth: Tensor, auxiliary: Auxiliary | None) -> Tensor:
    """Which guesses count: those about records with a known label (not -1) that was not given to the attack.

    Of an attack on a sample of the records, those that were drawn.
    """
    given = guess.records.new_empty(0) if auxiliary is None else auxiliary.records.to(guess.records.device)
    known = truth.index_select(0, guess.records.to(truth.device, torch.int64)) >= 0
    counted = known.to(guess.records.device) & ~torch.isin(guess.records, given)
    return counted if guess.drawn is None else counted & guess.drawn


def label_success(result: Score, *, confidence: float) -> Success:
    """The score of one training with its interval. Records count as trials: the interval is given this training."""
    low, high = interval(round(result.success * result.guesses), result.guesses, confidence)
    return Success(
        rate=result.success,
        low=low,
        high=high,
        chance=result.chance,
        guesses=result.guesses,
        blind=result.blind,
        population=result.population,
    )


def leakage(scores: Sequence[Score], *, confidence: float) -> Leakage:
    """The means of the seeds' scores with their intervals."""
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
        population=scores[0].population,
    )


# One attack through one view


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One attack through one view: what it reached, or the reason why it was not tried.

    `success` is of the first seed, with its interval over records; `leakage` is over all seeds, `rates` are the success
    of each. `guess` holds the first seed's guesses, those that are not scored too.
    """

    attack: str
    target: str
    adversary: Adversary
    success: Success | None = None
    leakage: Leakage | None = None
    refusal: str | None = None
    rates: tuple[float, ...] = ()
    adaptive: bool = False
    """Whether the attack knows one of the defences in force."""
    guess: LabelGuess | None = field(default=None, compare=False, repr=False)


def draw_auxiliary(truth: Tensor, classes: int, *, per_class: int, seed: int, replica: int = 0) -> Auxiliary:
    """The labels of `per_class` records of each class drawn at random, of all if there are fewer."""
    generator = host_generator(seed, "auxiliary", replica)
    chosen: list[int] = []
    for label in range(classes):
        candidates = (truth == label).nonzero().flatten().cpu().numpy()
        chosen += generator.permutation(candidates)[:per_class].tolist()
    records = torch.tensor(sorted(chosen), dtype=torch.int64, device=truth.device)
    coins = derive(seed, "attack", replica) >> 1
    return Auxiliary(records=records, labels=truth.index_select(0, records), seed=coins)


@dataclass(frozen=True, eq=False, kw_only=True)
class LabelAttempts:
    """How every attack on the labels of one system is tried: what it is given, and how its guesses are scored.

    `truth` holds the labels (N,), -1 where a label is not known; they reach an attack only as its `Auxiliary`.
    `withheld` are records whose label no attack is given, and about which each guesses: the label of a canary is its
    coin, which is to be guessed. `defences` is what is public about the defences in force.
    `honest_only` is the reason for which attacks whose devices scale their steps up (a `Conduct` with a gain) are
    refused; None where the view is of a training with such devices. With `tolerant`, an attack that raises an error on
    messages of a foreign format is refused with that error instead of ending the run.
    """

    truth: Tensor
    classes: int
    seed: int
    confidence: float
    seeds: int = 1
    labels_per_class: int = LABELS_PER_CLASS
    withheld: Sequence[int] = ()
    honest_only: str | None = None
    tolerant: bool = False
    defences: Defences = field(default_factory=dict)

    def attempt(self, attack: LabelAttack, view: View) -> Attempt:
        """Try one attack on what this view shows of each seed."""
        attempt = Attempt(
            attack=attack.name,
            target=attack.target,
            adversary=view.adversary,
            adaptive=adapts(attack, self.defences),
        )
        refusal = attack.refusal(view)
        if refusal is None and self.honest_only is not None and attack.conduct is not None and attack.conduct.gain:
            refusal = self.honest_only
        if refusal is not None:
            return replace(attempt, refusal=refusal)
        auxiliaries = [self._auxiliary(attack, replica) for replica in range(self.seeds)]
        if attack.auxiliary and self.withheld and any(len(a.labels.unique()) < 2 for a in auxiliaries):
            return replace(attempt, refusal=NO_LABELS)
        try:
            guesses, blind = self.guesses(attack, view, auxiliaries)
        except (RuntimeError, KeyError, IndexError, ValueError) as error:
            if not self.tolerant:
                raise
            reason = f"cannot read this recording: {type(error).__name__}, {error}"
            return replace(attempt, refusal=" ".join(reason.split()))
        known = list(zip(guesses, auxiliaries, strict=True))
        if not all(bool(scored(guess, self.truth, auxiliary).any()) for guess, auxiliary in known):
            return replace(attempt, refusal=NOTHING_TO_SCORE)
        scores = [score(g, self.truth, auxiliary=a, blind=b) for (g, a), b in zip(known, blind, strict=True)]
        success, rates = label_success(scores[0], confidence=self.confidence), tuple(s.success for s in scores)
        beyond = leakage(scores, confidence=self.confidence)
        return replace(attempt, success=success, leakage=beyond, rates=rates, guess=guesses[0])

    def guesses(
        self, attack: LabelAttack, view: View, auxiliaries: Sequence[Auxiliary]
    ) -> tuple[Sequence[LabelGuess], Sequence[LabelGuess | None]]:
        """What an attack guesses of each seed, and what the adversary guesses without the protocol."""
        return run_and_blind(attack, view, auxiliaries)

    def _auxiliary(self, attack: LabelAttack, replica: int) -> Auxiliary:
        labels = self.truth
        if self.withheld:
            labels = labels.clone()
            labels[list(self.withheld)] = -1
        per_class = self.labels_per_class if attack.auxiliary else 0
        drawn = draw_auxiliary(labels, self.classes, per_class=per_class, seed=self.seed, replica=replica)
        asked = torch.tensor(self.withheld, dtype=torch.int64, device=labels.device)
        return replace(drawn, asked=asked, defences=self.defences)


# All attacks on one system


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The attempts on one system, and its models' mean test accuracy over the seeds where all devices are honest.

    The ends of its interval are Student's over the seeds, 0 and 1 for a single seed.
    """

    attempts: tuple[Attempt, ...]
    accuracy: float
    accuracy_low: float
    accuracy_high: float


@dataclass(frozen=True, kw_only=True)
class AttackTrials:
    """Trains a system once for all attacks of honest devices, and once for each malicious conduct that applies.

    Each seed is a replica of its own, with its own known labels.
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
        training: Training | None = None,
        advance: Callable[[int], None] | None = None,
    ) -> Outcome:
        """Try every attack through every view. `training` is one of honest devices with all that the attacks read."""
        needed = needed_kinds(self.system, attacks)
        if training is None:
            devices = self._links(adversaries)
            training = train(self.system, self.seeds, needed, devices=devices, advance=advance)
        honest, attempts = training.views(adversaries), []
        for attack in attacks:
            for adversary in adversaries:
                view = honest[adversary]
                if attack.conduct is not None and view.own and attack.refusal(view) is None:
                    conducts = dict.fromkeys(adversary.members(self.system.data.devices), attack.conduct)
                    view = self.train([adversary], conducts, needed_kinds(self.system, [attack]))[0][adversary]
                attempts.append(self.attempt(attack, view))
                if advance is not None:
                    advance(attempt_work(self.system))
        accuracies, tests = training.engine.evaluate().accuracy.tolist(), len(self.system.data.test_labels)
        mean, low, high = mean_interval(accuracies, self.confidence, (0.0, 1.0), grain=1 / max(1, tests))
        return Outcome(attempts=tuple(attempts), accuracy=mean, accuracy_low=low, accuracy_high=high)

    def train(
        self,
        adversaries: Sequence[Adversary],
        conducts: Mapping[int, Conduct],
        kinds: frozenset[str],
        advance: Callable[[int], None] | None = None,
    ) -> tuple[dict[Adversary, View], Any]:
        """Train all seeds at once; what each adversary saw, and the engine."""
        devices = self._links(adversaries)
        training = train(self.system, self.seeds, kinds, devices=devices, conducts=conducts, advance=advance)
        return training.views(adversaries), training.engine

    def attempt(self, attack: LabelAttack, view: View) -> Attempt:
        """Try one attack on what it saw of each seed."""
        system = self.system
        attempts = LabelAttempts(
            truth=system.data.labels.to(precise_device(system.torch_device)),
            classes=system.data.classes,
            seed=system.seed,
            confidence=self.confidence,
            seeds=self.seeds,
            labels_per_class=self.labels_per_class,
            defences=system.defences,
        )
        return attempts.attempt(attack, view)

    def _links(self, adversaries: Sequence[Adversary]) -> frozenset[int] | None:
        """The devices whose messages some adversary sees; None, for all, if an adversary is not a device."""
        if not all(adversary.is_device for adversary in adversaries):
            return None
        return frozenset(m for adversary in adversaries for m in adversary.members(self.system.data.devices))
