"""Attacks on one device's features or on one sensitive column: their scores, and all attempts on one system.

A reconstruction is scored by R² against predicting each feature's mean, pictures also by SSIM and PSNR, a sensitive
column by the AUC. Each score is held against chance and against the same adversary without the protocol (`blind`), on
records that were not given to the attack.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from scipy.stats import norm as normal
from torch import Tensor

from vflpriv.audits.scoring.trainings import Training, needed_kinds, train
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
from vflpriv.core.attack import AttributeGuess, FeatureAttack, FeatureAuxiliary, FeatureGuess, KnownModel
from vflpriv.core.systems import System
from vflpriv.core.views import Adversary, View

__all__ = [
    "ColumnLeak",
    "FeatureAttempt",
    "FeatureLeak",
    "FeatureScore",
    "FeatureTrials",
    "attribute_score",
    "feature_leak",
    "feature_score",
    "picture_shape",
    "psnr",
    "ssim",
]

_WINDOW, _SIGMA = 11, 1.5
_C1, _C2 = 0.01**2, 0.03**2
"""Window and constants of SSIM."""
_COLUMN_DRAWS = 400
"""Bootstrap draws for the interval of one feature."""
_SHOWN = 8
"""Records whose pictures are shown."""


# Similarity of pictures


def picture_shape(block: Tensor) -> tuple[int, int, int] | None:
    """(channels, height, width) of a block of pictures with values in [0, 1], at least 2 pixels high; or None."""
    if block.dim() not in (3, 4) or float(block.min()) < 0 or float(block.max()) > 1:
        return None
    channels, height, width = block.shape[1:] if block.dim() == 4 else (1, *block.shape[1:])
    return (channels, height, width) if min(height, width) > 1 else None


def ssim(ours: Tensor, theirs: Tensor) -> Tensor:
    """(n,) mean structural similarity of (n, channels, height, width) pictures (Wang et al. 2004).

    Their Gaussian window of 11 × 11 pixels, σ = 1.5, and constants for a range of 1; where a picture is smaller
    than the window, the window is the largest odd rectangle that fits.
    """
    channels = ours.shape[1]
    vertical, horizontal = (_window(side, ours.device) for side in ours.shape[-2:])
    kernel = torch.outer(vertical, horizontal).expand(channels, 1, -1, -1)

    def mean(x: Tensor) -> Tensor:
        return torch.nn.functional.conv2d(x, kernel, groups=channels)

    x, y = ours.to(torch.float64), theirs.to(torch.float64)
    a, b = mean(x), mean(y)
    xx, yy, xy = mean(x * x) - a * a, mean(y * y) - b * b, mean(x * y) - a * b
    similarity = (2 * a * b + _C1) * (2 * xy + _C2) / ((a * a + b * b + _C1) * (xx + yy + _C2))
    return similarity.flatten(1).mean(1)


def _window(side: int, device: torch.device) -> Tensor:
    """The Gaussian window along one side, with sum 1."""
    size = min(_WINDOW, side)
    size -= 1 - size % 2
    offsets = torch.arange(size, dtype=torch.float64, device=device) - size // 2
    weights = torch.exp(-offsets.square() / (2 * _SIGMA**2))
    return weights / weights.sum()


def psnr(mse: float) -> float:
    """Peak signal-to-noise ratio in decibels, for values in [0, 1].

    >>> psnr(0.01), psnr(0.0)
    (20.0, inf)
    """
    return math.inf if mse <= 0 else -10 * math.log10(mse)


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
    pictures: Tensor | None = None


@dataclass(frozen=True, kw_only=True)
class FeatureTrials:
    """Trains a system once and tries every attack on the features of device `victim`.

    Each seed is a replica of its own with its own `known` records, drawn at random. An attack is given only what it
    declares to know; its guesses are scored on the other records. `attribute` is a column of the victim's block: the
    sensitive attribute is whether its value lies above the middle of the column's range.
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
        views, models = training.views(adversaries), training.models
        return tuple(self._try(attack, views[adversary], models) for attack in attacks for adversary in adversaries)

    def _try(self, attack: FeatureAttack, view: View, models: Mapping[int, KnownModel]) -> FeatureAttempt:
        attempt = FeatureAttempt(
            attack=attack.name,
            target=attack.target,
            adversary=view.adversary,
            victim=self.victim,
            knows=attack.knows,
        )
        if attack.target == "attribute" and self.attribute is None:
            return replace(attempt, refusal="needs a sensitive column; none is named")
        scores: list[FeatureScore] = []
        pictures = None
        for r in range(self.seeds):
            auxiliary, seen = self._auxiliary(attack, models, r), view.replica(r)
            refusal = attack.refusal(seen, auxiliary)
            if refusal is not None:
                return replace(attempt, refusal=refusal)
            guess, blind = attack.run(seen, auxiliary), attack.blind(seen.silent(), auxiliary)
            scores.append(self._score(guess, blind, auxiliary, r))
            if pictures is None and isinstance(guess, FeatureGuess):
                pictures = self._pictures(guess, auxiliary)
        return replace(attempt, leak=feature_leak(scores, confidence=self.confidence), pictures=pictures)

    @property
    def _truth(self) -> Tensor:
        """The victim's block."""
        return self.system.data.blocks[self.victim].to(precise_device(self.system.torch_device))

    def _sensitive(self) -> Tensor:
        """The sensitive column as (N,) of 0 and 1."""
        column = self._truth.flatten(1)[:, self.attribute or 0]
        return (column > (column.min() + column.max()) / 2).long()

    def _auxiliary(self, attack: FeatureAttack, models: Mapping[int, KnownModel], r: int) -> FeatureAuxiliary:
        system, truth = self.system, self._truth
        generator = host_generator(system.seed, "auxiliary", r)
        knows_some = "records" in attack.knows or "attribute" in attack.knows
        count = min(self.known, len(truth) // 2) if knows_some else 0
        chosen = torch.from_numpy(generator.permutation(len(truth))[:count]).sort().values.to(truth.device)
        rows = chosen if "records" in attack.knows else chosen[:0]
        blocks = [block.to(truth.device).flatten(1).index_select(0, rows) for block in system.data.blocks]
        mechanism = system.engine.mechanisms(system.settings, system.schedule).get("embeddings")
        return FeatureAuxiliary(
            victim=self.victim,
            records=chosen,
            blocks=dict(enumerate(blocks)),
            attribute=self._sensitive().index_select(0, chosen) if "attribute" in attack.knows else None,
            models={m: model.replica(r) for m, model in models.items()} if "model" in attack.knows else {},
            noise_std=0.0 if mechanism is None else mechanism.noise_std,
            seed=derive(system.seed, "attack", r) >> 1,
        )

    def _score(
        self,
        guess: FeatureGuess | AttributeGuess,
        blind: FeatureGuess | AttributeGuess | None,
        auxiliary: FeatureAuxiliary,
        r: int,
    ) -> FeatureScore:
        known = auxiliary.records
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
        rows = (~torch.isin(guess.records, auxiliary.records)).nonzero().flatten()[:_SHOWN]
        guessed = guess.blocks[0].index_select(0, rows).to(truth).clamp(0, 1)
        real = truth.index_select(0, guess.records.index_select(0, rows)).flatten(1)
        return torch.stack((real, guessed)).reshape(2, len(rows), *shape).cpu()
