"""Attacks as words: what an attack needs, what it returns. It sees a view, never an engine and never the truth."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from vflpriv.views import View

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Attack", "LabelGuess"]


@dataclass(frozen=True, eq=False)
class LabelGuess:
    """For each replica, a guessed label of each record the attack speaks of: (R, n) for records (n,)."""

    records: Tensor
    labels: Tensor


class Attack(Protocol):
    """One way to learn what should stay private."""

    name: str
    summary: str
    target: str
    needs: frozenset[str]
    """The kinds of messages it reads; one of them is enough."""

    def refusal(self, view: View) -> str | None:
        """Why it cannot be tried on this view, or None."""
        ...

    def run(self, view: View) -> LabelGuess:
        """Try it."""
        ...
