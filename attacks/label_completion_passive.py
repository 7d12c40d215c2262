"""Passive model completion (Fu et al. 2022): a trained bottom already knows the labels; a few of them give the rest."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import torch

from vflpriv.attacks._base import LabelAttack
from vflpriv.attacks._mixmatch import Bottom, Completion, complete
from vflpriv.attempts import Auxiliary, LabelGuess
from vflpriv.registry import register
from vflpriv.views import View

__all__ = ["LabelCompletionPassive"]


@register("attack")
class LabelCompletionPassive(LabelAttack):
    """The device puts a head on the bottom it trained honestly, and trains both on a few labels and all its records.

    Colluding devices put one head on all their bottoms. Without the protocol the same adversary begins with the bottom
    as it was before the first round.
    """

    name = "label_completion_passive"
    summary = "completes the trained bottom with a head, from a few labels and many records"
    needs = frozenset({"own-model"})
    auxiliary = True
    heavy = True
    completion: ClassVar[Completion] = Completion()

    def missing(self, view: View) -> str | None:
        return None if view.own else "a model of its own; this adversary trains none"

    def run(self, view: View, auxiliary: Auxiliary) -> LabelGuess:
        return self._guess(view, auxiliary, self.completion)

    def blind(self, view: View, auxiliary: Auxiliary) -> LabelGuess | None:
        """A bottom that nobody trained holds nothing to be kept: it learns as fast as the head."""
        return self._guess(view, auxiliary, replace(self.completion, tuning=1.0))

    def _guess(self, view: View, auxiliary: Auxiliary, how: Completion) -> LabelGuess:
        own = view.own.values()
        bottoms = [Bottom(features=b.features, apply=b.apply, parameters=b.trained) for b in own]
        chances = complete(bottoms, auxiliary, view.classes, how)
        return LabelGuess(torch.arange(len(chances), device=chances.device), chances.argmax(-1).unsqueeze(0))
