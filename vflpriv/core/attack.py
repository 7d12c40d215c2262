"""Attacks as words: what an attack needs and is told, what it returns. It sees a view, never an engine or the truth."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

import torch

from vflpriv.common.seeds import host_generator
from vflpriv.core.data import VerticalData
from vflpriv.core.views import View

if TYPE_CHECKING:
    from torch import Tensor

__all__ = [
    "Attack",
    "AttributeGuess",
    "Auxiliary",
    "Candidates",
    "Conduct",
    "FeatureAttack",
    "FeatureAuxiliary",
    "FeatureGuess",
    "Forgery",
    "KnownModel",
    "LabelGuess",
    "MembershipAttack",
    "MembershipAuxiliary",
    "MembershipGuess",
]

Forgery = Callable[[int, "Tensor", Mapping[str, "Tensor"]], Mapping[str, "Tensor"]]
"""What to send instead, from the round, the batch's record ids and what an honest device would send."""


@dataclass(frozen=True, kw_only=True)
class Conduct:
    """What a dishonest device does otherwise: it sends something else, or scales its own steps up, or both.

    `gain` is γ of the malicious optimiser of Fu et al. 2022; 0 leaves the steps as they are.
    """

    name: str
    forge: Forgery | None = None
    gain: float = 0.0


# Attacks as words: what an attack needs and is told, what it returns. It sees a view, never an engine or the truth.


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


# Attacks on features as words: what such an attack knows and returns. It sees a view, never an engine or the truth.


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


# Membership as words: candidates of which one half was trained on, what an attack is told of them, what it returns.


@dataclass(frozen=True, eq=False, kw_only=True)
class Candidates:
    """Pairs of records, (pairs, 2), and a fair coin for each pair and replica: which of the two was trained on.

    Candidates are numbered 0 to 2·pairs - 1: the first of all pairs, then the second of all pairs. All others of the
    data are trained on in any case. Two coins that differ in one pair are neighbours in the unit *record*.
    """

    pairs: Tensor
    coins: Tensor

    @classmethod
    def draw(cls, records: int, pairs: int, *, replicas: Sequence[int], seed: int) -> Candidates:
        """As many pairs as asked for, but at most half of the records; the same in every replica, but for the coins."""
        count = min(pairs, records // 2)
        chosen = host_generator(seed, "canary").permutation(records)[: 2 * count].reshape(count, 2)
        coins = [host_generator(seed, "canary", 1 + r).integers(0, 2, count) for r in replicas]
        return cls(pairs=torch.from_numpy(chosen), coins=torch.stack([torch.from_numpy(c) for c in coins]))

    @property
    def records(self) -> Tensor:
        """The candidates' places in the data, by their numbers."""
        return self.pairs.T.flatten()

    def members(self, r: int) -> Tensor:
        """(2·pairs,) whether each candidate was trained on in the r-th replica."""
        coin = self.coins[r] == 1
        return torch.cat((~coin, coin))

    def into(self, data: VerticalData) -> VerticalData:
        """What is trained on: a slot for each pair, with another of its two records by replica, then all others."""
        device = data.labels.device
        pairs, coins = self.pairs.to(device), self.coins.to(device)
        others = torch.ones(data.records, dtype=torch.bool, device=device)
        others[pairs.flatten()] = False
        rows = torch.cat((pairs[:, 0], others.nonzero().flatten()))
        chosen = torch.where(coins == 1, pairs[:, 1], pairs[:, 0])
        kept = replace(data, blocks=tuple(block[rows] for block in data.blocks), labels=data.labels[rows])
        blocks = {m: block[chosen] for m, block in enumerate(data.blocks)}
        return kept.override(range(len(pairs)), labels=data.labels[chosen], blocks=blocks)


@dataclass(frozen=True, eq=False, kw_only=True)
class MembershipAuxiliary:
    """What the adversary knows from elsewhere: every candidate's label, and of a few candidates whether they were
    trained on (`members`, (n,) of 0 and 1, of the candidates `records`). These few are not scored."""

    labels: Tensor
    records: Tensor
    members: Tensor


@dataclass(frozen=True, eq=False, kw_only=True)
class MembershipGuess:
    """For each replica and candidate, (R, n): the higher, the surer that it was trained on; above 0 it says so."""

    records: Tensor
    scores: Tensor


class MembershipAttack(Protocol):
    """One way to tell what a model was trained on."""

    name: str
    summary: str
    target: str
    """`membership`."""
    needs: frozenset[str]
    knows: frozenset[str]
    heavy: bool

    def refusal(self, view: View, auxiliary: MembershipAuxiliary) -> str | None:
        """Why it cannot be tried on this view, or None."""
        ...

    def run(self, view: View, auxiliary: MembershipAuxiliary) -> MembershipGuess:
        """Try it."""
        ...
