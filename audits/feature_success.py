"""How close a reconstruction of features came, against predicting the mean and against the adversary by itself."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from scipy.stats import norm as normal
from torch import Tensor

from vflpriv.audits._images import picture_shape, psnr, ssim
from vflpriv.audits._resampling import (
    Floats,
    auc_interval,
    mean_over_records,
    ratio_over_records,
    ratios_over_records,
)
from vflpriv.audits.attack_success import mean_error, mean_interval
from vflpriv.feature_attempts import AttributeGuess, FeatureGuess

__all__ = ["ColumnLeak", "FeatureLeak", "FeatureScore", "attribute_score", "feature_leak", "feature_score"]

_COLUMN_DRAWS = 400


@dataclass(frozen=True, kw_only=True)
class ColumnLeak:
    """One feature: the mean squared error, that of predicting its mean, and R², which is 0 by chance.

    A feature that never varies has no R².
    """

    error: float
    mean_error: float
    value: float | None = None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, kw_only=True)
class FeatureScore:
    """One seed. `value` is R² (against the mean of the scored records, chance 0) or the AUC (chance ½).

    The interval is over records. `error` is the mean squared error of all features, `mean_error` that of predicting
    each feature's mean, `columns` has both for each feature; `ssim` and `psnr` exist for pictures.
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
        """What the protocol adds to what can be said without it."""
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
    """The standard error of `value`, and of the leakage: over seeds, or over records with one seed."""
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
    """Replica 0's reconstruction against the victim's block (N, …), on records that were not given away.

    Where the block holds pictures (`picture_shape`) they are compared as such, too.
    """
    rows = _scored(guess.records, known)
    records = guess.records[rows].to(truth.device)
    real = truth.index_select(0, records).flatten(1).to(torch.float64)
    made = guess.blocks[0][rows].to(real)
    varies = (real != real[:1]).any(0)
    wrong, apart = (made - real).square(), (real - real.mean(0)).square() * varies
    share, low, high = ratio_over_records(_sums(wrong), _sums(apart), confidence=confidence, seed=seed)
    error = float(wrong.mean())
    as_pictures: dict[str, float] = {}
    shape = picture_shape(truth)
    if shape is not None:
        pictures = [x.clamp(0, 1).unflatten(1, shape) for x in (made, real)]
        alike = mean_over_records(ssim(*pictures).cpu().numpy(), confidence=confidence, seed=seed)
        clamped = float((pictures[0] - pictures[1]).square().mean())
        names = ("ssim", "ssim_low", "ssim_high")
        as_pictures = {"psnr": psnr(clamped), **dict(zip(names, alike, strict=True))}
    return FeatureScore(
        measure="R²",
        value=1 - share,
        low=1 - high,
        high=1 - low,
        chance=0.0,
        blind=None if blind is None else _blind_r2(blind, truth, records, real, apart),
        records=len(records),
        error=error,
        mean_error=float(apart.mean()),
        columns=_columns(wrong, apart, confidence, seed),
        **as_pictures,
    )


def attribute_score(
    guess: AttributeGuess, truth: Tensor, *, known: Tensor, confidence: float, blind: AttributeGuess | None = None
) -> FeatureScore:
    """Replica 0's scores against the sensitive column (N,) of 0 and 1, on records that were not given away."""
    rows = _scored(guess.records, known)
    records, scores = guess.records[rows].to(truth.device), guess.scores[0][rows].to(truth.device)
    ones = truth.index_select(0, records) == 1
    value, low, high = auc_interval(scores[~ones], scores[ones], confidence)
    alone = None
    if blind is not None:
        table = torch.zeros(len(truth), dtype=blind.scores.dtype, device=truth.device)
        table[blind.records.to(truth.device)] = blind.scores[0].to(truth.device)
        own = table.index_select(0, records)
        alone = auc_interval(own[~ones], own[ones], confidence)[0]
    return FeatureScore(measure="AUC", value=value, low=low, high=high, chance=0.5, blind=alone, records=len(records))


def feature_leak(scores: Sequence[FeatureScore], *, confidence: float) -> FeatureLeak:
    """The seeds' scores together."""
    first, bounds = scores[0], (-math.inf, 1.0) if scores[0].measure == "R²" else (0.0, 1.0)
    value, low, high = mean_interval([s.value for s in scores], confidence, bounds)
    beyond = mean_interval([s.leakage for s in scores], confidence, (-math.inf, 1.0))
    value_error, leakage_error = (mean_error([getattr(s, n) for s in scores]) for n in ("value", "leakage"))
    if value_error is None or leakage_error is None:
        low, high = first.low, first.high
        value_error = leakage_error = (high - low) / (2 * float(normal.ppf(0.5 + confidence / 2)))
        over = first.value - first.leakage
        beyond = first.leakage, low - over, high - over
    shown = {n: _mean([getattr(s, n) for s in scores]) for n in ("blind", "error", "mean_error", "psnr", "ssim")}
    alike = (first.ssim_low, first.ssim_high)
    if len(scores) > 1 and first.ssim is not None:
        alike = mean_interval([s.ssim for s in scores if s.ssim is not None], confidence, (-1.0, 1.0))[1:]
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
        ssim_low=alike[0],
        ssim_high=alike[1],
        columns=tuple(_together(seeds, confidence) for seeds in zip(*(s.columns for s in scores), strict=True)),
        **shown,
    )


def _columns(wrong: Tensor, apart: Tensor, confidence: float, seed: int) -> tuple[ColumnLeak, ...]:
    """Every feature by itself, from squared errors (n, d) and squared distances from the mean."""
    above, below = wrong.cpu().numpy(), apart.cpu().numpy()
    found = ratios_over_records(above, below, confidence=confidence, seed=seed, draws=_COLUMN_DRAWS)
    return tuple(
        ColumnLeak(error=error, mean_error=mean, value=1 - share, low=1 - high, high=1 - low)
        if mean > 0
        else ColumnLeak(error=error, mean_error=mean)
        for error, mean, share, low, high in zip(
            above.mean(0).tolist(), below.mean(0).tolist(), *(x.tolist() for x in found), strict=True
        )
    )


def _together(seeds: Sequence[ColumnLeak], confidence: float) -> ColumnLeak:
    """One feature's figures of all seeds."""
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
    there = [v for v in values if v is not None]
    return sum(there) / len(there) if there else None


def _scored(records: Tensor, known: Tensor) -> Tensor:
    return ~torch.isin(records, known.to(records.device))


def _sums(values: Tensor) -> Floats:
    return np.asarray(values.sum(1).cpu().numpy(), dtype=np.float64)


def _blind_r2(blind: FeatureGuess, truth: Tensor, records: Tensor, real: Tensor, apart: Tensor) -> float:
    """R² of what the adversary says by itself, on the same records; where it is silent it says the mean."""
    table = real.mean(0).repeat(len(truth), 1)
    table[blind.records.to(truth.device)] = blind.blocks[0].to(real)
    wrong = (table.index_select(0, records) - real).square()
    return 1 - float(wrong.sum() / apart.sum().clamp(min=1e-300))
