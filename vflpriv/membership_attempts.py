"""Membership as words: candidates of which one half was trained on, what an attack is told of them, what it returns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

import torch

from vflpriv.data import VerticalData
from vflpriv.seeds import host_generator
from vflpriv.views import View

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Candidates", "MembershipAttack", "MembershipAuxiliary", "MembershipGuess"]


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
