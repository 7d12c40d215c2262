"""Attacks on labels, features and membership: what each declares, what knowledge it is given, what it returns.

An attack is given one adversary's view and some auxiliary knowledge, never an engine or the true values. `Attack` holds
what all declare; a target then has three types: auxiliary knowledge, guess and protocol.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

from vflpriv.common.lazy import torch
from vflpriv.common.seeds import host_generator
from vflpriv.core.data import VerticalData
from vflpriv.core.views import View

if TYPE_CHECKING:
    from torch import Tensor

__all__ = [
    "NO_DEFENCE",
    "Attack",
    "AttributeGuess",
    "Auxiliary",
    "Candidates",
    "Conduct",
    "Defences",
    "FeatureAttack",
    "FeatureAuxiliary",
    "FeatureGuess",
    "Forgery",
    "KnownModel",
    "LabelAttack",
    "LabelGuess",
    "MembershipAttack",
    "MembershipAuxiliary",
    "MembershipGuess",
    "PairedAttack",
    "ShadowModels",
    "TargetAttack",
    "TargetGuess",
    "TogetherAttack",
    "adapts",
    "made_for",
    "run_and_blind",
]

NO_DEFENCE = "none"
"""The name under which a system without a defence stands in the attack matrix."""


Defences = Mapping[str, Mapping[str, Any]]
"""The strengths of each defence in force, by its name. They are public: only keys and coins are secret (Kerckhoffs)."""


class Attack(Protocol):
    """What every attack declares, whatever its target.

    An attack that was made against defences and uses what is public about them also has `adapts_to`, the names of
    these defences. Where one of them is in force it is *adaptive*, everywhere else *static*.
    """

    name: str
    summary: str
    target: str
    """`labels`, `features`, `attribute` (one sensitive column of the features) or `membership`."""
    needs: frozenset[str]
    """The kinds of messages it reads; `own-model` stands for the adversary's trained model."""
    heavy: bool
    """Whether it takes so long, for the training of models of its own, that it is tried only where it is named."""


def adapts(attack: Attack, defences: Defences) -> bool:
    """Whether an attack knows one of the defences in force, and so is adaptive."""
    known: frozenset[str] = getattr(attack, "adapts_to", frozenset())
    return not known.isdisjoint(defences)


def made_for(attack: Attack, defences: Defences) -> bool:
    """Whether an attack is worth trying unasked under these defences: it is not made against others alone."""
    return not getattr(attack, "adapts_to", ()) or adapts(attack, defences)


Forgery = Callable[[int, "Tensor", Mapping[str, "Tensor"]], Mapping[str, "Tensor"]]
"""Computes what a device sends from the round, the batch's record ids and what an honest device would send."""


@dataclass(frozen=True, kw_only=True)
class Conduct:
    """How a dishonest device departs from the protocol: it sends forged messages, scales its own steps up, or both.

    `gain` is γ of the malicious optimiser (Fu et al., "Label Inference Attacks Against Vertical Federated Learning",
    USENIX Security 2022); 0 leaves the steps as they are. `momentum` says which steps it scales: those of the paper's
    `formula`; or those of the authors' code, in which scaled steps enter the momentum (`compounding`) or, before
    PyTorch 2.0, momentum is lost (`lost`).
    """

    name: str
    forge: Forgery | None = None
    gain: float = 0.0
    momentum: Literal["formula", "compounding", "lost"] = "formula"


# Labels


@dataclass(frozen=True, eq=False, kw_only=True)
class Auxiliary:
    """What an attack on labels knows from elsewhere: the labels of a few records, and a seed for its own random draws.

    These records are counted, and are not among those its success is scored on. `asked` are records that an attack
    which guesses about a sample of the records must guess about in any case. `defences` is what is public about the
    defences in force.
    """

    records: Tensor
    labels: Tensor
    seed: int = 0
    defences: Defences = field(default_factory=dict)
    asked: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.int64))


@dataclass(frozen=True, eq=False)
class LabelGuess:
    """For each replica, the guessed labels (R, n) of the records (n,) that the attack has an answer for.

    With two classes an attack may add `scores`, (R, n), which are higher the more certain it is that the label is 1. An
    attack that guesses about a random sample of the records says which were drawn, (n,), and from how many: its success
    is then scored on these. An attack that learns from other people's labels what a label is likely to be adds
    `others`, (R, n): its guess of each label from all that it knows but what the protocol tells of this very label. It
    is a baseline of its success, since the ε of one label bounds what is gained beyond it.
    """

    records: Tensor
    labels: Tensor
    scores: Tensor | None = None
    drawn: Tensor | None = None
    population: int | None = None
    others: Tensor | None = None


class LabelAttack(Attack, Protocol):
    """An attack on the server's labels."""

    auxiliary: bool
    """Whether it is given the labels of a few records."""
    conduct: Conduct | None
    """How its devices depart from the protocol, if they do."""

    def refusal(self, view: View) -> str | None:
        """Why it cannot be tried on this view, or None."""
        ...

    def run(self, view: View, auxiliary: Auxiliary) -> LabelGuess:
        """The guess from a view."""
        ...

    def blind(self, view: View, auxiliary: Auxiliary) -> LabelGuess | None:
        """The baseline: what the same adversary guesses without the protocol, from `View.silent`; None without one.

        The protocol's leakage is the success of `run` beyond that of this guess.
        """
        ...


@dataclass(frozen=True, eq=False)
class TargetGuess:
    """For each replica, the targets (R, n) of a regression, up to one constant, of the records (n,)."""

    records: Tensor
    targets: Tensor


@runtime_checkable
class TargetAttack(LabelAttack, Protocol):
    """An attack on labels that also finds the targets of a regression."""

    def run_targets(self, view: View) -> TargetGuess:
        """The guess from a view of a regression."""
        ...


@runtime_checkable
class TogetherAttack(LabelAttack, Protocol):
    """An attack on labels that is faster on all replicas of a view at once.

    What it guesses of a replica must not depend on how many there are.
    """

    def run_together(self, view: View, auxiliaries: Sequence[Auxiliary]) -> Sequence[LabelGuess]:
        """`run` of each replica, with the auxiliary knowledge of each."""
        ...

    def blind_together(self, view: View, auxiliaries: Sequence[Auxiliary]) -> Sequence[LabelGuess | None]:
        """`blind` of each replica, with the auxiliary knowledge of each."""
        ...


@runtime_checkable
class PairedAttack(TogetherAttack, Protocol):
    """An attack on labels that is faster on a view and on what is left of it without the protocol at once."""

    def run_and_blind(
        self, view: View, auxiliaries: Sequence[Auxiliary]
    ) -> tuple[Sequence[LabelGuess], Sequence[LabelGuess | None]]:
        """`run_together` of the view, and `blind_together` of the silent view."""
        ...


def run_and_blind(
    attack: LabelAttack, view: View, auxiliaries: Sequence[Auxiliary]
) -> tuple[Sequence[LabelGuess], Sequence[LabelGuess | None]]:
    """The guess of each replica of a view, and the baseline of each: both at once if the attack can."""
    if isinstance(attack, PairedAttack):
        return attack.run_and_blind(view, auxiliaries)
    return _run_together(attack, view, auxiliaries), _blind_together(attack, view.silent(), auxiliaries)


def _run_together(attack: LabelAttack, view: View, auxiliaries: Sequence[Auxiliary]) -> Sequence[LabelGuess]:
    """The guess of each replica of a view: all at once if the attack can, else one after another."""
    if isinstance(attack, TogetherAttack):
        return attack.run_together(view, auxiliaries)
    return [attack.run(view.replica(r), auxiliary) for r, auxiliary in enumerate(auxiliaries)]


def _blind_together(attack: LabelAttack, view: View, auxiliaries: Sequence[Auxiliary]) -> Sequence[LabelGuess | None]:
    """The baseline of each replica of a silent view: all at once if the attack can, else one after another."""
    if isinstance(attack, TogetherAttack):
        return attack.blind_together(view, auxiliaries)
    return [attack.blind(view.replica(r), auxiliary) for r, auxiliary in enumerate(auxiliaries)]


# Features


@dataclass(frozen=True, eq=False, kw_only=True)
class KnownModel:
    """Another device's model as a white box.

    `apply` computes what the device would send but for the noise, (R, B, …), from parameters (R, …) and rows (B, d) or
    (R, B, d). `rounds` holds the parameters before each round, and after the last.
    """

    apply: Callable[[Mapping[str, Tensor], Tensor], Tensor]
    rounds: Mapping[int, Mapping[str, Tensor]]

    def replica(self, r: int) -> KnownModel:
        """The same for one replica."""
        rounds = {
            t: {name: value[r : r + 1] for name, value in parameters.items()} for t, parameters in self.rounds.items()
        }
        return KnownModel(apply=self.apply, rounds=rounds)


@dataclass(frozen=True, eq=False, kw_only=True)
class FeatureAuxiliary:
    """What an attack on one device's features knows from elsewhere; it is given only what it declares in `knows`.

    `records` are a few records of which it knows the rows `blocks[m]`, (n, d), at each device, or the sensitive column
    `attribute`, (n,) of 0 and 1; they are counted, and are not among those its success is scored on. `models` are the
    white boxes, by device. `noise_std`, the noise on a system's uplinks, is public, as are the strengths of the
    defences in force.
    """

    victim: int
    records: Tensor
    blocks: Mapping[int, Tensor]
    attribute: Tensor | None = None
    models: Mapping[int, KnownModel] = field(default_factory=dict)
    noise_std: float = 0.0
    seed: int = 0
    defences: Defences = field(default_factory=dict)

    @property
    def block(self) -> Tensor:
        """The victim's rows of the known records."""
        return self.blocks[self.victim]


@dataclass(frozen=True, eq=False, kw_only=True)
class FeatureGuess:
    """For each replica, the victim's rows (R, n, d) of the records (n,) that the attack has an answer for."""

    device: int
    records: Tensor
    blocks: Tensor


@dataclass(frozen=True, eq=False, kw_only=True)
class AttributeGuess:
    """For each replica and record, scores (R, n): higher, the more certain that the sensitive column is 1."""

    device: int
    records: Tensor
    scores: Tensor


class FeatureAttack(Attack, Protocol):
    """An attack on a device's features (answered by a `FeatureGuess`) or on one column (by an `AttributeGuess`)."""

    knows: frozenset[str]
    """What it must be given, of `records`, `attribute` and `model`."""

    def refusal(self, view: View, auxiliary: FeatureAuxiliary) -> str | None:
        """Why it cannot be tried on this view with this knowledge, or None."""
        ...

    def run(self, view: View, auxiliary: FeatureAuxiliary) -> FeatureGuess | AttributeGuess:
        """The guess from a view."""
        ...

    def blind(self, view: View, auxiliary: FeatureAuxiliary) -> FeatureGuess | AttributeGuess | None:
        """The baseline: the same adversary's guess without the protocol, from `View.silent`; None if it can only
        predict the mean."""
        ...


# Membership


@dataclass(frozen=True, eq=False, kw_only=True)
class Candidates:
    """Pairs of records, (pairs, 2), and a fair coin for each pair and replica: which of the two was trained on.

    Candidates are numbered 0 to 2·pairs - 1: the first of all pairs, then the second of all pairs. All other records
    are always trained on. Two outcomes of the coins that differ in one pair are neighbours in the unit *record*.
    """

    pairs: Tensor
    coins: Tensor

    @classmethod
    def draw(cls, records: int, pairs: int, *, replicas: Sequence[int], seed: int) -> Candidates:
        """`pairs` pairs, or half the number of records if that is less; replicas differ only in the coins."""
        count = min(pairs, records // 2)
        chosen = host_generator(seed, "canary").permutation(records)[: 2 * count].reshape(count, 2)
        coins = [host_generator(seed, "canary", 1 + r).integers(0, 2, count) for r in replicas]
        return cls(pairs=torch.from_numpy(chosen), coins=torch.stack([torch.from_numpy(c) for c in coins]))

    def thrown_again(self, count: int, *, seed: int) -> Candidates:
        """The same pairs with the coins of `count` shadow models; every second model has the first's coins reversed.

        So each candidate is trained on by half of an even number of models.
        """
        half = [host_generator(seed, "attack", r).integers(0, 2, len(self.pairs)) for r in range((count + 1) // 2)]
        coins = torch.stack([torch.from_numpy(c) for thrown in half for c in (thrown, 1 - thrown)])
        return replace(self, coins=coins[:count])

    @property
    def records(self) -> Tensor:
        """The record of each candidate, by the candidates' numbers."""
        return self.pairs.T.flatten()

    def members(self, r: int) -> Tensor:
        """(2·pairs,) whether each candidate was trained on in the r-th replica."""
        coin = self.coins[r] == 1
        return torch.cat((~coin, coin))

    def into(self, data: VerticalData) -> VerticalData:
        """The training data: first one record of each pair, by the replica's coin, then all other records."""
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
class ShadowModels:
    """Models that the adversary trained itself, each on candidates of its own choice.

    `confidences`, (models, candidates, classes), are their predictions of every candidate, by the candidates' numbers;
    `members`, (models, candidates), says which candidates each was trained on.
    """

    confidences: Tensor
    members: Tensor


@dataclass(frozen=True, eq=False, kw_only=True)
class MembershipAuxiliary:
    """What a membership attack knows from elsewhere; it is given only what it declares in `knows`.

    `labels` are those of all candidates. `members`, (n,) of 0 and 1, says of the candidates `records` whether they were
    trained on; these few are not scored. `shadows` are models that whoever holds all devices' rows of all records, and
    knows the engine and its settings, trains itself; they differ from the attacked model in their coins, first
    parameters, batches and noise.
    """

    labels: Tensor
    records: Tensor
    members: Tensor
    shadows: ShadowModels | None = None


@dataclass(frozen=True, eq=False, kw_only=True)
class MembershipGuess:
    """For each replica and candidate, scores (R, n): higher, the more certain that it was trained on; above 0, it is
    called a member."""

    records: Tensor
    scores: Tensor


class MembershipAttack(Attack, Protocol):
    """An attack that tells which candidates a model was trained on."""

    knows: frozenset[str]
    """What it must be given, of `labels`, `membership` and `shadows`."""

    def refusal(self, view: View, auxiliary: MembershipAuxiliary) -> str | None:
        """Why it cannot be tried on this view, or None."""
        ...

    def run(self, view: View, auxiliary: MembershipAuxiliary) -> MembershipGuess:
        """The guess from a view."""
        ...
