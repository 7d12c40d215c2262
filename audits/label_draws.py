"""How much noised labels tell of a label: draws of the same label noise in two worlds, of one label or of another.

Whatever a training sends depends on a label through its noised label alone (the wire audit tests that), so that nobody
can tell more than whoever reads the noised label itself. No training is needed for that, and a draw costs next to
nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from vflpriv.audits.statistics.bounds import clopper_pearson_upper
from vflpriv.core.systems import System
from vflpriv.training.mechanisms.labels import NoisedBefore

__all__ = ["LabelDraws", "epsilon_of_scores", "label_draws"]

_TOGETHER = 200
"""Trainings whose labels are drawn at once."""
_DECIMALS = 4
"""Of scores: what the last bits of noise tell beside is the matter of the float audit."""
_LEVELS = 64
"""Thresholds of which the best is taken, at most."""


@dataclass(frozen=True, kw_only=True)
class LabelDraws:
    """A lower bound on the ε of one label, from so many draws in each world, half of which chose the threshold."""

    epsilon_lower: float
    draws: int


def label_draws(system: System, *, trials: int, confidence: float) -> LabelDraws | None:
    """Draw the labels of so many trainings in each world; None where labels are not noised before training.

    All records have the label 0 in one world and 1 in the other. A draw's score is how much likelier the first is.
    """
    if not isinstance(getattr(system.settings, "label_mechanism", None), NoisedBefore) or system.classes < 2:
        return None
    scores = [_scores(system, label, range(label * trials, (label + 1) * trials)) for label in (0, 1)]
    return LabelDraws(epsilon_lower=epsilon_of_scores(scores, confidence), draws=len(scores[0]))


def epsilon_of_scores(scores: Sequence[torch.Tensor], confidence: float) -> float:
    """A lower bound on ε from as many scores in either world: the first half chooses a threshold, the rest counts."""
    half = len(scores[0]) // 2
    threshold = max(_levels(scores[0][:half]), key=lambda t: _epsilon(t, [s[:half] for s in scores], confidence))
    return max(0.0, _epsilon(threshold, [s[half:] for s in scores], confidence))


def _scores(system: System, label: int, replicas: range) -> torch.Tensor:
    """(draws,) log-likelihood ratios of label 0 against label 1, of labels that are all `label`."""
    data = replace(system.data, labels=torch.full_like(system.data.labels, label))
    parts = []
    for first in range(replicas.start, replicas.stop, _TOGETHER):
        engine = system.train(range(first, min(first + _TOGETHER, replicas.stop)), data=data)
        evidence = engine.data.replica_evidence
        if evidence is None:
            drawn = engine.data.labels_of(torch.arange(data.records, device=system.torch_device))
            evidence = torch.nn.functional.one_hot(drawn, system.classes)
        parts.append((evidence[..., 0] - evidence[..., 1]).flatten().double().cpu())
    return torch.cat(parts).round(decimals=_DECIMALS)


def _levels(scores: torch.Tensor) -> list[float]:
    """Values that some scores reach."""
    distinct = scores.unique()
    chosen = torch.linspace(0, len(distinct) - 1, min(_LEVELS, len(distinct))).round().long()
    return [float(level) for level in distinct[chosen]]


def _epsilon(threshold: float, scores: list[torch.Tensor], confidence: float) -> float:
    """A lower bound on log P[score ≥ threshold | 0] / P[score ≥ threshold | 1], each rate by Clopper and Pearson."""
    alpha = (1 - confidence) / 2
    number = len(scores[0])
    above = [int((of_world >= threshold).sum()) for of_world in scores]
    least = 1 - clopper_pearson_upper(number - above[0], number, alpha)
    most = clopper_pearson_upper(above[1], number, alpha)
    return math.log(least / most) if least > 0 else -math.inf
