"""Guessed texts against the true ones: the share of right tokens, of whole texts, and what they have in common."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from vflpriv.audits.scoring.score import TOKENS, Figure, Score, scored
from vflpriv.audits.statistics.bounds import interval
from vflpriv.common.lazy import stats
from vflpriv.common.numerics import Floats
from vflpriv.core.attack import Guess
from vflpriv.data.tokens import PADDING

__all__ = ["rouge_l", "token_score"]


def token_score(
    guess: Guess, truth: Tensor, *, known: Tensor, confidence: float, blind: Guess | None = None, seed: int = 0
) -> Score:
    """Replica 0's texts against the true token ids (N, T), on records that were not given to the attack.

    Success is the share of tokens that are right, padding left out, with an interval over texts; chance is the share of
    the commonest token. Beside it stand the share of texts of which every token is right, and the mean ROUGE-L.
    """
    del blind, seed  # no attack on texts has a baseline of its own, and the interval draws nothing
    rows = ~torch.isin(guess.records, known.to(guess.records.device))
    real = truth.index_select(0, guess.records[rows].to(truth.device)).cpu().numpy()
    guessed, present = guess.values[0][rows].cpu().numpy(), real != PADDING
    some = present.any(1)
    real, guessed, present = real[some], guessed[some], present[some]
    right, count = ((guessed == real) & present).sum(1), present.sum(1)
    tokens = np.unique(real[present], return_counts=True)[1]
    whole = int((right == count).sum())
    figures = {
        "exact": Figure(whole / len(real), *interval(whole, len(real), confidence)),
        "rouge": Figure(*_share(rouge_l(guessed, real), np.ones(len(real)), confidence)),
    }
    success = _share(right.astype(np.float64), count.astype(np.float64), confidence)
    return scored(TOKENS, success, chance=float(tokens.max() / tokens.sum()), guesses=len(real), figures=figures)


def _share(right: Floats, count: Floats, confidence: float) -> tuple[float, float, float]:
    """Σ right / Σ count over texts, with Korn and Graubard's interval ("Confidence Intervals for Proportions with Small
    Expected Number of Positive Counts Estimated from Survey Data", Survey Methodology 24, 1998).

    It is Clopper and Pearson's of as many independent tokens as have the variance that texts show; of as many as there
    are texts, where all agree.
    """
    texts, total = len(right), float(count.sum())
    value = float(right.sum()) / total
    variance = float(np.square(right - value * count).sum()) / total**2 * texts / max(1, texts - 1)
    size = min(total, value * (1 - value) / variance) if variance else float(texts)
    tail = (1 - confidence) / 2
    if texts > 1:
        size *= (stats.norm.ppf(tail) / stats.t.ppf(tail, texts - 1)) ** 2
    low = float(stats.beta.ppf(tail, value * size, size * (1 - value) + 1)) if value > 0 else 0.0
    high = float(stats.beta.ppf(1 - tail, value * size + 1, size * (1 - value))) if value < 1 else 1.0
    return value, low, high


def rouge_l(guessed: np.ndarray, real: np.ndarray) -> Floats:
    """(n,) the F-measure of the longest common subsequence of each pair of texts (n, T), padding left out.

    "ROUGE: A Package for Automatic Evaluation of Summaries", Lin, 2004, equation 4 with β = 1.

    >>> rouge_l(np.array([[5, 7, 8, 0]]), np.array([[5, 6, 7, 8]])).tolist()
    [0.8571428571428571]
    """
    matches = (guessed[:, :, None] == real[:, None, :]) & (real != PADDING)[:, None, :]
    longest = np.zeros((len(real), real.shape[1] + 1), dtype=np.int64)
    for row in matches.transpose(1, 0, 2):
        # A common subsequence ends here if both tokens agree; otherwise the longest before it goes on.
        ending = np.where(row, longest[:, :-1] + 1, longest[:, 1:])
        longest[:, 1:] = np.maximum.accumulate(ending, axis=1)
    sizes = (guessed != PADDING).sum(1) + (real != PADDING).sum(1)
    return np.asarray(2 * longest[:, -1] / np.maximum(1, sizes), dtype=np.float64)
