"""One device's features as what attacks guess: which rows are told, and how reconstructions are scored.

A reconstruction is scored by R² against predicting each feature's mean, pictures also by SSIM and PSNR, a sensitive
column by the AUC, on records that were not given to the attack.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from vflpriv.audits.scoring.attempts import Secret
from vflpriv.audits.scoring.pictures import picture_shape, psnr, ssim
from vflpriv.audits.scoring.score import AUC, R2, Column, Figure, Score, scored
from vflpriv.audits.scoring.texts import token_score
from vflpriv.audits.statistics.resampling import (
    auc_interval,
    mean_over_records,
    ratio_over_records,
    ratios_over_records,
)
from vflpriv.common.numerics import Floats
from vflpriv.common.seeds import derive, host_generator
from vflpriv.core.attack import FeatureAttack, FeatureAuxiliary, Guess, KnownModel, OtherPeople, PublishedEncoder
from vflpriv.core.views import View

__all__ = ["NOTHING_TO_SCORE", "NO_COLUMN", "Features", "attribute_score", "feature_score", "sensitive"]

_COLUMN_DRAWS = 400
"""Bootstrap draws for the interval of one feature."""
_SHOWN = 8
"""Records whose pictures are shown."""
NO_COLUMN = "needs a sensitive column; none is named"
NOTHING_TO_SCORE = "no guess to score: what is known of the records that it guesses about is the same for all"


@dataclass(frozen=True, eq=False, kw_only=True)
class Features(Secret):
    """The features of device `victim`, or a sensitive column of them.

    `blocks` holds devices' rows (N, …); they reach an attack only as its `FeatureAuxiliary`: `known` records drawn at
    random, for each training others, and of these only what the attack declares to know. `records` are those whose rows
    at the victim are known here, None if all are: no other is told or scored. `attribute` is a column of the victim's
    block: the sensitive attribute is whether its value lies above the middle of the column's range. Of a block of texts
    it is a token: the sensitive attribute is whether the text has it.
    """

    blocks: Mapping[int, Tensor]
    victim: int
    known: int
    attribute: int | None = None
    records: Tensor | None = None
    models: Mapping[int, KnownModel] = field(default_factory=dict)
    published: Mapping[int, PublishedEncoder] = field(default_factory=dict)
    others: OtherPeople | None = None
    noise_std: float = 0.0

    nothing_to_score: ClassVar[str] = NOTHING_TO_SCORE

    @property
    def attacked_device(self) -> int:
        return self.victim

    def auxiliary(self, attack: FeatureAttack, r: int) -> FeatureAuxiliary:
        truth = self._block
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
            attribute=self._column.index_select(0, chosen) if "attribute" in attack.knows else None,
            models={m: model.replica(r) for m, model in self.models.items()} if "model" in attack.knows else {},
            published=self.published if "published" in attack.knows else {},
            others=self._others(r) if "others" in attack.knows else None,
            noise_std=self.noise_std,
            seed=derive(self.seed, "attack", r) >> 1,
            defences=self.defences,
        )

    def _others(self, r: int) -> OtherPeople | None:
        """The adversary's own training from the first parameters of the r-th one."""
        return None if self.others is None else replace(self.others, view=self.others.view.replica(r))

    def refusal(self, attack: FeatureAttack, view: View, auxiliaries: Sequence[FeatureAuxiliary]) -> str | None:
        if attack.target == "attribute" and self.attribute is None:
            return NO_COLUMN
        refusals = (attack.refusal(view.replica(r), auxiliary) for r, auxiliary in enumerate(auxiliaries))
        return next((refusal for refusal in refusals if refusal is not None), None)

    def score(
        self, attack: FeatureAttack, guess: Guess, blind: Guess | None, auxiliary: FeatureAuxiliary, r: int
    ) -> Score | None:
        known, truth = self._unscored(auxiliary), self._column if attack.target == "attribute" else self._block
        # Only recordings hold so little that nothing may be left to score, and to look costs a wait for the device.
        if self.tolerant and not _vary(truth.index_select(0, guess.records[_scored(guess.records, known)])):
            return None
        score = _SCORES[attack.target]
        return score(guess, truth, known=known, confidence=self.confidence, blind=blind, seed=r)

    def pictures(self, guess: Guess, auxiliary: FeatureAuxiliary) -> Tensor | None:
        """Originals and reconstructions of the first scored records; None where the block holds no pictures."""
        truth, shape = self._block, picture_shape(self._block)
        if shape is None or guess.values.dim() == 2:
            return None
        rows = _scored(guess.records, self._unscored(auxiliary)).nonzero().flatten()[:_SHOWN]
        guessed = guess.values[0].index_select(0, rows).to(truth).clamp(0, 1)
        real = truth.index_select(0, guess.records.index_select(0, rows)).flatten(1)
        return torch.stack((real, guessed)).reshape(2, len(rows), *shape).cpu()

    @property
    def _block(self) -> Tensor:
        """The victim's block."""
        return self.blocks[self.victim]

    @cached_property
    def _column(self) -> Tensor:
        """The sensitive column as (N,) of 0 and 1."""
        return sensitive(self._block, self.attribute or 0)

    def _unscored(self, auxiliary: FeatureAuxiliary) -> Tensor:
        """The records that were given to the attack, or whose rows are not known."""
        if self.records is None:
            return auxiliary.records
        unknown = torch.ones(len(self._block), dtype=torch.bool)
        unknown[self.records] = False
        return torch.cat((auxiliary.records, unknown.nonzero().flatten().to(auxiliary.records.device)))


def sensitive(block: Tensor, column: int) -> Tensor:
    """(N,) of 0 and 1: whether a value lies above the middle of the column's range, or a text has this token."""
    if not block.is_floating_point():
        return torch.eq(block, column).any(1).long()
    values = block.flatten(1)[:, column]
    return (values > (values.min() + values.max()) / 2).long()


def feature_score(
    guess: Guess, truth: Tensor, *, known: Tensor, confidence: float, blind: Guess | None = None, seed: int = 0
) -> Score:
    """Replica 0's reconstruction against the victim's block (N, …), on records that were not given to the attack.

    Blocks of pictures (`picture_shape`) are compared by SSIM and PSNR, too.
    """
    rows = _scored(guess.records, known)
    records = guess.records[rows].to(truth.device)
    real = truth.index_select(0, records).flatten(1).to(torch.float64)
    guessed = guess.values[0][rows].to(real)
    varies = (real != real[:1]).any(0)
    errors, spread = (guessed - real).square(), (real - real.mean(0)).square() * varies
    unexplained, low, high = ratio_over_records(_sums(errors), _sums(spread), confidence=confidence, seed=seed)
    figures, numbers = {}, {"error": float(errors.mean()), "mean_error": float(spread.mean())}
    shape = picture_shape(truth)
    if shape is not None:
        ours, theirs = (x.clamp(0, 1).unflatten(1, shape) for x in (guessed, real))
        similarity = ssim(ours, theirs).cpu().numpy()
        figures["ssim"] = Figure(*mean_over_records(similarity, confidence=confidence, seed=seed))
        numbers["psnr"] = psnr(float((ours - theirs).square().mean()))
    return scored(
        R2,
        (1 - unexplained, 1 - high, 1 - low),
        chance=0.0,
        blind=None if blind is None else _blind_r2(blind, truth, records, real, spread),
        guesses=len(records),
        figures=figures,
        numbers=numbers,
        columns=_columns(errors, spread, confidence, seed),
    )


def attribute_score(
    guess: Guess, truth: Tensor, *, known: Tensor, confidence: float, blind: Guess | None = None, seed: int = 0
) -> Score:
    """Replica 0's scores against the sensitive column (N,) of 0 and 1, on records that were not given to the attack."""
    del seed  # the interval draws nothing
    rows = _scored(guess.records, known)
    records, scores = guess.records[rows].to(truth.device), guess.values[0][rows].to(truth.device)
    ones = truth.index_select(0, records) == 1
    blind_auc = None
    if blind is not None:
        table = torch.zeros(len(truth), dtype=blind.values.dtype, device=truth.device)
        table[blind.records.to(truth.device)] = blind.values[0].to(truth.device)
        blind_scores = table.index_select(0, records)
        blind_auc = auc_interval(blind_scores[~ones], blind_scores[ones], confidence)[0]
    success = auc_interval(scores[~ones], scores[ones], confidence)
    return scored(AUC, success, chance=0.5, blind=blind_auc, guesses=len(records))


_SCORES = {"features": feature_score, "attribute": attribute_score, "tokens": token_score}
"""How guesses are scored, by the attack's target."""


def _columns(errors: Tensor, spread: Tensor, confidence: float, seed: int) -> tuple[Column, ...]:
    """Every feature by itself, from squared errors (n, d) and squared distances from the mean."""
    above, below = errors.cpu().numpy(), spread.cpu().numpy()
    ratios = ratios_over_records(above, below, confidence=confidence, seed=seed, draws=_COLUMN_DRAWS)
    means = above.mean(0).tolist(), below.mean(0).tolist()
    return tuple(
        Column(error=error, mean_error=mean, r2=Figure(1 - unexplained, 1 - high, 1 - low) if mean > 0 else None)
        for error, mean, unexplained, low, high in zip(*means, *(x.tolist() for x in ratios), strict=True)
    )


def _vary(rows: Tensor) -> bool:
    """Whether not all rows are the same."""
    return bool((rows != rows[:1]).any())


def _scored(records: Tensor, known: Tensor) -> Tensor:
    """Which guesses count: those about records that were not given to the attack."""
    return ~torch.isin(records, known.to(records.device))


def _sums(values: Tensor) -> Floats:
    return np.asarray(values.sum(1).cpu().numpy(), dtype=np.float64)


def _blind_r2(blind: Guess, truth: Tensor, records: Tensor, real: Tensor, spread: Tensor) -> float:
    """R² of the adversary without the protocol, on the same records; records it does not name are given the mean."""
    table = real.mean(0).repeat(len(truth), 1)
    table[blind.records.to(truth.device)] = blind.values[0].to(real)
    errors = (table.index_select(0, records) - real).square()
    return 1 - float(errors.sum() / spread.sum().clamp(min=1e-300))
