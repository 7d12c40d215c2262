"""Attacks as words: what an attack needs and is told, what it returns. It sees a view, never an engine or the truth."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from vflpriv.conducts import Conduct
from vflpriv.views import View

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Attack", "Auxiliary", "LabelGuess"]


@dataclass(frozen=True, eq=False, kw_only=True)
class Auxiliary:
    """What the adversary knows from elsewhere: the labels of a few records, and a seed for its own coins.

    The records are counted, and are not among those its success is scored on.
    """

    records: Tensor
    labels: Tensor
    seed: int = 0


@dataclass(frozen=True, eq=False)
class LabelGuess:
    """For each replica, a guessed label of each record the attack speaks of: (R, n) for records (n,).

    With two classes an attack may add `scores`, (R, n), the higher the surer that the label is 1.
    """

    records: Tensor
    labels: Tensor
    scores: Tensor | None = None


class Attack(Protocol):
    """One way to learn what should stay private."""

    name: str
    summary: str
    target: str
    needs: frozenset[str]
    """The kinds of messages it reads; `own-model` stands for the adversary's trained model."""
    auxiliary: bool
    """Whether it is given the labels of a few records."""
    conduct: Conduct | None
    """How its devices depart from the protocol, if they do."""
    heavy: bool
    """Whether it trains models of its own, so that it is tried only where it is asked for."""

    def refusal(self, view: View) -> str | None:
        """Why it cannot be tried on this view, or None."""
        ...

    def run(self, view: View, auxiliary: Auxiliary) -> LabelGuess:
        """Try it."""
        ...

    def blind(self, view: View, auxiliary: Auxiliary) -> LabelGuess | None:
        """What the same adversary guesses without the protocol, from `View.silent`; None if it can only guess blindly.

        What the protocol leaks is what `run` reaches beyond this.
        """
        ...
