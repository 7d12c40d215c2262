"""A search of several replicas at once, each of which stops when its steps no longer help."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import torch
from torch import Tensor

__all__ = ["Search"]

_CHECK = 20
_LEAST_GAIN = 0.01
"""A replica stops where its error fell by a smaller share than this since the last check."""


class Search(ABC):
    """Moves its values step by step. What it finds of a replica does not depend on how many there are."""

    steps: ClassVar[int] = 200
    """The most steps that a replica takes."""

    def found(self, like: Tensor) -> Tensor:
        """(R, …) what each replica found when it stopped, in a tensor like this one."""
        results = torch.zeros_like(like)
        active = torch.arange(len(results), device=results.device)
        before = torch.full((len(results),), torch.inf, device=results.device)
        for step in range(self.steps):
            if step % _CHECK == 0:
                errors = self._errors()
                going = errors < (1 - _LEAST_GAIN) * before
                if not bool(going.all()):
                    results[active] = self._answer()
                    active, before, errors = active[going], before[going], errors[going]
                    self._keep(going.nonzero().flatten())
                    if not len(active):
                        return results
                before = errors
            self._step()
        results[active] = self._answer()
        return results

    @abstractmethod
    def _errors(self) -> Tensor:
        """(R,) how far off each replica that is still searching is."""

    @abstractmethod
    def _answer(self) -> Tensor:
        """(R, …) what these replicas have found by now."""

    @abstractmethod
    def _keep(self, kept: Tensor) -> None:
        """Go on with some of the replicas."""

    @abstractmethod
    def _step(self) -> None:
        """One step of all replicas that are still searching."""
