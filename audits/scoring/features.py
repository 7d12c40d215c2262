"""How close a reconstruction of features came, against predicting the mean and against the adversary by itself."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.stats import norm as normal
from torch import Tensor

from vflpriv.audits.scoring.labels import Watched, mean_error, mean_interval
from vflpriv.audits.statistics.resampling import (
    Floats,
    auc_interval,
    mean_over_records,
    ratio_over_records,
    ratios_over_records,
)
from vflpriv.common.seeds import derive, host_generator
from vflpriv.core.attack import AttributeGuess, FeatureAttack, FeatureAuxiliary, FeatureGuess, KnownModel
from vflpriv.core.systems import System
from vflpriv.core.views import Adversary, View
from vflpriv.core.wire import Wire

__all__ = [
    "ColumnLeak",
    "FeatureLeak",
    "FeatureScore",
    "FeatureTrials",
    "FeatureTried",
    "attribute_score",
    "feature_leak",
    "feature_score",
    "known_model",
    "picture_shape",
    "psnr",
    "ssim",
]

_WINDOW, _SIGMA = 11, 1.5
_C1, _C2 = 0.01**2, 0.03**2


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
    down, across = (_line(side, ours.device) for side in ours.shape[-2:])
    kernel = torch.outer(down, across).expand(channels, 1, -1, -1)

    def mean(x: Tensor) -> Tensor:
        return torch.nn.functional.conv2d(x, kernel, groups=channels)

    x, y = ours.to(torch.float64), theirs.to(torch.float64)
    a, b = mean(x), mean(y)
    xx, yy, xy = mean(x * x) - a * a, mean(y * y) - b * b, mean(x * y) - a * b
    alike = (2 * a * b + _C1) * (2 * xy + _C2) / ((a * a + b * b + _C1) * (xx + yy + _C2))
    return alike.flatten(1).mean(1)


def _line(side: int, device: torch.device) -> Tensor:
    """The window along one side, with sum 1."""
    size = min(_WINDOW, side)
    size -= 1 - size % 2
    at = torch.arange(size, dtype=torch.float64, device=device) - size // 2
    line = torch.exp(-at.square() / (2 * _SIGMA**2))
    return line / line.sum()


def psnr(mse: float) -> float:
    """In decibels, for values in [0, 1].

    >>> psnr(0.01), psnr(0.0)
    (20.0, inf)
    """
    return math.inf if mse <= 0 else -10 * math.log10(mse)


# How close a reconstruction of features came, against predicting the mean and against the adversary by itself.

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


# Attacks on one device's features: one training of several seeds at once, every attack through every view.

_SHOWN = 8
_MEMORY = 1 << 30


@dataclass(frozen=True, kw_only=True)
class FeatureTried:
    """One attack through one view, or the reason why it was not tried.

    `pictures` is (2, n, channels, height, width), originals above reconstructions, of the first seed, for pictures.
    """

    attack: str
    target: str
    adversary: Adversary
    victim: int
    knows: frozenset[str]
    leak: FeatureLeak | None = None
    refusal: str | None = None
    pictures: Tensor | None = None


def known_model(engine: Any, m: int, rounds: Mapping[int, Mapping[str, Tensor]]) -> KnownModel:
    """Device m's model as a white box: what it sends but for the noise, so its clip included."""
    model, mechanism = engine.bank.models[m], engine.mechanisms(engine.settings, engine.schedule).get("embeddings")

    def apply(parameters: Mapping[str, Tensor], rows: Tensor) -> Tensor:
        outputs: Tensor = model.apply(parameters, rows)
        return outputs if mechanism is None else mechanism.noiseless(outputs)

    return KnownModel(apply=apply, rounds=rounds)


@dataclass(frozen=True, kw_only=True)
class FeatureTrials:
    """Trains a system once and tries every attack on the block of device `victim`.

    Each seed is a replica of its own with its own `known` records, drawn at random. An attack is given only what it
    declares to know; success is scored here, on the other records. `attribute` is a column of the victim's block: the
    sensitive attribute is whether its value lies above the column's middle.
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
        advance: Callable[[int], None] | None = None,
    ) -> tuple[FeatureTried, ...]:
        """Every attack through every view."""
        data = self.system.data
        sent = frozenset(release.kind for release in self.system.ledger.releases)
        watched = Watched(frozenset().union(*(a.needs for a in attacks)) & sent)
        engine: Any = self.system.train(range(self.seeds))
        models = self._train(engine, watched, advance, white=any("model" in a.knows for a in attacks))
        members = {m for adversary in adversaries for m in adversary.members(data.devices)}
        own = {m: engine.belongings(m) for m in sorted(members)}
        shape = {"devices": data.devices, "classes": data.classes}
        views = [View.of(watched.whole, adversary, own=own, **shape) for adversary in adversaries]
        return tuple(self._try(attack, view, models) for attack in attacks for view in views)

    def _train(
        self, engine: Any, watched: Watched, advance: Callable[[int], None] | None, *, white: bool
    ) -> dict[int, KnownModel]:
        """All rounds; every device's model as it was before each of the last ones, as many as memory has room for."""
        every = [engine.bank.parameters[m] for m in range(self.system.data.devices)] if white else []
        rounds = self.system.schedule.rounds
        each = sum(value.numel() * value.element_size() for one in every for value in one.values())
        first = max(0, rounds - _MEMORY // max(1, each))
        kept: dict[int, dict[int, dict[str, Tensor]]] = {m: {} for m in range(len(every))}

        def keep(round_: int) -> None:
            for m in kept if round_ >= first else ():
                kept[m][round_] = {name: value.clone() for name, value in engine.bank.parameters[m].items()}

        wire = Wire(watched)
        for round_ in range(rounds):
            keep(round_)
            engine.round(round_, wire)
            if advance is not None:
                advance(1)
        keep(rounds)
        return {m: known_model(engine, m, found) for m, found in kept.items()}

    def _try(self, attack: FeatureAttack, view: View, models: Mapping[int, KnownModel]) -> FeatureTried:
        words: dict[str, Any] = {"attack": attack.name, "target": attack.target, "knows": attack.knows}
        tried = FeatureTried(**words, adversary=view.adversary, victim=self.victim)
        if attack.target == "attribute" and self.attribute is None:
            return _refused(tried, "needs a sensitive column; none is named")
        scores: list[FeatureScore] = []
        pictures = None
        for r in range(self.seeds):
            auxiliary, mine = self._auxiliary(attack, models, r), view.replica(r)
            refusal = attack.refusal(mine, auxiliary)
            if refusal is not None:
                return _refused(tried, refusal)
            guess, blind = attack.run(mine, auxiliary), attack.blind(mine.silent(), auxiliary)
            scores.append(self._score(guess, blind, auxiliary, r))
            if pictures is None and isinstance(guess, FeatureGuess):
                pictures = self._pictures(guess, auxiliary)
        leak = feature_leak(scores, confidence=self.confidence)
        return FeatureTried(**words, adversary=view.adversary, victim=self.victim, leak=leak, pictures=pictures)

    @property
    def _truth(self) -> Tensor:
        return self.system.data.blocks[self.victim].to(self.system.torch_device)

    def _sensitive(self) -> Tensor:
        column = self._truth.flatten(1)[:, self.attribute or 0]
        return (column > (column.min() + column.max()) / 2).long()

    def _auxiliary(self, attack: FeatureAttack, models: Mapping[int, KnownModel], r: int) -> FeatureAuxiliary:
        system, truth = self.system, self._truth
        generator = host_generator(system.seed, "auxiliary", r)
        told = "records" in attack.knows or "attribute" in attack.knows
        count = min(self.known, len(truth) // 2) if told else 0
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
            alone = blind if isinstance(blind, AttributeGuess) else None
            sensitive = self._sensitive()
            return attribute_score(guess, sensitive, known=known, confidence=self.confidence, blind=alone)
        made = blind if isinstance(blind, FeatureGuess) else None
        return feature_score(guess, self._truth, known=known, confidence=self.confidence, blind=made, seed=r)

    def _pictures(self, guess: FeatureGuess, auxiliary: FeatureAuxiliary) -> Tensor | None:
        truth, shape = self._truth, picture_shape(self._truth)
        if shape is None:
            return None
        rows = (~torch.isin(guess.records, auxiliary.records)).nonzero().flatten()[:_SHOWN]
        made = guess.blocks[0].index_select(0, rows).to(truth).clamp(0, 1)
        real = truth.index_select(0, guess.records.index_select(0, rows)).flatten(1)
        return torch.stack((real, made)).reshape(2, len(rows), *shape).cpu()


def _refused(tried: FeatureTried, why: str) -> FeatureTried:
    return FeatureTried(
        attack=tried.attack,
        target=tried.target,
        adversary=tried.adversary,
        victim=tried.victim,
        knows=tried.knows,
        refusal=why,
    )
