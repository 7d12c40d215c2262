"""Coins of canaries in a recorded training, guessed by attacks on labels: which of two labels does an attack name?"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from vflpriv.attempts import LabelGuess
from vflpriv.audits._one_run_bound import Guesses
from vflpriv.audits.one_run import OneRun
from vflpriv.canaries import Canaries
from vflpriv.views import Adversary

__all__ = ["guess_coins"]

_LEAST = 20
_ASSUMPTIONS = (
    "each canary's label was decided by a fair coin of its own, independent of all others, before training",
    "each record holds at most one canary",
    "the attack and the view were chosen by canaries set aside, which are not counted; all others are guessed about",
    "attacks read the view and labels that are told, never a canary's",
)


def guess_coins(canaries: Canaries, guesses: Mapping[Adversary, Mapping[str, LabelGuess]]) -> OneRun | None:
    """One test from the attacks of several views; None with fewer than 20 canaries.

    Every tenth canary, at least 10, is set aside, and the attack and view that guess most of their coins are taken for
    the rest. A label that is neither of a canary's two counts for world 0: all are guessed about, so that how many was
    fixed before any coin was seen.
    """
    worlds: NDArray[np.int64] = canaries.worlds[0].cpu().numpy()
    if len(worlds) < _LEAST:
        return None
    aside = max(10, len(worlds) // 10)
    scores = {(a, name): _scores(canaries, g) for a, named in guesses.items() for name, g in named.items()}
    right = {key: (s > 0) == (worlds == 0) for key, s in scores.items()}
    (adversary, attack), found = max(right.items(), key=lambda item: int(item[1][:aside].sum()))
    rest = len(worlds) - aside
    return OneRun(
        adversary=adversary,
        scores=scores[adversary, attack],
        worlds=worlds,
        set_aside=aside,
        guesses=Guesses(canaries=rest, made=rest, right=int(found[aside:].sum())),
        curve=False,
        how=f"{attack} on one recorded training",
        assumptions=_ASSUMPTIONS,
    )


def _scores(canaries: Canaries, guess: LabelGuess) -> NDArray[np.float64]:
    """Minus one where the attack names a canary's label of world 1, plus one elsewhere."""
    named = dict(zip(guess.records.tolist(), guess.labels[0].tolist(), strict=True))
    second = canaries.labels[:, 1].tolist()
    return np.array([-1.0 if named.get(r) == y else 1.0 for r, y in zip(canaries.records, second, strict=True)])
