"""The ledger file: the releases of a user's own system, their noise and sensitivity, and the claims made for it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, TypeAdapter, field_validator, model_validator

from vflpriv.common.registry import available
from vflpriv.common.toml import Section
from vflpriv.config.claims import AttackClaimConfig, ClaimConfig
from vflpriv.config.errors import parse_settings
from vflpriv.config.loading import read_tree
from vflpriv.config.models import TuningRuns
from vflpriv.core.law import Law
from vflpriv.core.releases import Release, StateLeak
from vflpriv.core.schedules import Batching
from vflpriv.core.units import Unit
from vflpriv.errors import InputError
from vflpriv.recording.files.format import Kind
from vflpriv.recording.schedule import BatchSampling, RecordedSchedule
from vflpriv.recording.worlds_file import TrialsConfig

__all__ = ["DECIDE", "LedgerConfig", "ReleaseConfig", "is_ledger", "load_ledger"]

DECIDE = "DECIDE"
"""The value that a drafted ledger has where a person must decide; such a ledger is not used."""
AdversaryKind = Literal["device", "devices", "eavesdropper", "outsider", "server", "model"]
Positive = Annotated[float, Field(ge=1e-30, le=1e30)]
"""Beyond these limits the square of a ratio of two is not a float."""
Bound = Positive | Literal["unbounded"]
_WIRE = frozenset({"eavesdropper", "outsider", "model"})
_DEVICES = frozenset({"device", "devices"})
_SEEN_BY: Mapping[str, frozenset[str]] = {
    "up": _WIRE | {"server"},
    "down": _WIRE | _DEVICES,
    "across": _WIRE | _DEVICES,
}
_ALL_ADVERSARIES = _SEEN_BY["up"] | _SEEN_BY["down"]


class LeakConfig(Section):
    """State that depends on private data without noise, and that later messages of this kind depend on."""

    carrier: str = Field(description="the state, such as the server's model")
    sensitivity: dict[Unit, Positive] = Field(
        description="by unit, how far a message may change after a record's first round"
    )
    own: bool = Field(
        False, description="each device has such a state of its own, which messages of other devices do not depend on"
    )

    def state(self) -> StateLeak:
        """The leak, for the units that are named and for those that these include."""
        bounds: dict[Unit, float] = dict(self.sensitivity)
        for unit in Unit:
            wider = [bound for wide, bound in self.sensitivity.items() if wide.per_record and wide.implies(unit)]
            if unit not in bounds and wider:
                bounds[unit] = min(wider)
        return StateLeak(carrier=self.carrier, sensitivity=bounds, own=self.own)


class ReleaseConfig(Section):
    """One kind of message: how far each unit can change it, and the noise on it.

    A unit that is named neither in `sensitivity` nor in `independent_of`, nor is included in one that is, may change
    the message without bound.
    """

    kind: Kind = Field(description="the kind of message, as it was recorded")
    what: str = Field("", description="a description of what it holds")
    noise: str = Field(
        description="the law of the noise on every entry, by name: gaussian, laplace, rr (randomised response), or any "
        "other registered one, which an unknown name lists; none, or opaque if it is ciphertext"
    )
    scale: Positive | None = Field(
        None, description="the std of Gaussian noise, the scale of Laplace noise, the ε of randomised response"
    )
    law: dict[str, Any] = Field(
        default_factory=dict, description="further settings of the law, such as step, the grid of discrete noise"
    )
    assumption: str | None = Field(
        None, min_length=1, description="of ciphertext: why it tells nothing without the key, such as the scheme"
    )
    readable_by: tuple[AdversaryKind, ...] | None = Field(
        None, description="of ciphertext: the adversaries that hold the key, to whom it counts as sent in clear"
    )
    sensitivity: dict[Unit, Bound] = Field(
        default_factory=dict,
        description="by unit, how far one message changes between neighbours: in L2 (gaussian) or L1 (laplace)",
    )
    independent_of: tuple[Unit, ...] = Field(
        (), description="units that cannot change it, except through other releases"
    )
    seen_by: tuple[AdversaryKind, ...] | None = Field(
        None, description="the adversaries that see it; by default those that see its direction"
    )
    shared: bool = Field(False, description="one value for all devices: counted once per round")
    carried: bool = Field(True, description="whether it changes models that later messages to other devices depend on")
    additive: bool = Field(
        False,
        description="a sum to which an absent record adds nothing; sensitivity.add-remove bounds what one record adds, "
        "which secret Poisson batches need to be accounted for as secret",
    )
    fresh: bool = Field(
        False,
        description="what a record adds is computed from data and earlier messages alone, not from state that depends "
        "on who was in earlier batches; secret batches of a fixed size need it",
    )
    once: bool = Field(False, description="every record is released once, whatever the batches")
    redrawn: bool = Field(
        True,
        description="whether tuning runs released it anew; false, with once, if they all used the same noised values",
    )
    leak: LeakConfig | Literal["none"] | None = Field(
        None,
        description="state that changes without noise and that this kind depends on; none if there is no such state",
    )
    tensors: tuple[str, ...] | None = Field(
        None, description="the tensors of its messages that this covers; by default those of a kind in the table"
    )

    @field_validator("noise")
    @classmethod
    def _registered(cls, value: str) -> str:
        if value not in (laws := available("law")):
            raise ValueError(f"one of {', '.join(laws)}")
        return value

    @model_validator(mode="after")
    def _possible(self) -> ReleaseConfig:
        if (self.scale is None) != (self.noise in ("none", "opaque")):
            raise ValueError(f"a scale > 0 with noise, and no scale without noise, found {self.scale}")
        for field in ("assumption", "readable_by"):
            if (getattr(self, field) is None) == (self.noise == "opaque"):
                stated = "none" if getattr(self, field) is None else f"it with noise = {self.noise!r}"
                raise ValueError(f"{field} with noise = 'opaque' and with no other, found {stated}")
        self.released_by()  # an error in the settings of the law shows here
        both = [unit for unit in self.independent_of if unit in self.sensitivity]
        if both:
            raise ValueError(f"units in independent_of that have no sensitivity, found {both[0]} in both")
        if not self.redrawn and not self.once:
            raise ValueError("once = true beside redrawn = false, found once = false")
        bounds = self.bounds()
        for wide in Unit:
            for narrow in Unit:
                if wide.implies(narrow) and bounds.get(wide, 0.0) < bounds.get(narrow, 0.0):
                    least = f"at least {bounds[narrow]:g}, that of the {narrow} unit, which it includes"
                    raise ValueError(f"sensitivity.{wide} to be {least}, found {bounds.get(wide, 0.0):g}")
        return self

    def bounds(self) -> dict[Unit, float]:
        """Each unit's sensitivity: infinite if the file does not bound it, absent if it cannot change the message.

        The bound of a unit also holds for the units it includes, unless they have a bound of their own.
        """
        given = {unit: math.inf if isinstance(b, str) else b for unit, b in self.sensitivity.items()}
        given |= dict.fromkeys(self.independent_of, 0.0)
        implied = {
            unit: min((b for wide, b in given.items() if wide.implies(unit)), default=math.inf)
            for unit in Unit
            if unit not in given
        }
        return {unit: bound for unit, bound in (given | implied).items() if bound > 0}

    def release(
        self, rounds: NDArray[np.bool_], ways: frozenset[str], links: NDArray[np.bool_] | None = None
    ) -> Release:
        """The release of this kind, given the turns with a message of it and the directions it was sent in.

        `links`, (turns, devices), says whose message each is: what a device sends depends on its own block alone.
        """
        own = links is not None and ways == {"up"} and not (self.shared or self.once)
        observers = frozenset[str]().union(*(_SEEN_BY[way] for way in ways)) if ways else _ALL_ADVERSARIES
        return Release(
            kind=self.kind,
            what=self.what or "as the ledger file says",
            noise=self.released_by(),
            sensitivity=self.bounds(),
            rounds=np.arange(len(rounds)) == 0 if self.once else rounds,
            seen_by=observers if self.seen_by is None else frozenset(self.seen_by),
            reaches_all=self.shared or self.once,
            carried=self.carried,
            senders=rounds[:, None] & links if own and links is not None else None,
            additive=self.additive,
            fresh=self.fresh,
            once=self.once,
            redrawn=self.redrawn,
            leak=self.leak.state() if isinstance(self.leak, LeakConfig) else None,
            tensors=None if self.tensors is None else frozenset(self.tensors),
            unstated=(self.premise(ways),) if self.asks_for_leak else (),
        )

    @property
    def asks_for_leak(self) -> bool:
        """Whether the file leaves open if state that changes without noise moves this noised message."""
        return self.leak is None and self.released_by().noised and not self.once

    def premise(self, ways: frozenset[str]) -> str:
        """What is taken for granted where the file does not say what state the message depends on."""
        from_devices = bool(ways) and ways <= {"up", "across"}
        whose = "device models are" if from_devices else "the server's model is" if ways == {"down"} else "models are"
        return (
            f"{whose} taken to depend on a record through noised releases alone: the ledger declares no leak of "
            f'{self.kind}; say leak = "none", or what the leak is'
        )

    def released_by(self) -> Law:
        """The law of the noise; its first setting is the scale."""
        law = available("law")[self.noise]
        names = [field.name for field in fields(law)]
        if self.noise == "opaque":
            given: dict[str, Any] = {"assumption": self.assumption, "readers": frozenset(self.readable_by or ())}
        else:
            given = self.law if self.scale is None else {names[0]: self.scale, **self.law}
        if unknown := sorted(set(given) - set(names)):
            raise ValueError(f"law to have settings among {', '.join(names[1:]) or 'none'}, found {unknown[0]}")
        made: Law = TypeAdapter(law).validate_python(given)
        return made


class BatchesConfig(Section):
    """How batches were drawn. The transcript says which records were in them."""

    batching: Batching = Field(Batching.SHUFFLE, description="shuffle, poisson, fixed or full")
    size: int | None = Field(None, ge=1, description="the (mean) size of poisson and fixed batches")
    unrecorded_rounds: int = Field(
        0, ge=0, le=1_000_000, description="rounds that are not in the transcript; each counts for every record"
    )

    def sampled(self) -> BatchSampling:
        return BatchSampling(batching=self.batching, size=self.size, unrecorded=self.unrecorded_rounds)


class LedgerConfig(Section):
    """A whole ledger file."""

    key: str = Field("recorded", pattern=r"^[\w.-]+$", description="short name of the system")
    title: str = ""
    seed: int = Field(0, ge=0, description="seed of the choice of labels that attacks are given")
    confidence: float = Field(0.95, gt=0.5, lt=1, description="confidence of every interval and lower bound")
    verdict_confidence: float = Field(
        0.999, gt=0.5, lt=1, description="a claim is called violated at a family-wise error of one minus this"
    )
    accountant: str = Field("auto", description="an accountant that `vflpriv accountants` lists")
    delta: float = Field(1e-5, gt=0, lt=1, description="δ of the table of budgets")
    label_holders: tuple[Literal["server", "device", "devices"], ...] = Field(
        ("server",), description="the parties that hold the labels anyway"
    )
    model_follows_releases: bool = Field(
        False, description="whether the trained model is computed from the listed messages alone"
    )
    attacks: tuple[str, ...] | None = Field(None, description="attacks to try; by default all but those that take long")
    public: tuple[Kind, ...] = Field((), description="kinds of messages that hold nothing private")
    tuning_runs: TuningRuns = None
    batches: BatchesConfig = BatchesConfig()
    trials: TrialsConfig | None = Field(None, description="what `vflpriv audit --train` is told; none if not given")
    audit: dict[str, bool | dict[str, Any]] = Field(
        default_factory=dict, description="settings of audits by name; NAME = false turns one off"
    )
    release: tuple[ReleaseConfig, ...] = ()
    claim: tuple[ClaimConfig, ...] = ()
    attack_claim: tuple[AttackClaimConfig, ...] = ()

    @model_validator(mode="after")
    def _distinct(self) -> LedgerConfig:
        kinds = [r.kind for r in self.release] + list(self.public)
        keys = [c.key for c in (*self.claim, *self.attack_claim)]
        for field, names in (("release.kind", kinds), ("claim.key", keys)):
            repeated = [name for name in names if names.count(name) > 1]
            if repeated:
                raise ValueError(f"each {field} once, found {repeated[0]} several times")
        return self

    @model_validator(mode="after")
    def _verdicts_are_surer(self) -> LedgerConfig:
        if self.verdict_confidence < self.confidence:
            raise ValueError(f"verdict_confidence >= confidence, found {self.verdict_confidence} < {self.confidence}")
        return self

    @property
    def attack_names(self) -> list[str]:
        """Every attack that the file names."""
        return sorted({*(self.attacks or ()), *(c.attack for c in self.attack_claim)})

    def releases(self, recorded: RecordedSchedule, ways: Mapping[str, frozenset[str]]) -> tuple[Release, ...]:
        """Every listed release, every recorded kind that is not listed, and the trained model."""
        rounds = recorded.schedule.rounds
        links = recorded.schedule.active if self._blocks_leave_noised(ways) else None
        listed = [
            r.release(
                recorded.kinds.get(r.kind, recorded.unrecorded),
                ways.get(r.kind, frozenset()),
                links,
            )
            for r in self.release
        ]
        missing = [
            ReleaseConfig(kind=kind, noise="none", what="on the wire, but not in the ledger").release(turns, ways[kind])
            for kind, turns in recorded.kinds.items()
            if kind not in self.public and kind not in {r.kind for r in self.release}
        ]
        if self.model_follows_releases:
            return (*listed, *missing)
        what = "the trained model; the ledger does not say that it follows from releases"
        model = ReleaseConfig(kind="models", noise="none", what=what, seen_by=("model",))
        return (*listed, *missing, model.release(np.arange(rounds) == rounds - 1, frozenset()))

    def _blocks_leave_noised(self, ways: Mapping[str, frozenset[str]]) -> bool:
        """Whether every recorded uplink that depends on features carries noise.

        Then other devices' messages depend on a device's block through that device's noised messages alone.
        """
        listed = {r.kind: r for r in self.release}
        kinds = [kind for kind, directions in ways.items() if directions & {"up", "across"} and kind not in self.public]
        return all(
            kind in listed and (listed[kind].released_by().noised or Unit.FEATURES not in listed[kind].bounds())
            for kind in kinds
        )


_LEDGERS_ONLY = frozenset(LedgerConfig.model_fields) - {
    "key",
    "title",
    "seed",
    "confidence",
    "verdict_confidence",
    "accountant",
    "audit",
}
_CONFIGURATIONS_ONLY = frozenset({"engine", "system", "data", "attack", "device"})


def is_ledger(path: Path) -> bool:
    """Whether a file has fields that only ledgers have, and none that only configurations have."""
    fields = read_tree(path, "config").keys() if path.is_file() else set()
    return bool(fields & _LEDGERS_ONLY) and not fields & _CONFIGURATIONS_ONLY


def load_ledger(path: Path) -> LedgerConfig:
    """Read a ledger file, TOML or YAML; an error is one line that names the wrong field."""
    tree = read_tree(path, "--ledger")
    undecided = list(_undecided(tree, "ledger"))
    if undecided:
        others = f"; {len(undecided) - 1} more are open" if len(undecided) > 1 else ""
        raise InputError(undecided[0], DECIDE, f"your decision, as the comment beside it in {path} says{others}")
    return parse_settings(LedgerConfig, tree, "ledger")


def _undecided(value: object, where: str) -> Iterator[str]:
    """The fields that a draft has left to a person."""
    if value == DECIDE:
        yield where
    elif isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _undecided(inner, f"{where}.{name}")
    elif isinstance(value, list):
        for place, inner in enumerate(value):
            yield from _undecided(inner, f"{where}.{place}")
