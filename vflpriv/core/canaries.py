"""Canaries: what differs between the two worlds of an audit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from vflpriv.common.seeds import host_generator
from vflpriv.common.toml import Section
from vflpriv.core.units import Unit
from vflpriv.errors import InputError

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from vflpriv.core.data import VerticalData
    from vflpriv.core.ledger import Exposure
    from vflpriv.core.schedules import Schedule

__all__ = [
    "FULL_TRIALS",
    "SECOND_OPINION",
    "TRIALS",
    "Canaries",
    "Canary",
    "CanaryKind",
    "MemberCanaries",
    "OneRunSettings",
    "TwoWorldSettings",
    "draw_canaries",
    "most_exposed",
    "plant",
    "plant_members",
]

FULL_TRIALS = 128
"""Worst-case trials in each world that are trained in full, unless a configuration says otherwise."""

TRIALS = 400
"""Trials in each world, unless a configuration says otherwise."""
SECOND_OPINION = 100
"""The same, about a claim that an exact figure refutes or reaches."""


class CanaryKind(StrEnum):
    """Where a canary comes from, from mild to worst."""

    NATURAL = "natural"
    CRAFTED = "crafted"
    WORST_CASE = "worst-case"

    @property
    def description(self) -> str:
        return {
            CanaryKind.NATURAL: "data as it is, in one world with another label, record or block in its place",
            CanaryKind.CRAFTED: "features optimised so that the change between the worlds moves the release most",
            CanaryKind.WORST_CASE: "a contribution that sits at the clip, with the sign of its world",
        }[self]


Trials = Annotated[int, Field(ge=0)]


class TwoWorldSettings(Section):
    """Which canaries are trained with, and how often in each world.

    They stand here, not beside the audit, since the section `audit` of a configuration has the same fields and is read
    without torch.
    """

    canaries: tuple[CanaryKind, ...] = Field(tuple(CanaryKind), description="canaries of the two-world audit")
    trials: Trials | dict[CanaryKind, Trials] | None = Field(
        None,
        description="trainings in each world, one number or one for each canary; 0 for none. If not given 400, and 100 "
        "about claims that an exact figure reaches, with the mildest and the worst canary, or refutes; of the latter "
        "there is never more than the worst canary",
    )
    full_trials: int = Field(
        FULL_TRIALS,
        ge=1,
        description="worst-case trials in each world that are trained in full; the others replay the releases of a "
        "training, as long as that gives the scores of the trained ones",
    )
    whole_view: Trials = Field(
        256,
        description="trainings in each world, at most, from which a score of all that a view sees is learned and "
        "tested; 0 for none",
    )
    reach: float = Field(
        10.0, gt=0, description="how far out a crafted canary may lie, in multiples of the data's range"
    )
    stop_early: bool = Field(False, description="stop a canary's trainings once they refute every claim they test")

    def trials_by_kind(self, *, reached: bool = False, refuted: bool = False) -> dict[CanaryKind, int]:
        """Trainings in each world by kind of canary, of the kinds that have any.

        A claim that an exact figure reaches needs no more than a second opinion on it, by the mildest and the worst
        canary; one that an exact figure refutes, no more than one by the worst.
        """
        kinds = [kind for kind in CanaryKind if kind in self.canaries]
        given = (SECOND_OPINION if reached or refuted else TRIALS) if self.trials is None else self.trials
        trials = {k: given if isinstance(given, int) else given.get(k, 0) for k in kinds}
        asked = [kind for kind, number in trials.items() if number]
        if refuted:
            asked = asked[-1:]
        elif reached and self.trials is None:
            asked = list(dict.fromkeys((*asked[:1], *asked[-1:])))
        return {kind: trials[kind] for kind in asked}


class OneRunSettings(Section):
    """Many canaries in one training; a fair coin for each decides whether it is in."""

    canaries: int = Field(1000, ge=20, description="records that are canaries, drawn at random")
    guesses: int | None = Field(
        None, ge=1, description="number of canaries guessed about; chosen on a pilot set if not given"
    )

    @model_validator(mode="after")
    def _possible(self) -> OneRunSettings:
        if self.guesses is not None and self.guesses > self.canaries:
            raise ValueError(f"guesses <= canaries, found {self.guesses} > {self.canaries}")
        return self


@dataclass(frozen=True, eq=False, kw_only=True)
class Canary:
    """One unit of privacy in two worlds. `world` is (R,) of 0 and 1: the world each replica lives in.

    `record` is the record it belongs to, for a unit that belongs to one. `labels` are its label in either world.
    `at_clip` puts its contribution at the clip instead, plus in world 0 and minus in world 1 (nothing, where the unit
    is about absence). `blocks` replaces the record's features, (R, *shape of the device's block), in both worlds;
    `pairs` by others in each world, (R or 1, 2, *shape); `factors` multiply a device's whole block in either world.
    `devices` are those whose messages carry an `at_clip` contribution; all if empty. With `rate` the record is in each
    round with that probability, by a coin of its own in each replica: batches that nobody but the server knows.
    """

    kind: CanaryKind
    record: int
    world: Tensor
    labels: tuple[int, int]
    unit: Unit = Unit.RECORD
    blocks: Mapping[int, Tensor] = field(default_factory=dict)
    pairs: Mapping[int, Tensor] = field(default_factory=dict)
    factors: Mapping[int, tuple[float, float]] = field(default_factory=dict)
    devices: tuple[int, ...] = ()
    rate: float | None = None

    @property
    def at_clip(self) -> bool:
        return self.kind is CanaryKind.WORST_CASE

    @property
    def sides(self) -> tuple[float, float]:
        """What a contribution at the clip is multiplied by in either world: its sign, or nothing where it is absent."""
        return (1.0, 0.0 if self.unit is Unit.ADD_REMOVE else -1.0)

    def sign(self) -> Tensor:
        """(R,) the side of the world that each replica lives in."""
        first, second = self.sides
        return first + (second - first) * self.world.float()

    def concerns(self, m: int) -> bool:
        """Whether device m's messages carry its contribution."""
        return not self.devices or m in self.devices

    def into(self, data: VerticalData) -> VerticalData:
        """The data with this canary in it: every replica sees its own world."""
        device = data.labels.device
        world = self.world.to(device)
        if self.at_clip:
            return data.override([self.record], labels=None, blocks=self._given(device))
        first, second = self.labels
        labels = None if first == second else first + world.unsqueeze(1) * (second - first)
        either = {m: _own(pair.to(device), world).unsqueeze(1) for m, pair in self.pairs.items()}
        factors = {m: f[0] + world.float() * (f[1] - f[0]) for m, f in self.factors.items()}
        return data.override([self.record], labels=labels, blocks={**self._given(device), **either}, factors=factors)

    def _given(self, device: torch.device) -> dict[int, Tensor]:
        return {m: b.to(device).unsqueeze(1) for m, b in self.blocks.items()}


def _own(pair: Tensor, world: Tensor) -> Tensor:
    """(R, *shape): of (R or 1, 2, *shape) each replica's value in its own world."""
    every = world.reshape(-1, *(1 for _ in pair.shape[2:]))
    return pair[:, 0] + every * (pair[:, 1] - pair[:, 0])


@dataclass(frozen=True, eq=False, kw_only=True)
class Canaries:
    """Many records in one run, each in a world of its own: `worlds` is (R, m) of 0 and 1, from fair coins.

    `labels` (m, 2) are each record's label in either world. No record is there twice: a privacy unit holds one coin.
    """

    records: tuple[int, ...]
    labels: Tensor
    worlds: Tensor

    def __post_init__(self) -> None:
        if len(set(self.records)) != len(self.records):
            raise ValueError("Expected every canary in a record of its own: one coin a privacy unit.")

    def into(self, data: VerticalData) -> VerticalData:
        """The data with these canaries in it."""
        device = data.labels.device
        labels, worlds = self.labels.to(device), self.worlds.to(device)
        return data.override(self.records, labels=labels[:, 0] + worlds * (labels[:, 1] - labels[:, 0]))


# Canaries in labels: a few records whose label is decided by a fair coin, so that one training is an experiment.


Labels = TypeVar("Labels")


def most_exposed(exposures: Sequence[Exposure], schedule: Schedule) -> int:
    """The record with the most participations in these exposures together, each count relative to its largest."""
    counted = [e.counts for e in exposures if e.counts is not None and e.counts.any()]
    shares = [counts / counts.max() for counts in counted] or [schedule.counts(np.asarray(schedule.active.any(axis=1)))]
    return int(np.argmax(np.sum(shares, axis=0)))


def draw_canaries(labels: Tensor, classes: int, *, canaries: int, seed: int, field: str = "canaries") -> Canaries:
    """Records drawn at random, each with its own label in world 0, another one in world 1, and a fair coin."""
    import torch

    if not 1 <= canaries <= len(labels):
        raise InputError(field, canaries, f"at most {len(labels)}, the records there are")
    generator = host_generator(seed, "canary", canaries, 2)
    records = generator.choice(len(labels), canaries, replace=False)
    own = labels.cpu()[torch.from_numpy(records)].long()
    other = (own + torch.from_numpy(generator.integers(1, classes, canaries))) % classes
    worlds = torch.from_numpy(generator.integers(0, 2, (1, canaries)))
    return Canaries(records=tuple(map(int, records)), labels=torch.stack([own, other], dim=1), worlds=worlds)


def plant(labels: Labels, *, classes: int, canaries: int, seed: int) -> tuple[Labels, Canaries]:
    """Labels to train on, in the form in which they are given, and the canaries in them, for `wire.labels`.

    Each canary's label is its own or another one, by a fair coin: how many coins an adversary guesses bounds ε from
    below. Whoever knows the seed knows the coins. Labels are class numbers: a torch tensor, a NumPy array or a list.

    >>> import numpy as np
    >>> planted, canaries = plant(np.zeros(10, dtype=int), classes=3, canaries=4, seed=0)
    >>> len(canaries.records), int((planted != 0).sum()) == int(canaries.worlds.sum())
    (4, True)
    """
    import torch

    given: Any = labels
    numbers = given if isinstance(given, torch.Tensor) else torch.from_numpy(_class_numbers(given))
    drawn = draw_canaries(numbers.reshape(len(numbers)), classes, canaries=canaries, seed=seed)
    chosen = drawn.labels.gather(1, drawn.worlds[0].unsqueeze(1)).squeeze(1)
    if isinstance(given, torch.Tensor):
        planted: Any = given.clone()
        planted.view(len(given))[list(drawn.records)] = chosen.to(planted)
    else:
        planted = np.array(given)
        planted.reshape(len(given))[list(drawn.records)] = chosen.numpy().astype(planted.dtype)
        planted = planted.tolist() if isinstance(given, list) else planted
    return planted, drawn


def _class_numbers(labels: Any) -> NDArray[np.int64]:
    """Labels as whole numbers."""
    try:
        given = np.asarray(labels)
        numbers = given.astype(np.int64)
        if given.dtype.kind in "biuf" and bool((numbers == given).all()):
            return numbers
    except (TypeError, ValueError) as error:
        raise InputError("plant: labels", type(labels).__name__, "class numbers, 0, 1, …") from error
    raise InputError("plant: labels", f"{given.dtype} {given.reshape(-1)[:1].tolist()}", "class numbers, 0, 1, …")


# Canaries in membership: records that are trained on or left out by a fair coin.


@dataclass(frozen=True, eq=False, kw_only=True)
class MemberCanaries:
    """Candidates (m, 2) or (m, 1), and a fair coin (m,) for each row.

    Of two candidates, the coin 0 means that the first was trained on and the second left out, 1 the opposite: rows that
    differ in a coin are neighbours in the unit *record*, one record replaced. A single candidate was trained on with
    the coin 0 and left out with 1: neighbours in the unit *add-remove*. No candidate occurs twice.
    """

    candidates: Tensor
    worlds: Tensor

    @property
    def unit(self) -> Unit:
        """The unit in which two outcomes of one coin are neighbours."""
        return Unit.RECORD if self.candidates.shape[1] == 2 else Unit.ADD_REMOVE

    @property
    def records(self) -> Tensor:
        """All candidates, trained on or not, in the order of their numbers."""
        return self.candidates.flatten().sort().values

    @property
    def trained(self) -> Tensor:
        """(m, 2) or (m, 1) whether each candidate was trained on."""
        import torch

        first = self.worlds == 0
        return torch.stack((first, ~first), dim=1)[:, : self.candidates.shape[1]]

    @property
    def left_out(self) -> Tensor:
        """The candidates that were not trained on, in the order of their numbers."""
        return self.candidates[~self.trained].sort().values


def plant_members(
    *, records: int, canaries: int, seed: int, unit: Literal["record", "add-remove"] | Unit = "record"
) -> tuple[NDArray[np.int64], MemberCanaries]:
    """The numbers of the records to train on, and the canaries among all, for `wire.members`.

    For claims of the unit `record`, a canary is a pair of records of which a fair coin leaves one out; for claims of
    the unit `add-remove`, it is one record that a fair coin leaves out or not. After the training, the model predicts
    all of `canaries.records`: how many coins an adversary guesses from these predictions bounds ε from below. Whoever
    knows the seed knows the coins.

    >>> members, canaries = plant_members(records=10, canaries=3, seed=0)
    >>> len(members), len(canaries.records), bool(np.isin(members, canaries.left_out).any())
    (7, 6, False)
    """
    import torch

    if unit not in (Unit.RECORD, Unit.ADD_REMOVE):
        raise InputError("plant_members: unit", str(unit), "record or add-remove")
    taken = 2 if unit == Unit.RECORD else 1
    if not 1 <= canaries <= records // taken:
        expected = f"1 to {records // taken}: there are {records} records, and a canary takes {taken}"
        raise InputError("plant_members: canaries", canaries, expected)
    generator = host_generator(seed, "canary", canaries, 3)
    chosen = generator.permutation(records)[: taken * canaries].reshape(canaries, taken)
    worlds = generator.integers(0, 2, canaries)
    planted = MemberCanaries(candidates=torch.from_numpy(chosen), worlds=torch.from_numpy(worlds))
    return np.setdiff1d(np.arange(records), planted.left_out.numpy()), planted
