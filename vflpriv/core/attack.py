"""Attacks: what each declares, what knowledge it is given, and the guess that it returns.

An attack is given one adversary's view and some auxiliary knowledge, never an engine or the true values. All declare
what `Attack` holds and answer with a `Guess`; what they are told depends on what they go after.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

from vflpriv.common.lazy import torch
from vflpriv.core.views import View

if TYPE_CHECKING:
    from torch import Tensor

__all__ = [
    "NO_DEFENCE",
    "Answer",
    "Attack",
    "Auxiliary",
    "Conduct",
    "Defences",
    "FeatureAttack",
    "FeatureAuxiliary",
    "Forgery",
    "Guess",
    "Guesses",
    "IntegrityAttack",
    "IntegrityAuxiliary",
    "KnownModel",
    "LabelAttack",
    "MembershipAuxiliary",
    "Misreading",
    "OtherPeople",
    "PropertyAuxiliary",
    "PublishedEncoder",
    "ServerStart",
    "ShadowModels",
    "TargetAttack",
    "TogetherAttack",
    "adapts",
    "made_for",
    "run_and_blind",
]

NO_DEFENCE = "none"
"""The name under which a system without a defence stands in the attack matrix."""


Defences = Mapping[str, Mapping[str, Any]]
"""The strengths of each defence in force, by its name. They are public: only keys and coins are secret (Kerckhoffs)."""


@dataclass(frozen=True, eq=False)
class Guess:
    """What an attack says of the records (n,) that it has an answer for, in each of R replicas.

    `values` are guessed labels (R, n), the targets (R, n) of a regression up to one constant, or a device's rows
    (R, n, d). Of a sensitive column, and of membership, they are scores (R, n), which are higher the more certain the
    attack is of a 1; candidates with a score above 0 are called members.

    An attack on two labels may add such `scores` to its guesses. One that guesses about a random sample of the records
    says which were drawn, (n,), and from how many: its success is then scored on these. One that learns from other
    people's labels what a label is likely to be adds `others`, (R, n): its guess of each label from all that it knows
    but what the protocol tells of this very label. It is a baseline of its success, since the ε of one label bounds
    what is gained beyond it.
    """

    records: Tensor
    values: Tensor
    scores: Tensor | None = None
    drawn: Tensor | None = None
    population: int | None = None
    others: Tensor | None = None


Guesses = tuple[Sequence[Guess], Sequence[Guess | None]]
"""The guess of each replica of a view, and the baseline of each: what the adversary guesses without the protocol."""


class Attack(Protocol):
    """What every attack declares, whatever its target.

    An attack that was made against defences and uses what is public about them also has `adapts_to`, the names of
    these defences. Where one of them is in force it is *adaptive*, everywhere else *static*.
    """

    name: str
    summary: str
    target: str
    """`labels`, `features`, `tokens` (features that are texts), `attribute` (one sensitive column), `property` (how
    many of a device's records have it), `membership` or `integrity` (what the trained model predicts)."""
    needs: frozenset[str]
    """The kinds of messages it reads; `own-model` stands for the adversary's trained model."""
    heavy: bool
    """Whether it takes so long, for the training of models of its own, that it is tried only where it is named."""

    def run(self, view: View, auxiliary: Any) -> Guess:
        """The guess from a view."""
        ...

    def blind(self, view: View, auxiliary: Any) -> Guess | None:
        """The baseline: what the same adversary guesses without the protocol, from `View.silent`; None without one.

        The protocol's leakage is the success of `run` beyond that of this guess.
        """
        ...


def adapts(attack: Attack, defences: Defences) -> bool:
    """Whether an attack knows one of the defences in force, and so is adaptive."""
    known: frozenset[str] = getattr(attack, "adapts_to", frozenset())
    return not known.isdisjoint(defences)


def made_for(attack: Attack, defences: Defences) -> bool:
    """Whether an attack is worth trying unasked under these defences: it is not made against others alone."""
    return not getattr(attack, "adapts_to", ()) or adapts(attack, defences)


Forgery = Callable[[int, "Tensor", Mapping[str, "Tensor"]], Mapping[str, "Tensor"]]
"""Computes what a device sends from the round, the batch's record ids and what an honest device would send."""
Misreading = Callable[[int, "Tensor", Mapping[str, "Tensor"]], Mapping[str, "Tensor"]]
"""Computes what a device updates its model with from the round, the batch's record ids and what it was sent."""
Answer = Callable[[int, int, "Tensor", Mapping[str, "Tensor"], Mapping[str, "Tensor"]], Mapping[str, "Tensor"]]
"""Computes what the server sends from the round, the device, the batch's record ids, what the device sent and what an
honest server would send."""


@dataclass(frozen=True, kw_only=True)
class Conduct:
    """How a dishonest party departs from the protocol.

    A device may send forged messages (`forge`), update its model with something else than what it was sent (`read`),
    or scale its own steps up (`gain`); the server may send forged answers (`answer`).

    `gain` is γ of the malicious optimiser (Fu et al., "Label Inference Attacks Against Vertical Federated Learning",
    USENIX Security 2022); 0 leaves the steps as they are. `momentum` says which steps it scales: those of the paper's
    `formula`; or those of the authors' code, in which scaled steps enter the momentum (`compounding`) or, before
    PyTorch 2.0, momentum is lost (`lost`).
    """

    name: str
    forge: Forgery | None = None
    read: Misreading | None = None
    answer: Answer | None = None
    gain: float = 0.0
    momentum: Literal["formula", "compounding", "lost"] = "formula"


# Labels


@dataclass(frozen=True, eq=False, kw_only=True)
class ServerStart:
    """The server's model before the first round, whose `parameters` (R, …) come from a public seed.

    `apply` computes logits (R, B, C) from parameters and the outputs of all `devices` side by side, (R, B, …).
    """

    apply: Callable[[Mapping[str, Tensor], Tensor], Tensor]
    parameters: Mapping[str, Tensor]
    devices: int

    def replica(self, r: int) -> ServerStart:
        """The same for one replica."""
        return replace(self, parameters={name: value[r : r + 1] for name, value in self.parameters.items()})

    def logits(self, outputs: Mapping[int, Tensor]) -> Tensor:
        """(B, C) logits of the first replica, from outputs (B, width) of some devices and zeros of the others."""
        known = next(iter(outputs.values()))
        columns = [outputs.get(m, torch.zeros_like(known)) for m in range(self.devices)]
        first = {name: value[:1] for name, value in self.parameters.items()}
        return self.apply(first, torch.cat(columns, dim=-1).unsqueeze(0))[0]


@dataclass(frozen=True, eq=False, kw_only=True)
class Auxiliary:
    """What an attack on labels knows from elsewhere: the labels of a few records, and a seed for its own random draws.

    These records are counted, and are not among those its success is scored on. `asked` are records that an attack
    which guesses about a sample of the records must guess about in any case. `defences` is what is public about the
    defences in force, and `start` the server's model before the first round, whose parameters come from a public seed;
    it is given to attacks that declare `start` in `knows`.
    """

    records: Tensor
    labels: Tensor
    seed: int = 0
    defences: Defences = field(default_factory=dict)
    asked: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.int64))
    start: ServerStart | None = None


class LabelAttack(Attack, Protocol):
    """An attack on the server's labels."""

    auxiliary: bool
    """Whether it is given the labels of a few records."""
    conduct: Conduct | None
    """How its devices depart from the protocol, if they do."""

    def refusal(self, view: View) -> str | None:
        """Why it cannot be tried on this view, or None."""
        ...


@runtime_checkable
class TargetAttack(LabelAttack, Protocol):
    """An attack on labels that also finds the targets of a regression."""

    def run_targets(self, view: View) -> Guess:
        """The guess from a view of a regression."""
        ...


@runtime_checkable
class TogetherAttack(Protocol):
    """An attack that is faster on all replicas of a view, and on what is left of it without the protocol, at once.

    What it guesses of a replica must not depend on how many there are.
    """

    def run_and_blind(self, view: View, auxiliaries: Sequence[Auxiliary]) -> Guesses:
        """`run` of each replica, with the auxiliary knowledge of each, and `blind` of each silent one."""
        ...


def run_and_blind(attack: Attack, view: View, auxiliaries: Sequence[Any]) -> Guesses:
    """What an attack guesses of each replica of a view, all at once if it can, and the baselines of these guesses."""
    if isinstance(attack, TogetherAttack):
        return attack.run_and_blind(view, auxiliaries)
    told, silent = list(enumerate(auxiliaries)), view.silent()
    return (
        [attack.run(view.replica(r), auxiliary) for r, auxiliary in told],
        [attack.blind(silent.replica(r), auxiliary) for r, auxiliary in told],
    )


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
        """The same for one replica; made once, as many attacks ask for it."""
        if r not in self._replicas:
            rounds = {
                t: {name: value[r : r + 1] for name, value in parameters.items()}
                for t, parameters in self.rounds.items()
            }
            self._replicas[r] = KnownModel(apply=self.apply, rounds=rounds)
        return self._replicas[r]

    @cached_property
    def _replicas(self) -> dict[int, KnownModel]:
        return {}


@dataclass(frozen=True, eq=False, kw_only=True)
class PublishedEncoder:
    """What a device's model of texts started from, where every value of it is published.

    `apply` computes what the device would send of token ids (n, tokens) before it is trained: (n, width), without noise
    and clip. Ids are below `vocabulary`; 0 is padding.
    """

    apply: Callable[[Tensor], Tensor]
    vocabulary: int
    tokens: int


@dataclass(frozen=True, eq=False, kw_only=True)
class OtherPeople:
    """A training of the same system on other people's records, from the same first parameters, by the adversary itself:
    what the server sees of it, and whether each of its records has the sensitive attribute, (n,) of 0 and 1."""

    view: View
    attribute: Tensor


@dataclass(frozen=True, eq=False, kw_only=True)
class FeatureAuxiliary:
    """What an attack on one device's features knows from elsewhere; it is given only what it declares in `knows`.

    `records` are a few records of which it knows the rows `blocks[m]`, (n, d), at each device, or the sensitive column
    `attribute`, (n,) of 0 and 1; they are counted, and are not among those its success is scored on. `models` are the
    white boxes, by device, `published` the encoders of texts that anybody can download, and `others` a training of the
    adversary's own. `noise_std`, the noise on a system's uplinks, is public, as are the strengths of the defences in
    force.
    """

    victim: int
    records: Tensor
    blocks: Mapping[int, Tensor]
    attribute: Tensor | None = None
    models: Mapping[int, KnownModel] = field(default_factory=dict)
    published: Mapping[int, PublishedEncoder] = field(default_factory=dict)
    others: OtherPeople | None = None
    noise_std: float = 0.0
    seed: int = 0
    defences: Defences = field(default_factory=dict)

    @property
    def block(self) -> Tensor:
        """The victim's rows of the known records."""
        return self.blocks[self.victim]


class FeatureAttack(Attack, Protocol):
    """An attack on a device's features, on one column of these, or on membership."""

    knows: frozenset[str]
    """What it must be given: of `records`, `attribute`, `others`, `model` and `published`; of a property,
    `own-trainings`; of membership, of `labels`, `membership` and `shadows`."""

    def refusal(self, view: View, auxiliary: Any) -> str | None:
        """Why it cannot be tried on this view with this knowledge, or None."""
        ...


@dataclass(frozen=True, eq=False, kw_only=True)
class PropertyAuxiliary:
    """What an attack on a property of device `victim`'s data knows: what it sees of trainings of its own, replica by
    replica, and their `coins` (R,), 1 where most records had the attribute. They are on other draws of the same
    records: it knows all records that the device may have, and not which it has."""

    victim: int
    own: View
    coins: Tensor


# Membership


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


# Integrity


@dataclass(frozen=True, eq=False, kw_only=True)
class IntegrityAuxiliary:
    """What dishonest devices know from elsewhere: a few training `records` of the class `target`, which they want.

    `blocks` are their own features, (N, …) by device. Those records are drawn at random and are the same in all
    replicas.
    """

    blocks: Mapping[int, Tensor]
    records: Tensor
    target: int
    seed: int = 0


class IntegrityAttack(Attack, Protocol):
    """An attack of dishonest devices on what the trained model predicts. Its guess is what the model says (R, n)."""

    knows: frozenset[str]
    """What it must be given: nothing, or `target`."""
    goal: Literal["target", "wrong"]
    """What it wants of a prediction: the class `target`, or any but the right one."""

    def refusal(self, view: View, auxiliary: IntegrityAuxiliary) -> str | None:
        """Why it cannot be tried in a training of which its devices see this, or None."""
        ...

    def conducts(self, auxiliary: IntegrityAuxiliary) -> Mapping[int, Conduct]:
        """How its devices behave in one training of all replicas."""
        ...

    def poisoned(self, auxiliary: IntegrityAuxiliary) -> Mapping[int, Tensor]:
        """The features (N, …) with which its devices train."""
        ...

    def asked(self, blocks: Mapping[int, Tensor], auxiliary: IntegrityAuxiliary) -> Mapping[int, Tensor]:
        """What its devices have in place of their features (n, …) when a prediction is to come out as they want it."""
        ...
