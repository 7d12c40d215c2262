"""What attacks on features share: defaults of the declarations, and what an adversary says of features by itself."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import torch
from torch import Tensor

from vflpriv.attacks._decoder import decode
from vflpriv.core.attack import AttributeGuess, FeatureAuxiliary, FeatureGuess
from vflpriv.core.views import View

__all__ = ["FeatureInference", "own_features"]


class FeatureInference(ABC):
    """An attack on one device's features. A variant says what it misses in a view, and how it guesses."""

    name: ClassVar[str]
    summary: ClassVar[str]
    needs: ClassVar[frozenset[str]]
    knows: ClassVar[frozenset[str]]
    target: ClassVar[str] = "features"
    auxiliary: ClassVar[bool] = True
    heavy: ClassVar[bool] = False

    def refusal(self, view: View, auxiliary: FeatureAuxiliary) -> str | None:
        if not view.adversary.knows_batches:
            return "needs to know which record a message belongs to"
        if auxiliary.victim in view.own:
            return f"needs a victim other than itself; device {auxiliary.victim} is the adversary's own"
        missing = self.missing(view, auxiliary)
        return None if missing is None else f"needs {missing}"

    @abstractmethod
    def missing(self, view: View, auxiliary: FeatureAuxiliary) -> str | None:
        """What it needs and does not find, or None."""

    @abstractmethod
    def run(self, view: View, auxiliary: FeatureAuxiliary) -> FeatureGuess | AttributeGuess: ...

    def blind(self, view: View, auxiliary: FeatureAuxiliary) -> FeatureGuess | AttributeGuess | None:
        """From its own features and the records it knows; without either it can only say the mean."""
        if not view.own or len(auxiliary.records) < 3:
            return None
        rows = own_features(view)
        made = decode(rows.index_select(0, auxiliary.records), auxiliary.block, rows)
        everyone = torch.arange(len(rows), device=rows.device)
        return FeatureGuess(device=auxiliary.victim, records=everyone, blocks=made.unsqueeze(0))


def own_features(view: View) -> Tensor:
    """(N, …) the adversary's own blocks side by side."""
    return torch.cat([own.features.flatten(1).to(torch.float32) for own in view.own.values()], dim=1)
