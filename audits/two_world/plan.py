"""Plans of the two-world audit: which trainings are made with which canary, and whose scores are read off them.

A question asks for trials of some views with one kind of canary. It needs one or several sets of trainings, since views
may need other canaries or methods. The plan of a set is all that its shards, scores and trials are made from.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from vflpriv.audits.two_world.canaries import REACH, plan, strongest_unit
from vflpriv.audits.two_world.methods import METHODS, Method, canary_units, choose, hosts
from vflpriv.audits.two_world.replay import Replays
from vflpriv.audits.two_world.scores import Request, filled, joined, strength_key
from vflpriv.audits.two_world.trials import Trials
from vflpriv.audits.two_world.whole_view import WHOLE_VIEW, WholeViewScores, WholeViewTrials, feature_key
from vflpriv.common.numerics import Floats
from vflpriv.common.seeds import derive
from vflpriv.common.store import Store
from vflpriv.core.canaries import FULL_TRIALS, Canary, CanaryKind, most_exposed
from vflpriv.core.claims import Claim
from vflpriv.core.ledger import Reading
from vflpriv.core.systems import System
from vflpriv.core.units import Unit
from vflpriv.core.views import Adversary
from vflpriv.errors import VflprivError

__all__ = ["Plan", "Question", "Shard", "TrainingSet", "first_replica"]

Shard = dict[str, Tensor]


@dataclass(frozen=True, kw_only=True)
class Question:
    """Trials in each world with a canary, the adversaries whose views score them, and those whose whole view does."""

    kind: CanaryKind
    trials: int
    unit: Unit
    adversaries: tuple[Adversary, ...]
    confidence: float = 0.95
    reach: float = REACH
    watchers: tuple[Adversary, ...] = ()
    watched: int = 0
    """Trials in each world, the first ones, of which whole views are kept."""
    full: int = FULL_TRIALS
    claims: tuple[Claim, ...] = ()
    """The claims that the views test."""
    watched_claims: tuple[Claim, ...] = ()
    """The claims that whole views test."""
    fresh: bool = False
    """Whether its trials confirm what others showed, and have to be none of them."""

    def again(self, claims: Collection[str], trials: int) -> Question:
        """The question about these claims alone, with so many fresh trials."""
        own = tuple(claim for claim in self.claims if claim.key in claims)
        watched = tuple(claim for claim in self.watched_claims if claim.key in claims)
        views = tuple(dict.fromkeys(claim.adversary for claim in own))
        most = -(-self.watched * trials // max(1, self.trials))
        asked = replace(self, claims=own, adversaries=views, trials=trials, fresh=True, watchers=(), watched=0)
        return replace(asked.watching(watched, most if watched else 0), watched_claims=watched)

    def watching(self, claims: Sequence[Claim], trials: int) -> Question:
        """The question whose trainings also serve the whole views of these claims."""
        watchers = tuple(dict.fromkeys(claim.adversary for claim in claims))
        return replace(self, watched_claims=tuple(claims), watchers=watchers, watched=trials)

    def sets(self, system: System) -> list[TrainingSet]:
        """The sets of trainings that it needs: views with the same canary and method share theirs."""
        choices = {a: choose(system, a, self.unit, self.kind) for a in self.adversaries}
        for adversary, choice in choices.items():
            if choice.refusal is not None:
                raise VflprivError(f"{adversary}: {choice.refusal}")
        methods = {a: c.method for a, c in choices.items() if c.method is not None}
        changed = {a: canary_units(system.ledger, a, self.unit, self.kind) for a in (*self.adversaries, *self.watchers)}
        # Likelihood ratios have one canary: before noised releases alone, the worst case is a whole record's anyway.
        changed = {a: units if a in methods and methods[a].of_rows else units[:1] for a, units in changed.items()}
        sets: list[TrainingSet] = []
        for units in dict.fromkeys(changed.values()):
            own = {a: m for a, m in methods.items() if changed[a] == units}
            host = hosts(list(own.values()))
            watchers = tuple(a for a in self.watchers if changed[a] == units)
            for method in dict.fromkeys(host.values()):
                views = {a: m for a, m in own.items() if host[m.name] is method}
                sets.append(TrainingSet(method=method, units=units, views=views, watchers=watchers, trials=self.trials))
                watchers = ()
            if watchers:
                whole = METHODS[WHOLE_VIEW]
                sets.append(TrainingSet(method=whole, units=units, views={}, watchers=watchers, trials=self.watched))
        return sets


@dataclass(frozen=True, eq=False, kw_only=True)
class TrainingSet:
    """Trainings with one canary that one method trains: the views that they serve, and by which method each."""

    method: Method
    units: tuple[Unit, ...]
    """What the canary may change; of several, the one that the views show most is chosen before any trial."""
    views: Mapping[Adversary, Method]
    watchers: tuple[Adversary, ...]
    """The adversaries whose whole view is kept."""
    trials: int
    """In each world."""

    @property
    def learning(self) -> int:
        """Further trials in each world that a score is learned on."""
        return self.method.learning(self.trials)

    @property
    def trainings(self) -> int:
        """Trainings in both worlds."""
        return 2 * (self.trials + self.learning)


@dataclass(frozen=True, eq=False, kw_only=True)
class Plan:
    """One set of trainings with its canary; `eyes` maps each adversary of a claim to the view it has.

    They differ where a claim is about any device: then the view is that of the most exposed one.
    """

    system: System
    canary: Canary
    method: Method
    reach: float
    trials: int
    learning: int
    eyes: Mapping[Adversary, Adversary]
    methods: Mapping[str, Method]
    """The method by which each view is scored: that of the trainings, or one that reads their models."""
    threshold: float
    watchers: Mapping[Adversary, tuple[Adversary, ...]]
    """The views whose features are kept, by the adversary of a claim that has one of them."""
    watched: int
    """Trials in each world, the first ones, whose features are kept."""
    full: int
    """Trials in each world, the first ones, that are trained; the others replay releases."""
    replay_refusal: str | None
    """Why no trial is replayed, where some would be."""
    fresh: bool = False
    """Whether its replicas are others than those of the same plan that is not fresh."""

    @classmethod
    def of(cls, system: System, question: Question, chosen: TrainingSet, store: Store) -> Plan:
        """The plan of one set; a crafted canary is searched for, unless it is in the store."""
        method = chosen.method
        seen = [system.ledger.exposure(a, question.unit, reading=Reading.PAPER) for a in chosen.views]
        eyes = [exposure.adversary for exposure in seen]
        record = most_exposed(seen, system.schedule) if chosen.units[0].per_record else 0
        # What an adversary holds tells it nothing: the features that change are those of another device.
        holders = frozenset(m for eye in eyes for m in eye.members(system.data.devices))
        several = len(chosen.units) > 1
        canary = plan(
            system,
            question.kind,
            record,
            store,
            unit=strongest_unit(system, record, chosen.units, eyes, holders) if several else chosen.units[0],
            rate=method.rate(system),
            reach=question.reach,
            views=eyes if method.of_rows else (),
            holders=holders,
        )
        return cls(
            system=system,
            canary=canary,
            method=method,
            reach=question.reach,
            trials=chosen.trials,
            learning=chosen.learning,
            eyes={adversary: exposure.adversary for adversary, exposure in zip(chosen.views, seen, strict=True)},
            methods={str(e.adversary): m for e, m in zip(seen, chosen.views.values(), strict=True)},
            threshold=method.threshold(system, canary, trials=chosen.trials, confidence=question.confidence),
            watchers={a: _strangers(a, canary, system.data.devices) for a in chosen.watchers},
            watched=question.watched if chosen.watchers else 0,
            full=min(question.full, chosen.trials) if canary.at_clip else chosen.trials,
            replay_refusal=method.replay_refusal(system) if canary.at_clip else None,
            fresh=question.fresh,
        )

    @property
    def observers(self) -> tuple[Adversary, ...]:
        """The views that are scored, each once."""
        return tuple(dict.fromkeys(self.eyes.values()))

    @property
    def watching(self) -> tuple[Adversary, ...]:
        """The views whose features are kept, each once."""
        return tuple(dict.fromkeys(view for views in self.watchers.values() for view in views))

    @property
    def first(self) -> int:
        """The number of its first replica."""
        return first_replica(self.trials, self.learning, self.watched, fresh=self.fresh)

    @property
    def key(self) -> str:
        """The name under which its scores are stored, among those of the system."""
        canary, views = self.canary, "+".join(map(str, self.eyes.values()))
        changed = f"{canary.kind}/{canary.unit}/{canary.record}/{canary.devices}/{canary.rate}"
        return f"{self.method.name}/{self.reach:g}/{changed}/{views}/strength"

    def request(
        self, replicas: range, step: Callable[[int], None] | None = None, watchers: Sequence[Adversary] = ()
    ) -> Request:
        """These replicas, to be trained and scored."""
        return Request(
            system=self.system,
            canary=self.canary,
            adversaries=self.observers,
            replicas=replicas,
            step=step,
            watchers=watchers,
        )

    def tested(
        self, shards: Sequence[Shard], learned_on: Sequence[Shard], looks: tuple[int, ...], replays: Replays
    ) -> dict[Adversary, Trials]:
        """The trials of these shards by adversary, scored by what was learned on others."""
        by_view = {}
        for view in self.observers:
            scores, key = self.method.scored(shards, learned_on, str(view)), strength_key(str(view))
            by_view[view] = Trials(
                adversary=view,
                canary=self.canary,
                scores=(scores[0::2], scores[1::2]),
                strengths=joined(shards, key) if key in shards[0] else np.zeros(0),
                looks=looks,
                method=self.methods[str(view)].name,
                threshold=self.threshold,
                replayed=replays.replayed,
                replay_refusal=replays.reason,
            )
        return {adversary: by_view[view] for adversary, view in self.eyes.items()}

    def whole_views(self, shards: Sequence[Shard], looks: tuple[int, ...]) -> dict[Adversary, WholeViewTrials]:
        """Scores of the whole view, learned on the first half of the watched trials, of those after it."""
        features = {a: _features(shards, str(a)) for a in self.watching}
        scores = WholeViewScores(features, canary=self.canary, trials=self.watched)
        tested = {adversary: scores.tested(views, looks) for adversary, views in self.watchers.items()}
        return {adversary: trials for adversary, trials in tested.items() if trials is not None}


def _features(shards: Sequence[Shard], name: str) -> Floats:
    """(2n, F) features of the watched trials; shards with fewer of them are filled up with zeros."""
    parts = [shard[feature_key(name)].to(torch.float64) for shard in shards if feature_key(name) in shard]
    rows: Floats = filled(parts).numpy() if parts else np.zeros((0, 0))
    return rows


def first_replica(trials: int, learning: int, watched: int, *, fresh: bool = False) -> int:
    """The number of the first replica of a plan of so many trials.

    Another plan has other replicas, so that no trial is tested again because of what it showed: a number of trials
    that was chosen after a look at fewer of them is tested on fresh ones. The same plan has the same ones, and a
    killed audit goes on.
    """
    numbers = (trials, learning, watched, 1) if fresh else (trials, learning, watched)
    return 2 * (derive(0, "canary", *numbers) % (1 << 59))


def _strangers(adversary: Adversary, canary: Canary, devices: int) -> tuple[Adversary, ...]:
    """The views meant by an adversary, without those of whoever holds the data that the canary changes."""
    owners = set(canary.devices) if canary.unit is not Unit.LABEL else set()
    return tuple(view for view in adversary.each(devices) if not owners & set(view.members(devices)))
