"""The methods of the two-world audit, one class each: how the trials of a view are trained, scored and tested.

`choose` picks the method for a claim's view, or says why there is none; `canary_units` what canaries may change for it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from vflpriv.audits.learned.discriminants import discriminant
from vflpriv.audits.learned.learners import held_out_errors
from vflpriv.audits.statistics.bounds import secret_threshold
from vflpriv.audits.twins.probes import TwinProbe, in_worlds
from vflpriv.audits.two_world.scores import (
    CanaryRows,
    Request,
    for_replicas,
    joined,
    likeness_key,
    ratio_scores,
    squares,
    strength_key,
)
from vflpriv.audits.two_world.whole_view import WHOLE_VIEW, WholeView, feature_key
from vflpriv.common.numerics import Floats
from vflpriv.common.seeds import derive
from vflpriv.core.canaries import Canary, CanaryKind
from vflpriv.core.engine import Engine
from vflpriv.core.ledger import Exposure, Ledger, Reading
from vflpriv.core.schedules import Batching
from vflpriv.core.systems import System
from vflpriv.core.units import Unit
from vflpriv.core.views import Adversary
from vflpriv.core.wire import Wire

__all__ = [
    "METHODS",
    "Choice",
    "Method",
    "canary_unit",
    "canary_units",
    "choose",
    "hosts",
    "trainings_per_trial",
    "whole_view_refusal",
]

Shard = Mapping[str, Tensor]
_LEARNING = 256
"""Trials in each world that a score is learned on, at most."""


class Method(ABC):
    """How the trials of a view are made into scores, of which a positive one says world 0. It has no state."""

    name: ClassVar[str]
    trainings: ClassVar[int] = 1
    """Replicas that are trained for each trial."""
    of_releases: ClassVar[bool] = False
    """Whether scores depend on releases alone, so that trials of worst-case canaries can be replayed."""
    of_rows: ClassVar[bool] = False
    """Whether scores are learned from the canary's rows, so that a crafted canary has to move these."""
    guests: ClassVar[tuple[str, ...]] = ()
    """The methods whose trainings serve this one, too, the first of them that is in use."""

    @abstractmethod
    def scores(self, request: Request) -> dict[str, Tensor]:
        """Train the replicas of a request; for each adversary (R,) scores, or (R, F) features to learn a score from."""

    def rate(self, system: System) -> float | None:
        """The probability with which the canary is in a round, where its batches are a secret; else None."""
        del system
        return None

    def learning(self, trials: int) -> int:
        """Trials in each world that a score is learned on, beside so many that are tested."""
        del trials
        return 0

    def scored(self, shards: Sequence[Shard], learned_on: Sequence[Shard], view: str) -> Floats:
        """Scores (2n,) of tested trials through a view, worlds in turns, by what was learned on others."""
        del learned_on
        return joined(shards, view)

    def threshold(self, system: System, canary: Canary, *, trials: int, confidence: float) -> float:
        """The score from which on a trial counts as world 0, fixed before any trial."""
        del system, canary, trials, confidence
        return 0.0

    def replay_refusal(self, system: System) -> str | None:
        """Why trials that are scored by this method cannot be replayed, or None."""
        if not self.of_releases:
            return f"scores by {self.name} depend on models"
        return "noise from the operating system cannot be drawn again" if system.secure_noise else None


class Ratio(Method):
    """The likelihood ratio from the noiseless values of both worlds, which the release points are asked for."""

    name = "likelihood ratio"
    of_releases = True

    def scores(self, request: Request) -> dict[str, Tensor]:
        ratio, watch = request.ratio(), request.watch()
        canary = for_replicas(request.canary, [r % 2 for r in request.replicas])
        engine, probe = in_worlds(request.system, request.replicas, canary)
        for round_ in request.rounds():
            for value in probe.round(engine, round_, watch):
                ratio.add(value)
            request.done()
        scores = ratio_scores(ratio, len(request.replicas))
        return {**scores, **_shadowed(request, engine), **_watched(watch, engine)}


class SecretBatches(Ratio):
    """The likelihood ratio of mixtures, for who does not know whether the canary was in a batch."""

    name = "secret batches"

    def rate(self, system: System) -> float | None:
        return system.schedule.rate

    def threshold(self, system: System, canary: Canary, *, trials: int, confidence: float) -> float:
        (release,) = (r for r in system.ledger.releases if r.noise.white and r.additive)
        assert canary.rate is not None
        first, second = canary.sides
        edge = release.noise.strength(release.sensitivity[Unit.RECORD]) / 2
        return secret_threshold(
            means=(first * edge, second * edge),
            rate=canary.rate,
            rounds=int(release.rounds.sum()),
            trials=trials,
            confidence=confidence,
            seed=system.seed,
        )


class Twins(Method):
    """The likelihood ratio of all releases, whatever state they read: each trial has a twin in the other world.

    The twin releases what the trial releases, so that its means are those that an adversary who knows everything but
    the noise computes for the other world, given all it saw before.
    """

    name = "twins"
    trainings = 2

    def scores(self, request: Request) -> dict[str, Tensor]:
        system, count = request.system, len(request.replicas)
        worlds = [w for r in request.replicas for w in (r % 2, 1 - r % 2)]
        data, probe = for_replicas(request.canary, worlds).into(system.data), TwinProbe()
        engine = system.train([r for r in request.replicas for _ in (0, 1)], data=data, probe=probe)
        device, devices = system.torch_device, system.data.devices
        totals = {str(a): torch.zeros(count, device=device) for a in request.observers}
        strengths = {strength_key(key): torch.zeros(count, device=device) for key in totals}
        watch = request.watch(every=2)
        for round_ in request.rounds():
            for value in probe.round(engine, round_, watch):
                released, own, other = value.released[0::2], value.noiseless[0::2], value.noiseless[1::2]
                gain = (squares(released - other) - squares(released - own)) / (2 * value.std**2)
                apart = squares(own - other) / value.std**2
                for adversary in request.observers:
                    if value.message is None or adversary.sees(value.message, devices):
                        totals[str(adversary)] += gain
                        strengths[strength_key(str(adversary))] += apart
            request.done()
        scores = {key: total * request.signs(device) for key, total in totals.items()}
        return {**scores, **strengths, **_shadowed(request, engine, every=2), **_watched(watch, engine)}


class ShadowModels(Method):
    """Trainings that only adversaries who hold the trained server model look at."""

    name = "shadow models"
    guests = (Twins.name, Ratio.name)

    def scores(self, request: Request) -> dict[str, Tensor]:
        data = for_replicas(request.canary, [r % 2 for r in request.replicas]).into(request.system.data)
        engine, watch = request.system.train(request.replicas, data=data), request.watch()
        engine.run(Wire(watch), advance=request.step)
        return _shadowed(request, engine) | _watched(watch, engine)


class Learned(Method):
    """A score of what the view shows of the canary, learned on trials that are not tested."""

    name = "learned"
    of_rows = True

    def scores(self, request: Request) -> dict[str, Tensor]:
        system, canary = request.system, request.canary
        rows = {str(a): CanaryRows(canary, a, system.data, request.places) for a in request.adversaries}
        data = for_replicas(canary, [r % 2 for r in request.replicas]).into(system.data)
        engine, watch = system.train(request.replicas, data=data), request.watch()
        engine.run(Wire(*rows.values(), watch), advance=request.step)
        features = {key: row.features(len(request.replicas)) for key, row in rows.items()}
        likeness = {likeness_key(key): row.likeness() for key, row in rows.items()}
        return features | {key: value for key, value in likeness.items() if value is not None} | _watched(watch, engine)

    def learning(self, trials: int) -> int:
        return min(trials, _LEARNING)

    def scored(self, shards: Sequence[Shard], learned_on: Sequence[Shard], view: str) -> Floats:
        """By a discriminant of the rows or of their likeness: whichever errs less among the trials it is learned on."""
        taught = {key: joined(learned_on, key) for key in (view, likeness_key(view)) if key in shards[0]}
        key = min(taught, key=lambda key: held_out_errors(taught[key][0::2], taught[key][1::2]))
        weights, offset = discriminant(taught[key][0::2], taught[key][1::2])
        return np.asarray(joined(shards, key) @ weights + offset, dtype=np.float64)


class WholeViews(Learned):
    """Trainings of which only features of whole views are kept (`WholeViewScores`)."""

    name = WHOLE_VIEW

    def learning(self, trials: int) -> int:
        del trials
        return 0


METHODS: Mapping[str, Method] = {
    method.name: method for method in (Ratio(), SecretBatches(), Twins(), ShadowModels(), Learned(), WholeViews())
}


def _watched(watch: WholeView, engine: Engine) -> dict[str, Tensor]:
    """The features of each watcher, by the names under which they are stored."""
    return {feature_key(key): features for key, features in watch.features(engine).items()}


def _shadowed(request: Request, engine: Engine, *, every: int = 1) -> dict[str, Tensor]:
    """For adversaries that hold the trained server model: is it nearer to one trained in world 0, or in world 1?

    The adversary trains both by itself, with noise of its own and everything else the same. Each so-many-th replica of
    the trained engine is a trial.
    """
    system, replicas = request.system, request.replicas
    holders = [a for a in request.adversaries if a.holds_model]
    if not holders:
        return {}
    data = for_replicas(request.canary, [0, 1] * len(replicas)).into(system.data)
    shadows = system.train([r for r in replicas for _ in (0, 1)], data=data)
    shadows.redraw_noise(derive(system.seed, "canary"), [3 * r + k for r in replicas for k in (1, 2)])
    shadows.run(Wire())
    trained, total = shadows.server_parameters(), torch.zeros(len(replicas), device=system.torch_device)
    for name, value in engine.server_parameters().items():
        real, first, second = value[::every], trained[name][0::2], trained[name][1::2]
        total += squares(real - second) - squares(real - first)
    return {str(a): total for a in holders}


def trainings_per_trial(method: Method, adversaries: Sequence[Adversary]) -> int:
    """Replicas in memory for each trial: its own, its twin, and two shadows for whoever holds the model."""
    return method.trainings + (2 if any(a.holds_model for a in adversaries) else 0)


def hosts(methods: Sequence[Method]) -> dict[str, Method]:
    """The method whose trainings each method uses, by its name: of those in use, one that serves others too."""
    used = {method.name for method in methods}
    return {m.name: METHODS[next((name for name in m.guests if name in used), m.name)] for m in methods}


# Which method tests a claim


@dataclass(frozen=True)
class Choice:
    """The method that scores a view, or why there is none."""

    method: Method | None = None
    refusal: str | None = None


def canary_unit(ledger: Ledger, adversary: Adversary, unit: Unit, kind: CanaryKind) -> Unit:
    """What a canary of this kind usually changes to test a claim about `unit` before this adversary.

    A record's contribution sits at the clip as a whole. A record of the data set has its label or its features
    replaced, whichever the adversary sees without noise; where it is neither or both, its label if noised releases
    depend on labels. What the adversary holds itself, or never sees, is not replaced: that would test nothing. A record
    is left out where all that the adversary sees of it is in noised releases; elsewhere it is replaced, which is two
    steps of a claim about absence (`Trials.steps`).
    """
    return canary_units(ledger, adversary, unit, kind)[0]


def canary_units(ledger: Ledger, adversary: Adversary, unit: Unit, kind: CanaryKind) -> tuple[Unit, ...]:
    """Everything that a canary may change to test a claim about `unit` before this adversary, the usual choice first.

    Where both parts of a record are seen, they are its label, features of one device, and both of them at once.
    """
    if kind is CanaryKind.WORST_CASE or unit not in (Unit.RECORD, Unit.ADD_REMOVE):
        return (unit,)
    exposure = ledger.exposure(adversary, unit, reading=Reading.PAPER)
    if unit is Unit.ADD_REMOVE and _in_sums_alone(ledger, exposure):
        return (unit,)
    # Whoever is all devices holds every feature: what changed in them would be known without any message.
    devices = ledger.schedule.devices
    apart = (Unit.LABEL,) if len(exposure.adversary.members(devices)) == devices else (Unit.LABEL, Unit.FEATURES)
    noised = [r for r in ledger.releases if r.noise.noised]
    usual = Unit.LABEL if any(Unit.LABEL in r.sensitivity for r in noised) else apart[-1]
    parts = [ledger.exposure(adversary, part, reading=Reading.PAPER) for part in apart]
    seen = [e for e in parts if e.not_applicable is None and (e.events or e.unprotected)]
    telling = [e.unit for e in seen if e.unprotected] or [e.unit for e in seen]
    first = telling[0] if telling and usual not in telling else usual
    others = [e.unit for e in seen if e.unit is not first]
    return (first, *others, Unit.RECORD) if len(seen) > 1 else (first,)


def _in_sums_alone(ledger: Ledger, exposure: Exposure) -> bool:
    """Whether all that an adversary sees of a record is in releases with Gaussian noise, and no state keeps it."""
    leaks = any(r.leak is not None and exposure.unit in r.leak.sensitivity for r in ledger.releases)
    inside = {r.kind for r in ledger.releases if r.sent_as is not None}
    noised = all(event.noise.white and event.kind not in inside for event in exposure.events)
    return noised and not leaks and not exposure.unprotected


def choose(system: System, adversary: Adversary, unit: Unit, kind: CanaryKind) -> Choice:
    """The likelihood ratio where the ledger allows it, a learned score elsewhere."""
    exposure = system.ledger.exposure(adversary, unit, reading=Reading.PAPER)
    gaussian = any(e.noise.white for e in exposure.events)
    worst = kind is CanaryKind.WORST_CASE
    if exposure.not_applicable is not None:
        return Choice(refusal=f"two-world has nothing to tell: {exposure.not_applicable}")
    if not exposure.events and not exposure.unprotected:
        return Choice(refusal=f"nothing that {adversary} sees depends on the {unit} unit")
    if not adversary.knows_batches:
        return _without_batches(system, adversary, exposure, worst=worst)
    if worst and not gaussian:
        return Choice(refusal=f"two-world needs a noised release in the view of {adversary}, and there is none")
    if unit.per_record and exposure.events and (exposure.counts is None or not exposure.counts.any()):
        return Choice(refusal="two-world needs a record that takes part")
    return _with_batches(system, exposure, kind)


def _with_batches(system: System, exposure: Exposure, kind: CanaryKind) -> Choice:
    """Views that know the batches."""
    ledger, unit, worst = system.ledger, exposure.unit, kind is CanaryKind.WORST_CASE
    met = {event.kind for event in exposure.events}
    inside = next((r for r in ledger.releases if r.sent_as is not None and r.kind in met), None)
    if worst and inside is not None:
        return Choice(refusal=f"no message carries {inside.kind} with their noise, only {inside.sent_as} made of them")
    if worst:
        return Choice(METHODS[Ratio.name])
    leaks = any(r.leak is not None and unit in r.leak.sensitivity for r in ledger.releases)
    learned = bool(exposure.unprotected) or inside is not None or any(not e.noise.white for e in exposure.events)
    if learned:
        return Choice(METHODS[Learned.name])
    known = canary_unit(ledger, exposure.adversary, unit, kind) in (Unit.LABEL, Unit.ADD_REMOVE)
    return Choice(METHODS[Ratio.name if known and not leaks else Twins.name])


def _without_batches(system: System, adversary: Adversary, exposure: Exposure, *, worst: bool) -> Choice:
    """Views that do not know the batches: the trained model, or releases of Poisson batches."""
    if adversary.kind == "model" and exposure.unprotected and not worst and system.engine.capabilities.server_model:
        return Choice(METHODS[ShadowModels.name])
    sampled = [e for e in exposure.events if e.sampling is not None and e.sampling.scheme == "poisson"]
    gaussian = any(e.noise.white for e in exposure.events)
    mechanisms = system.engine.mechanisms(system.settings, system.schedule).values()
    hidden = system.schedule.batching is Batching.POISSON and any(m.additive and m.scalar for m in mechanisms)
    if adversary.kind == "outsider" and worst and gaussian and sampled and hidden:
        return Choice(METHODS[SecretBatches.name])
    return Choice(refusal=f"two-world needs a view that knows the batches, and {adversary} does not")


def whole_view_refusal(system: System, adversary: Adversary, unit: Unit) -> str | None:
    """Why no score can be learned from all that this adversary sees, or None.

    The ledger is asked what the adversary holds anyway, never whether anything that it sees depends on the unit.
    """
    exposure = system.ledger.exposure(adversary, unit, reading=Reading.PAPER)
    if exposure.not_applicable is not None:
        return f"two-world has nothing to tell: {exposure.not_applicable}"
    changed = canary_unit(system.ledger, adversary, unit, CanaryKind.NATURAL)
    if changed is Unit.ADD_REMOVE:
        return "messages of both worlds name the same records: a record is left out of noised sums alone"
    if changed is Unit.LABEL and adversary.kind in system.ledger.label_holders:
        return f"{adversary} holds the labels"
    if not adversary.knows_batches and any(event.sampling is not None for event in exposure.events):
        return f"all trials have the same batches, which are a secret to {adversary}"
    return None
