"""Attacks on features as words: what such an attack knows and returns. It sees a view, never an engine or the truth."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from vflpriv.views import View

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["AttributeGuess", "FeatureAttack", "FeatureAuxiliary", "FeatureGuess", "KnownModel"]


@dataclass(frozen=True, eq=False, kw_only=True)
class KnownModel:
    """Another device's model in the hands of someone who knows it: a white box.

    `apply` computes what the device would send but for the noise, (R, B, …), from parameters (R, …) and rows (B, d) or
    (R, B, d). `rounds` holds the parameters as they were before each round, and after the last.
    """

    apply: Callable[[Mapping[str, Tensor], Tensor], Tensor]
    rounds: Mapping[int, Mapping[str, Tensor]]

    def replica(self, r: int) -> KnownModel:
        """One replica's."""
        rounds = {t: {n: v[r : r + 1] for n, v in one.items()} for t, one in self.rounds.items()}
        return KnownModel(apply=self.apply, rounds=rounds)


@dataclass(frozen=True, eq=False, kw_only=True)
class FeatureAuxiliary:
    """What an adversary after one device's features knows from elsewhere; only what its attack declares is there.

    `records` are a few records whose rows `blocks[m]`, (n, d), at each device, or whose sensitive column `attribute`,
    (n,) of 0 and 1, it knows; they are counted, and are not among those its success is scored on. `models` are the
    white boxes, by device. That a system noises its uplinks, and by how much (`noise_std`), is public.
    """

    victim: int
    records: Tensor
    blocks: Mapping[int, Tensor]
    attribute: Tensor | None = None
    models: Mapping[int, KnownModel] = field(default_factory=dict)
    noise_std: float = 0.0
    seed: int = 0

    @property
    def block(self) -> Tensor:
        """The victim's rows of the known records."""
        return self.blocks[self.victim]


@dataclass(frozen=True, eq=False, kw_only=True)
class FeatureGuess:
    """For each replica, the victim's rows of the records the attack speaks of: (R, n, d) for records (n,)."""

    device: int
    records: Tensor
    blocks: Tensor


@dataclass(frozen=True, eq=False, kw_only=True)
class AttributeGuess:
    """For each replica and record, (R, n): the higher, the surer that the sensitive column of `device` is 1."""

    device: int
    records: Tensor
    scores: Tensor


class FeatureAttack(Protocol):
    """One way to learn a device's features, or one sensitive column of them."""

    name: str
    summary: str
    target: str
    """`features`, answered by a `FeatureGuess`, or `attribute`, by an `AttributeGuess`."""
    needs: frozenset[str]
    """The kinds of messages it reads."""
    knows: frozenset[str]
    """Of `records`, `attribute` and `model`: what it must be told."""
    heavy: bool
    """Whether it trains models of its own, so that it is tried only where it is asked for."""

    def refusal(self, view: View, auxiliary: FeatureAuxiliary) -> str | None:
        """Why it cannot be tried on this view with this knowledge, or None."""
        ...

    def run(self, view: View, auxiliary: FeatureAuxiliary) -> FeatureGuess | AttributeGuess:
        """Try it."""
        ...

    def blind(self, view: View, auxiliary: FeatureAuxiliary) -> FeatureGuess | AttributeGuess | None:
        """What the same adversary guesses without the protocol, from `View.silent`; None if it knows no better than
        the mean."""
        ...
