"""Base of membership attacks: the predictions of candidates that they read, and the log-odds of these."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import torch
from torch import Tensor

from vflpriv.core.attack import Guess, MembershipAuxiliary
from vflpriv.core.views import View

__all__ = ["MembershipInference", "ShadowInference", "log_odds"]


class MembershipInference(ABC):
    """Base of attacks on membership. A subclass names what it lacks (`missing`) and scores candidates (`scores`)."""

    name: ClassVar[str]
    summary: ClassVar[str]
    target: ClassVar[str] = "membership"
    needs: ClassVar[frozenset[str]] = frozenset({"predictions"})
    knows: ClassVar[frozenset[str]]
    heavy: ClassVar[bool] = False

    def refusal(self, view: View, auxiliary: MembershipAuxiliary) -> str | None:
        if _asked(view) is None:
            return "needs predictions of candidates, and which candidate each belongs to"
        missing = self.missing(auxiliary)
        return None if missing is None else f"needs {missing}"

    @abstractmethod
    def missing(self, auxiliary: MembershipAuxiliary) -> str | None:
        """What the attack needs and is not told, or None."""

    def run(self, view: View, auxiliary: MembershipAuxiliary) -> Guess:
        answer = _asked(view)
        assert answer is not None
        candidates, confidences = answer
        labels = auxiliary.labels.index_select(0, candidates)
        scores = self.guessed(log_odds(confidences[0].double(), labels), candidates, auxiliary, view.classes)
        return Guess(candidates, scores.unsqueeze(0))

    @abstractmethod
    def guessed(self, odds: Tensor, candidates: Tensor, auxiliary: MembershipAuxiliary, classes: int) -> Tensor:
        """Scores (n,) of these candidates from the log-odds of their labels."""

    def blind(self, view: View, auxiliary: MembershipAuxiliary) -> Guess | None:
        """None: without predictions an adversary knows nothing of a coin."""
        del view, auxiliary
        return None


class ShadowInference(MembershipInference):
    """Base of attacks that hold a candidate's prediction against those of models that the adversary trained itself.

    It is told the labels and given shadow models, so that its adversary holds all devices' rows of the candidates and
    of all other records, and knows the engine and its settings: more than any party of a vertical training holds, and
    no more than differential privacy allows for. It is told no candidate's membership. A subclass says how it `scores`.
    """

    knows: ClassVar[frozenset[str]] = frozenset({"labels", "shadows"})
    least_models: ClassVar[int]
    """The fewest shadow models that it can do with."""

    def missing(self, auxiliary: MembershipAuxiliary) -> str | None:
        if auxiliary.shadows is None:
            return "shadow models: its adversary trains the same system again, with other candidates left out"
        models = len(auxiliary.shadows.members)
        return None if models >= self.least_models else f"at least {self.least_models} shadow models, not {models}"

    def guessed(self, odds: Tensor, candidates: Tensor, auxiliary: MembershipAuxiliary, classes: int) -> Tensor:
        shadows, labels = auxiliary.shadows, auxiliary.labels.index_select(0, candidates)
        assert shadows is not None
        confidences = shadows.confidences.index_select(1, candidates)
        members = shadows.members.index_select(1, candidates)
        return self.scores(odds, log_odds(confidences.double(), labels), members)

    @abstractmethod
    def scores(self, odds: Tensor, shadows: Tensor, members: Tensor) -> Tensor:
        """Scores (n,) from log-odds (n,) of the attacked model and (models, n) of the shadow models.

        `members` (models, n) says which candidates each shadow model was trained on.
        """


def _asked(view: View) -> tuple[Tensor, Tensor] | None:
    """The candidates that were asked about, and their confidences; None where no message names candidates."""
    messages = view.of_kind("predictions")
    return next(((m.records, m.tensors["confidences"]) for m in messages if m.records is not None), None)


def log_odds(confidences: Tensor, labels: Tensor) -> Tensor:
    """ln p_y - ln Σ of the other classes, (…, n), of class probabilities (…, n, classes).

    It is exact where 1 - p_y would round to zero.
    """
    right = torch.nn.functional.one_hot(labels, confidences.shape[-1]).bool()
    own = confidences.masked_fill(~right, 0).sum(-1)
    others = confidences.masked_fill(right, 0).sum(-1)
    return (own.clamp(min=1e-300) / others.clamp(min=1e-300)).log()
