"""Attacks on one device's features or on one sensitive column: their scores, and all attempts on one system.

A reconstruction is scored by R² against predicting each feature's mean, pictures also by SSIM and PSNR, a sensitive
column by the AUC. Each score is held against chance and against the same adversary without the protocol (`blind`), on
records that were not given to the attack.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from scipy.stats import norm as normal
from torch import Tensor

from vflpriv.audits.scoring.pictures import picture_shape, psnr, ssim
from vflpriv.audits.scoring.trainings import Training, attempt_work, needed_kinds, train
from vflpriv.audits.statistics.resampling import (
    auc_interval,
    mean_over_records,
    ratio_over_records,
    ratios_over_records,
)
from vflpriv.audits.statistics.significance import mean_error, mean_interval
from vflpriv.common.devices import precise_device
from vflpriv.common.numerics import Floats
from vflpriv.common.seeds import derive, host_generator
from vflpriv.core.attack import (
    AttributeGuess,
    Defences,
    FeatureAttack,
    FeatureAuxiliary,
    FeatureGuess,
    KnownModel,
    adapts,
)
from vflpriv.core.systems import System
from vflpriv.core.views import Adversary, View

__all__ = [
    "NOTHING_TO_SCORE",
    "ColumnLeak",
    "FeatureAttempt",
    "FeatureAttempts",
    "FeatureLeak",
    "FeatureScore",
    "FeatureTrials",
    "attribute_score",
    "feature_leak",
    "feature_score",
]

_COLUMN_DRAWS = 400
"""Bootstrap draws for the interval of one feature."""
_SHOWN = 8
"""Records whose pictures are shown."""
NOTHING_TO_SCORE = "no guess to score: what is known of the records that it guesses about is the same for all"
"""Why an attempt does not count, where the records that count do not differ, or where there are none."""


# Scores


@dataclass(frozen=True, kw_only=True)
class ColumnLeak:
    """One feature: the mean squared error, that of predicting its mean, and R² (chance 0) with its interval.

    A feature that is constant has no R².
    """

    error: float
    mean_error: float
    value: float | None = None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, kw_only=True)
class FeatureScore:
    """Scores of one seed. `value` is R² (against the mean of the scored records, chance 0) or the AUC (chance ½).

    The interval is over records. `error` is the mean squared error of all features, `mean_error` that of predicting
    each feature's mean, `columns` has both for each feature; `ssim` and `psnr` are given for pictures.
    """

    measure: str
    value: float
    low: float
    high: float
    chance: float
    blind: float | None
    records: int
    error: float | None = None
    mean_error: float | None = None
    columns: tuple[ColumnLeak, ...] = ()
    psnr: float | None = None
    ssim: float | None = None
    ssim_low: float | None = None
    ssim_high: float | None = None

    @property
    def leakage(self) -> float:
        """The value beyond the better of the two baselines."""
        return self.value - max(self.chance, self.chance if self.blind is None else self.blind)


@dataclass(frozen=True, kw_only=True)
class FeatureLeak:
    """Means over seeds. With one seed the interval of `value` is over records, otherwise Student's over seeds."""

    measure: str
    value: float
    low: float
    high: float
    chance: float
    blind: float | None
    leakage: float
    leakage_low: float
    leakage_high: float
    value_error: float
    """The standard error of `value`: over seeds, or over records with one seed; likewise that of the leakage."""
    leakage_error: float
    records: int
    error: float | None
    mean_error: float | None
    psnr: float | None
    ssim: float | None
    ssim_low: float | None
    ssim_high: float | None
    columns: tuple[ColumnLeak, ...] = ()


def feature_score(
    guess: FeatureGuess,
    truth: Tensor,
    *,
    known: Tensor,
    confidence: float,
    blind: FeatureGuess | None = None,
    seed: int = 0,
) -> FeatureScore:
    """Replica 0's reconstruction against the victim's block (N, …), on records that were not given to the attack.

    Blocks of pictures (`picture_shape`) are compared by SSIM and PSNR, too.
    """
    rows = _scored(guess.records, known)
    records = guess.records[rows].to(truth.device)
    real = truth.index_select(0, records).flatten(1).to(torch.float64)
    guessed = guess.blocks[0][rows].to(real)
    varies = (real != real[:1]).any(0)
    errors, spread = (guessed - real).square(), (real - real.mean(0)).square() * varies
    unexplained, low, high = ratio_over_records(_sums(errors), _sums(spread), confidence=confidence, seed=seed)
    shape = picture_shape(truth)
    pictures = {} if shape is None else _picture_scores(guessed, real, shape, confidence, seed)
    return FeatureScore(
        measure="R²",
        value=1 - unexplained,
        low=1 - high,
        high=1 - low,
        chance=0.0,
        blind=None if blind is None else _blind_r2(blind, truth, records, real, spread),
        records=len(records),
        error=float(errors.mean()),
        mean_error=float(spread.mean()),
        columns=_columns(errors, spread, confidence, seed),
        **pictures,
    )


def _picture_scores(
    guessed: Tensor, real: Tensor, shape: tuple[int, int, int], confidence: float, seed: int
) -> dict[str, float]:
    """PSNR, and the mean SSIM with its interval, of reconstructions (n, d) clamped to [0, 1]."""
    ours, theirs = (x.clamp(0, 1).unflatten(1, shape) for x in (guessed, real))
    mean, low, high = mean_over_records(ssim(ours, theirs).cpu().numpy(), confidence=confidence, seed=seed)
    return {"psnr": psnr(float((ours - theirs).square().mean())), "ssim": mean, "ssim_low": low, "ssim_high": high}


def attribute_score(
    guess: AttributeGuess, truth: Tensor, *, known: Tensor, confidence: float, blind: AttributeGuess | None = None
) -> FeatureScore:
    """Replica 0's scores against the sensitive column (N,) of 0 and 1, on records that were not given to the attack."""
    rows = _scored(guess.records, known)
    records, scores = guess.records[rows].to(truth.device), guess.scores[0][rows].to(truth.device)
    ones = truth.index_select(0, records) == 1
    value, low, high = auc_interval(scores[~ones], scores[ones], confidence)
    blind_auc = None
    if blind is not None:
        table = torch.zeros(len(truth), dtype=blind.scores.dtype, device=truth.device)
        table[blind.records.to(truth.device)] = blind.scores[0].to(truth.device)
        blind_scores = table.index_select(0, records)
        blind_auc = auc_interval(blind_scores[~ones], blind_scores[ones], confidence)[0]
    return FeatureScore(
        measure="AUC", value=value, low=low, high=high, chance=0.5, blind=blind_auc, records=len(records)
    )


def feature_leak(scores: Sequence[FeatureScore], *, confidence: float) -> FeatureLeak:
    """The means of the seeds' scores with their intervals."""
    first, bounds = scores[0], (-math.inf, 1.0) if scores[0].measure == "R²" else (0.0, 1.0)
    value, low, high = mean_interval([s.value for s in scores], confidence, bounds)
    beyond = mean_interval([s.leakage for s in scores], confidence, (-math.inf, 1.0))
    value_error, leakage_error = (mean_error([getattr(s, n) for s in scores]) for n in ("value", "leakage"))
    if value_error is None or leakage_error is None:
        low, high = first.low, first.high
        value_error = leakage_error = (high - low) / (2 * float(normal.ppf(0.5 + confidence / 2)))
        baseline = first.value - first.leakage
        beyond = first.leakage, low - baseline, high - baseline
    means = {n: _mean([getattr(s, n) for s in scores]) for n in ("blind", "error", "mean_error", "psnr", "ssim")}
    ssim_ends = (first.ssim_low, first.ssim_high)
    if len(scores) > 1 and first.ssim is not None:
        ssim_ends = mean_interval([s.ssim for s in scores if s.ssim is not None], confidence, (-1.0, 1.0))[1:]
    return FeatureLeak(
        measure=first.measure,
        value=value,
        low=low,
        high=high,
        chance=first.chance,
        leakage=beyond[0],
        leakage_low=beyond[1],
        leakage_high=beyond[2],
        value_error=value_error,
        leakage_error=leakage_error,
        records=min(s.records for s in scores),
        ssim_low=ssim_ends[0],
        ssim_high=ssim_ends[1],
        columns=tuple(_mean_column(seeds, confidence) for seeds in zip(*(s.columns for s in scores), strict=True)),
        **means,
    )


def _columns(errors: Tensor, spread: Tensor, confidence: float, seed: int) -> tuple[ColumnLeak, ...]:
    """Every feature by itself, from squared errors (n, d) and squared distances from the mean."""
    above, below = errors.cpu().numpy(), spread.cpu().numpy()
    ratios = ratios_over_records(above, below, confidence=confidence, seed=seed, draws=_COLUMN_DRAWS)
    return tuple(
        ColumnLeak(error=error, mean_error=mean, value=1 - unexplained, low=1 - high, high=1 - low)
        if mean > 0
        else ColumnLeak(error=error, mean_error=mean)
        for error, mean, unexplained, low, high in zip(
            above.mean(0).tolist(), below.mean(0).tolist(), *(x.tolist() for x in ratios), strict=True
        )
    )


def _mean_column(seeds: Sequence[ColumnLeak], confidence: float) -> ColumnLeak:
    """The means over seeds of one feature's scores."""
    if len(seeds) == 1:
        return seeds[0]
    means = {
        "error": sum(s.error for s in seeds) / len(seeds),
        "mean_error": sum(s.mean_error for s in seeds) / len(seeds),
    }
    values = [s.value for s in seeds if s.value is not None]
    if not values:
        return ColumnLeak(**means)
    value, low, high = mean_interval(values, confidence, (-math.inf, 1.0))
    return ColumnLeak(**means, value=value, low=low, high=high)


def _mean(values: Sequence[float | None]) -> float | None:
    present = [v for v in values if v is not None]
    return sum(present) / len(present) if present else None


def _scored(records: Tensor, known: Tensor) -> Tensor:
    """Which guesses count: those about records that were not given to the attack."""
    return ~torch.isin(records, known.to(records.device))


def _sums(values: Tensor) -> Floats:
    return np.asarray(values.sum(1).cpu().numpy(), dtype=np.float64)


def _blind_r2(blind: FeatureGuess, truth: Tensor, records: Tensor, real: Tensor, spread: Tensor) -> float:
    """R² of the adversary without the protocol, on the same records; records it does not name are given the mean."""
    table = real.mean(0).repeat(len(truth), 1)
    table[blind.records.to(truth.device)] = blind.blocks[0].to(real)
    errors = (table.index_select(0, records) - real).square()
    return 1 - float(errors.sum() / spread.sum().clamp(min=1e-300))


# All attacks on one system


@dataclass(frozen=True, kw_only=True)
class FeatureAttempt:
    """One attack through one view: what it reached, or the reason why it was not tried.

    `pictures` is (2, n, channels, height, width), originals and reconstructions of the first seed, for pictures only.
    """

    attack: str
    target: str
    adversary: Adversary
    victim: int
    knows: frozenset[str]
    leak: FeatureLeak | None = None
    refusal: str | None = None
    adaptive: bool = False
    """Whether the attack knows one of the defences in force."""
    pictures: Tensor | None = None


@dataclass(frozen=True, eq=False, kw_only=True)
class FeatureAttempts:
    """How every attack on the features of device `victim` is tried: what it is given, and how its guesses are scored.

    `blocks` holds devices' rows (N, …); they reach an attack only as its `FeatureAuxiliary`: `known` records drawn at
    random, for each seed others, and of these only what the attack declares to know. `records` are those whose rows at
    the victim are known here, None if all are: no other is told or scored. `attribute` is a column of the victim's
    block: the sensitive attribute is whether its value lies above the middle of the column's range. With `tolerant`, an
    attack that raises an error on messages of a foreign format is refused with that error instead of ending the run.
    """

    blocks: Mapping[int, Tensor]
    victim: int
    known: int
    seed: int
    confidence: float
    seeds: int = 1
    attribute: int | None = None
    records: Tensor | None = None
    models: Mapping[int, KnownModel] = field(default_factory=dict)
    noise_std: float = 0.0
    tolerant: bool = False
    defences: Defences = field(default_factory=dict)

    def attempt(self, attack: FeatureAttack, view: View) -> FeatureAttempt:
        """Try one attack on what this view shows of each seed."""
        attempt = FeatureAttempt(
            attack=attack.name,
            target=attack.target,
            adversary=view.adversary,
            victim=self.victim,
            knows=attack.knows,
            adaptive=adapts(attack, self.defences),
        )
        if attack.target == "attribute" and self.attribute is None:
            return replace(attempt, refusal="needs a sensitive column; none is named")
        try:
            return self._tried(attempt, attack, view)
        except (RuntimeError, KeyError, IndexError, ValueError) as error:
            if not self.tolerant:
                raise
            reason = f"cannot read this recording: {type(error).__name__}, {error}"
            return replace(attempt, refusal=" ".join(reason.split()))

    def _tried(self, attempt: FeatureAttempt, attack: FeatureAttack, view: View) -> FeatureAttempt:
        scores: list[FeatureScore] = []
        pictures = None
        for r in range(self.seeds):
            auxiliary, seen = self._auxiliary(attack, r), view.replica(r)
            refusal = attack.refusal(seen, auxiliary)
            if refusal is not None:
                return replace(attempt, refusal=refusal)
            guess, blind = attack.run(seen, auxiliary), attack.blind(seen.silent(), auxiliary)
            if self.tolerant and not self._can_be_scored(guess, auxiliary):
                return replace(attempt, refusal=NOTHING_TO_SCORE)
            scores.append(self._score(guess, blind, auxiliary, r))
            if pictures is None and isinstance(guess, FeatureGuess):
                pictures = self._pictures(guess, auxiliary)
        return replace(attempt, leak=feature_leak(scores, confidence=self.confidence), pictures=pictures)

    @property
    def _truth(self) -> Tensor:
        """The victim's block."""
        return self.blocks[self.victim]

    def _sensitive(self) -> Tensor:
        """The sensitive column as (N,) of 0 and 1."""
        column = self._truth.flatten(1)[:, self.attribute or 0]
        return (column > (column.min() + column.max()) / 2).long()

    def _auxiliary(self, attack: FeatureAttack, r: int) -> FeatureAuxiliary:
        truth = self._truth
        records = torch.arange(len(truth)) if self.records is None else self.records
        generator = host_generator(self.seed, "auxiliary", r)
        knows_some = "records" in attack.knows or "attribute" in attack.knows
        count = min(self.known, len(records) // 2) if knows_some else 0
        drawn = torch.from_numpy(generator.permutation(len(records))[:count])
        chosen = records[drawn].sort().values.to(truth.device)
        rows = chosen if "records" in attack.knows else chosen[:0]
        return FeatureAuxiliary(
            victim=self.victim,
            records=chosen,
            blocks={m: block.flatten(1).index_select(0, rows) for m, block in self.blocks.items()},
            attribute=self._sensitive().index_select(0, chosen) if "attribute" in attack.knows else None,
            models={m: model.replica(r) for m, model in self.models.items()} if "model" in attack.knows else {},
            noise_std=self.noise_std,
            seed=derive(self.seed, "attack", r) >> 1,
            defences=self.defences,
        )

    def _unscored(self, auxiliary: FeatureAuxiliary) -> Tensor:
        """The records that were given to the attack, or whose rows are not known."""
        if self.records is None:
            return auxiliary.records
        unknown = torch.ones(len(self._truth), dtype=torch.bool)
        unknown[self.records] = False
        return torch.cat((auxiliary.records, unknown.nonzero().flatten().to(auxiliary.records.device)))

    def _can_be_scored(self, guess: FeatureGuess | AttributeGuess, auxiliary: FeatureAuxiliary) -> bool:
        """Whether the records that count differ in what was guessed."""
        records = guess.records[_scored(guess.records, self._unscored(auxiliary))].to(self._truth.device)
        truth = self._sensitive() if isinstance(guess, AttributeGuess) else self._truth
        rows = truth.index_select(0, records)
        return bool((rows != rows[:1]).any())

    def _score(
        self,
        guess: FeatureGuess | AttributeGuess,
        blind: FeatureGuess | AttributeGuess | None,
        auxiliary: FeatureAuxiliary,
        r: int,
    ) -> FeatureScore:
        known = self._unscored(auxiliary)
        if isinstance(guess, AttributeGuess):
            blind_attribute = blind if isinstance(blind, AttributeGuess) else None
            sensitive = self._sensitive()
            return attribute_score(guess, sensitive, known=known, confidence=self.confidence, blind=blind_attribute)
        blind_features = blind if isinstance(blind, FeatureGuess) else None
        return feature_score(guess, self._truth, known=known, confidence=self.confidence, blind=blind_features, seed=r)

    def _pictures(self, guess: FeatureGuess, auxiliary: FeatureAuxiliary) -> Tensor | None:
        """Originals and reconstructions of the first scored records; None where the block holds no pictures."""
        truth, shape = self._truth, picture_shape(self._truth)
        if shape is None:
            return None
        rows = _scored(guess.records, self._unscored(auxiliary)).nonzero().flatten()[:_SHOWN]
        guessed = guess.blocks[0].index_select(0, rows).to(truth).clamp(0, 1)
        real = truth.index_select(0, guess.records.index_select(0, rows)).flatten(1)
        return torch.stack((real, guessed)).reshape(2, len(rows), *shape).cpu()


@dataclass(frozen=True, kw_only=True)
class FeatureTrials:
    """Trains a system once and tries every attack on the features of device `victim`, as `FeatureAttempts` has it.

    Each seed is a replica of its own with its own `known` records.
    """

    system: System
    seeds: int
    confidence: float
    known: int
    victim: int
    attribute: int | None = None

    def run(
        self,
        attacks: Sequence[FeatureAttack],
        adversaries: Sequence[Adversary],
        *,
        training: Training | None = None,
        advance: Callable[[int], None] | None = None,
    ) -> tuple[FeatureAttempt, ...]:
        """Try every attack through every view. `training` is one of honest devices with all that the attacks read."""
        if training is None:
            white = any("model" in attack.knows for attack in attacks)
            kinds = needed_kinds(self.system, attacks)
            training = train(self.system, self.seeds, kinds, white=white, advance=advance)
        views, attempts = training.views(adversaries), self._attempts(training.models)
        tried = []
        for attack in attacks:
            for adversary in adversaries:
                tried.append(attempts.attempt(attack, views[adversary]))
                if advance is not None:
                    advance(attempt_work(self.system))
        return tuple(tried)

    def _attempts(self, models: Mapping[int, KnownModel]) -> FeatureAttempts:
        system = self.system
        where = precise_device(system.torch_device)
        mechanism = system.engine.mechanisms(system.settings, system.schedule).get("embeddings")
        return FeatureAttempts(
            blocks={m: block.to(where) for m, block in enumerate(system.data.blocks)},
            victim=self.victim,
            known=self.known,
            seed=system.seed,
            confidence=self.confidence,
            seeds=self.seeds,
            attribute=self.attribute,
            models=models,
            noise_std=0.0 if mechanism is None else mechanism.noise_std,
            defences=system.defences,
        )
