"""Labels as what attacks guess: which are told, the share of right guesses, and its baselines; targets of a regression.

`chance` is the share of the commonest label. `blind` is the success of the same adversary without the protocol, or
without what the protocol tells of the label in question where that is more (`Guess.others`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from vflpriv.audits.scoring.attempts import Attempt, Secret
from vflpriv.audits.scoring.score import SHARE, Score, scored
from vflpriv.audits.statistics.bounds import interval
from vflpriv.common.numerics import Floats
from vflpriv.common.seeds import derive, host_generator
from vflpriv.core.attack import Auxiliary, Guess, Guesses, LabelAttack, ServerStart, TargetAttack
from vflpriv.core.views import View

__all__ = [
    "LABELS_PER_CLASS",
    "NOTHING_TO_SCORE",
    "NO_LABELS",
    "Labels",
    "Targets",
    "counted",
    "draw_auxiliary",
    "label_score",
]

LABELS_PER_CLASS = 4
"""Labels of each class that an attack with auxiliary labels is given in an audit."""
NOTHING_TO_SCORE = "no guess to score: the label of every record it guesses about was given to it, or is not known"
NO_START = "needs the server's model before the first round, which was not recorded, or there is none"
NO_LABELS = "needs labels to start from, and had none: every record with a known label is a canary, its label a coin"
"""Why an attack that is given a few labels is not tried, where there are no labels of two classes to give."""
_CLOSE = 0.01
"""A target is found if the guess is off by at most this share of the targets' standard deviation."""
_KNOWN_TARGETS = 4
"""Targets that an attack is told, which give it the constant that it lacks; they are not scored."""
_TOO_FEW = f"needs more than {_KNOWN_TARGETS} recorded targets"


@dataclass(frozen=True, eq=False, kw_only=True)
class Labels(Secret):
    """The labels (N,), -1 where one is not known; they reach an attack only as its `Auxiliary`.

    `withheld` are records whose label no attack is given, and about which each guesses: the label of a canary is its
    coin, which is to be guessed. `honest_only` is the reason for which attacks whose devices scale their steps up (a
    `Conduct` with a gain) are refused; None where the view is of a training with such devices. `start` is the server's
    first model, where it is known.
    """

    truth: Tensor
    classes: int
    labels_per_class: int = LABELS_PER_CLASS
    withheld: Sequence[int] = ()
    honest_only: str | None = None
    start: ServerStart | None = None

    nothing_to_score: ClassVar[str] = NOTHING_TO_SCORE

    def auxiliary(self, attack: LabelAttack, r: int) -> Auxiliary:
        labels = self.truth
        if self.withheld:
            labels = labels.clone()
            labels[list(self.withheld)] = -1
        per_class = self.labels_per_class if attack.auxiliary else 0
        drawn = draw_auxiliary(labels, self.classes, per_class=per_class, seed=self.seed, replica=r)
        asked = torch.tensor(self.withheld, dtype=torch.int64, device=labels.device)
        told = self.start if "start" in getattr(attack, "knows", ()) else None
        start = None if told is None else told.replica(r)
        return replace(drawn, asked=asked, defences=self.defences, start=start)

    def refusal(self, attack: LabelAttack, view: View, auxiliaries: Sequence[Auxiliary]) -> str | None:
        refusal = attack.refusal(view)
        if refusal is not None:
            return refusal
        if "start" in getattr(attack, "knows", ()) and self.start is None:
            return NO_START
        if self.honest_only is not None and attack.conduct is not None and attack.conduct.gain:
            return self.honest_only
        untold = attack.auxiliary and self.withheld and any(len(a.labels.unique()) < 2 for a in auxiliaries)
        return NO_LABELS if untold else None

    def score(
        self, attack: LabelAttack, guess: Guess, blind: Guess | None, auxiliary: Auxiliary, r: int
    ) -> Score | None:
        del attack, r
        if not bool(counted(guess, self.truth, auxiliary).any()):
            return None
        return label_score(guess, self.truth, auxiliary=auxiliary, blind=blind, confidence=self.confidence)


def draw_auxiliary(truth: Tensor, classes: int, *, per_class: int, seed: int, replica: int = 0) -> Auxiliary:
    """The labels of `per_class` records of each class drawn at random, of all if there are fewer."""
    generator = host_generator(seed, "auxiliary", replica)
    chosen: list[int] = []
    # Of many classes few may have a record: a pass over the labels for each of the others would take minutes.
    labels = truth.cpu().numpy()
    for label in (label for label in np.unique(labels) if 0 <= label < classes):
        chosen += generator.permutation(np.flatnonzero(labels == label))[:per_class].tolist()
    records = torch.tensor(sorted(chosen), dtype=torch.int64, device=truth.device)
    coins = derive(seed, "attack", replica) >> 1
    return Auxiliary(records=records, labels=truth.index_select(0, records), seed=coins)


def counted(guess: Guess, truth: Tensor, auxiliary: Auxiliary | None) -> Tensor:
    """Which guesses count: those about records with a known label (not -1) that was not given to the attack.

    Of an attack on a sample of the records, those that were drawn.
    """
    given = guess.records.new_empty(0) if auxiliary is None else auxiliary.records.to(guess.records.device)
    known = truth.index_select(0, guess.records.to(truth.device, torch.int64)) >= 0
    rows = known.to(guess.records.device) & ~torch.isin(guess.records, given)
    return rows if guess.drawn is None else rows & guess.drawn


def label_score(
    guess: Guess,
    truth: Tensor,
    *,
    auxiliary: Auxiliary | None = None,
    blind: Guess | None = None,
    confidence: float = 0.95,
) -> Score:
    """Compare replica 0's guesses with the labels (N,), on the records that `counted` selects.

    The interval is Clopper and Pearson's: records count as trials, given this training.
    """
    rows = counted(guess, truth, auxiliary)
    records = guess.records[rows].to(truth.device)
    labels = truth.index_select(0, records)
    right = (guess.values[0][rows].to(truth.device) == labels).to(torch.float64).mean()
    blind_rate = None if blind is None else _share(blind.records, blind.values[0], truth, records)
    if guess.others is not None:
        blind_rate = max(blind_rate or 0.0, _share(guess.records, guess.others[0], truth, records))
    chance = float(torch.bincount(labels).max()) / len(labels)
    return _share_score(
        float(right), len(labels), confidence, chance=chance, blind=blind_rate, population=guess.population
    )


def _share(guessed: Tensor, guesses: Tensor, truth: Tensor, records: Tensor) -> float:
    """The share of these records whose label is guessed right; one that is not guessed about counts as wrong."""
    table = torch.full_like(truth, -1)
    table[guessed.to(truth.device)] = guesses.to(truth.device)
    return float((table == truth).index_select(0, records).to(torch.float64).mean())


def _share_score(share: float, guesses: int, confidence: float, **baselines: Any) -> Score:
    low, high = interval(round(share * guesses), guesses, confidence)
    return scored(SHARE, (share, low, high), guesses=guesses, **baselines)


@dataclass(frozen=True, eq=False, kw_only=True)
class Targets(Secret):
    """The targets (N,) of a regression, NaN where unknown: the share that is found, and that a constant would find."""

    truth: Tensor

    nothing_to_score: ClassVar[str] = _TOO_FEW

    def attempt(self, attack: TargetAttack, view: View) -> Attempt:
        return replace(super().attempt(attack, view), target="targets")

    def auxiliary(self, attack: TargetAttack, r: int) -> None:
        """An attack is told nothing before it guesses; its guess is up to a constant, which a few targets give."""

    def refusal(self, attack: TargetAttack, view: View, auxiliaries: Sequence[None]) -> str | None:
        del auxiliaries
        return attack.refusal(view)

    def guesses(self, attack: TargetAttack, view: View, auxiliaries: Sequence[None]) -> Guesses:
        return [attack.run_targets(view.replica(r)) for r in range(len(auxiliaries))], [None for _ in auxiliaries]

    def score(self, attack: TargetAttack, guess: Guess, blind: Guess | None, auxiliary: None, r: int) -> Score | None:
        del attack, blind, auxiliary, r  # a recording is of one training
        truth, values = self.truth[guess.records].numpy(), guess.values[0].numpy()
        known = np.flatnonzero(np.isfinite(truth))
        told, asked = np.split(host_generator(self.seed, "auxiliary").permutation(known), [_KNOWN_TARGETS])
        if not len(asked):
            return None
        constant = float(np.median(truth[told] - values[told]))
        distance = _CLOSE * float(np.std(truth[known]))
        right = np.abs(values[asked] + constant - truth[asked]) <= distance
        chance = _best_constant(truth[asked], distance)
        return _share_score(float(right.mean()), len(asked), self.confidence, chance=chance)


def _best_constant(truth: Floats, distance: float) -> float:
    """The largest share of targets that lie within this distance of one number.

    >>> _best_constant(np.array([0.0, 1.0, 1.1, 5.0]), 0.1)
    0.5
    """
    ordered = np.sort(truth)
    within = np.searchsorted(ordered, ordered + 2 * distance, side="right") - np.arange(len(ordered))
    return float(within.max() / len(ordered))
