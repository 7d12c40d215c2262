"""Attacks on the targets of a regression: how many are found, and how many a constant would find."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from torch import Tensor

from vflpriv.audits.scoring.labels import Attempt, Score, label_success
from vflpriv.common.numerics import Floats
from vflpriv.common.seeds import host_generator
from vflpriv.core.attack import TargetAttack
from vflpriv.core.views import View

__all__ = ["attempt_targets"]

_CLOSE = 0.01
"""A target is found if the guess is off by at most this share of the targets' standard deviation."""
_KNOWN = 4
"""Targets that an attack is told, which give it the constant that it lacks; they are not scored."""


def attempt_targets(attack: TargetAttack, view: View, targets: Tensor, *, seed: int, confidence: float) -> Attempt:
    """Try an attack on the targets (N,), NaN where unknown; its success is the share of those that it finds."""
    attempt = Attempt(attack=attack.name, target="targets", adversary=view.adversary, refusal=attack.refusal(view))
    if attempt.refusal is not None:
        return attempt
    guess = attack.run_targets(view)
    truth, values = targets[guess.records].numpy(), guess.targets[0].numpy()
    known = np.flatnonzero(np.isfinite(truth))
    told, asked = np.split(host_generator(seed, "auxiliary").permutation(known), [_KNOWN])
    if not len(asked):
        return replace(attempt, refusal=f"needs more than {_KNOWN} recorded targets")
    constant = float(np.median(truth[told] - values[told]))
    distance = _CLOSE * float(np.std(truth[known]))
    right = np.abs(values[asked] + constant - truth[asked]) <= distance
    score = Score(
        success=float(right.mean()), chance=_best_constant(truth[asked], distance), blind=None, guesses=len(asked)
    )
    return replace(attempt, success=label_success(score, confidence=confidence))


def _best_constant(truth: Floats, distance: float) -> float:
    """The largest share of targets that lie within this distance of one number.

    >>> _best_constant(np.array([0.0, 1.0, 1.1, 5.0]), 0.1)
    0.5
    """
    ordered = np.sort(truth)
    within = np.searchsorted(ordered, ordered + 2 * distance, side="right") - np.arange(len(ordered))
    return float(within.max() / len(ordered))
