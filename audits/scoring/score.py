"""The score of an attack: its success with an interval, what is reached without the protocol, and what leaks beyond it.

Success is the share of right guesses, R², or the AUC (`Measure`), over what the attack was not told. It is held against
two baselines: `chance`, what one constant guess or a coin reaches, and `blind`, what the same adversary reaches without
the protocol. What the protocol leaks is the success beyond the better of the two.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from scipy.special import ndtri

from vflpriv.audits.statistics.significance import mean_error, mean_interval

__all__ = ["AUC", "MEMBERSHIP", "R2", "SHARE", "TOKENS", "Column", "Figure", "Measure", "Score", "mean_score", "scored"]


@dataclass(frozen=True)
class Figure:
    """A value, the ends of its interval, and its standard error; None where it was not computed."""

    value: float
    low: float
    high: float
    error: float | None = None


@dataclass(frozen=True, kw_only=True)
class Measure:
    """What success is measured by: its name, the least success and leakage, and what the interval of a mean is over.

    Guesses within a training depend on each other, so that the interval of a mean is over `trainings`. A single one
    then has no interval but the limits. Where `records` do not, a single training has the interval over its records.
    Where trainings share their candidates, it is the wider of `both`: trainings that agree tell nothing of other
    candidates.
    """

    name: str
    least: float
    least_leakage: float
    over: Literal["trainings", "records", "both"]


SHARE = Measure(name="share", least=0.0, least_leakage=-1.0, over="trainings")
R2 = Measure(name="R²", least=-math.inf, least_leakage=-math.inf, over="records")
AUC = Measure(name="AUC", least=0.0, least_leakage=-math.inf, over="records")
TOKENS = Measure(name="tokens", least=0.0, least_leakage=-1.0, over="both")
MEMBERSHIP = Measure(name="AUC", least=0.0, least_leakage=-1.0, over="both")
_LEAST_FIGURE = {"ssim": -1.0, "advantage": -1.0, "found": 0.0, "rarely_found": 0.0, "exact": 0.0, "rouge": 0.0}
"""The least value of each of `Score.figures`; the largest is 1."""


@dataclass(frozen=True, kw_only=True)
class Column:
    """One feature: the mean squared error, that of predicting its mean, and R² (chance 0) unless it is constant."""

    error: float
    mean_error: float
    r2: Figure | None = None


@dataclass(frozen=True, kw_only=True)
class Score(Figure):
    """How well an attack guessed: the success in one training with its interval over records, or a mean over trainings.

    `population` is the number of records of which those guessed about are a random sample; None where they are all.
    `figures` and `numbers` are what a measure has beside the success: SSIM of pictures, advantage and shares of members
    found; mean squared errors and PSNR. `columns` has every feature by itself.
    """

    measure: Measure
    chance: float
    leakage: Figure
    guesses: int
    blind: float | None = None
    population: int | None = None
    figures: Mapping[str, Figure] = field(default_factory=dict)
    numbers: Mapping[str, float] = field(default_factory=dict)
    columns: tuple[Column, ...] = ()


def scored(
    measure: Measure,
    success: tuple[float, float, float],
    *,
    chance: float,
    guesses: int,
    blind: float | None = None,
    population: int | None = None,
    figures: Mapping[str, Figure] | None = None,
    numbers: Mapping[str, float] | None = None,
    columns: tuple[Column, ...] = (),
) -> Score:
    """The score of one training, from its success and the ends of its interval."""
    value, low, high = success
    leakage = value - max(chance, chance if blind is None else blind)
    baseline = value - leakage
    return Score(
        value=value,
        low=low,
        high=high,
        measure=measure,
        chance=chance,
        leakage=Figure(leakage, low - baseline, high - baseline),
        guesses=guesses,
        blind=blind,
        population=population,
        figures=figures or {},
        numbers=numbers or {},
        columns=columns,
    )


def mean_score(scores: Sequence[Score], *, confidence: float) -> Score:
    """The mean of the scores of several trainings, with the intervals of its measure."""
    first, guesses = scores[0], min(s.guesses for s in scores)
    success = _mean(scores, first.measure, first.measure.least, confidence, grain=1 / guesses)
    figures = {
        name: _mean([s.figures[name] for s in scores], first.measure, _LEAST_FIGURE[name], confidence)
        for name in first.figures
        if all(name in s.figures for s in scores)
    }
    blind = [s.blind for s in scores if s.blind is not None]
    return replace(
        first,
        value=success.value,
        low=success.low,
        high=success.high,
        error=success.error,
        chance=_average([s.chance for s in scores]),
        blind=_average(blind) if blind else None,
        leakage=_mean_leakage(scores, success, confidence, grain=1 / guesses),
        guesses=guesses,
        figures=figures,
        numbers={name: _average([s.numbers[name] for s in scores]) for name in first.numbers},
        columns=tuple(_mean_column(seeds, confidence) for seeds in zip(*(s.columns for s in scores), strict=True)),
    )


def _mean_leakage(scores: Sequence[Score], success: Figure, confidence: float, *, grain: float) -> Figure:
    """The mean leakage; of a measure without a baseline but chance, the mean success beyond that."""
    measure = scores[0].measure
    if measure.over == "both":
        chance = scores[0].chance
        return Figure(success.value - chance, success.low - chance, success.high - chance, success.error)
    if measure.over == "records" and len(scores) == 1:
        return replace(scores[0].leakage, error=success.error)
    return _mean([s.leakage for s in scores], measure, measure.least_leakage, confidence, grain=grain)


def _mean(
    figures: Sequence[Figure], measure: Measure, least: float, confidence: float, *, grain: float = 0.0
) -> Figure:
    """The mean of one figure, with the interval and the standard error that the measure's means have."""
    values = [f.value for f in figures]
    if measure.over == "trainings":
        interval = mean_interval(values, confidence, (least, 1.0), grain=grain)
        return Figure(*interval, mean_error(values, grain=grain))
    # The seeds share their records, so that the errors over records do not average out.
    over_records = sum(f.high - f.low for f in figures) / (2 * float(ndtri(0.5 + confidence / 2)) * len(figures))
    if len(figures) == 1:
        only = figures[0]
        return Figure(only.value, only.low, only.high, over_records)
    mean, low, high = mean_interval(values, confidence, (least, 1.0))
    error = mean_error(values)
    if measure.over == "records":
        return Figure(mean, low, high, error)
    low, high = min(low, _average([f.low for f in figures])), max(high, _average([f.high for f in figures]))
    return Figure(mean, low, high, max(error or 0.0, over_records))


def _mean_column(seeds: Sequence[Column], confidence: float) -> Column:
    """The means over trainings of one feature's scores; R² of those in which the feature is not constant."""
    varying = [s.r2 for s in seeds if s.r2 is not None]
    return Column(
        error=_average([s.error for s in seeds]),
        mean_error=_average([s.mean_error for s in seeds]),
        r2=_mean(varying, R2, R2.least, confidence) if varying else None,
    )


def _average(values: Sequence[float]) -> float:
    return sum(values) / len(values)
