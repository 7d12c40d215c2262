"""A property of one device's data as what attacks guess: whether few or most of its records have a sensitive attribute.

Trainings on different draws of the records, each with a coin that decides which share of them has the attribute. An
attack sees half of the trainings; the others are the adversary's own, whose coins it knows. Draws are from the same
people: with others, what tells the two shares apart would be drowned by how the two groups of people differ.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from vflpriv.audits.scoring.attempts import Attempt, Secret
from vflpriv.audits.scoring.features import NO_COLUMN
from vflpriv.audits.scoring.score import AUC, Score, scored
from vflpriv.audits.scoring.trainings import Watched
from vflpriv.audits.statistics.resampling import auc_interval
from vflpriv.common.devices import precise_device
from vflpriv.common.seeds import host_generator
from vflpriv.core.attack import FeatureAttack, Guess, Guesses, PropertyAuxiliary
from vflpriv.core.engine import Engine
from vflpriv.core.systems import System
from vflpriv.core.views import Adversary, View
from vflpriv.core.wire import Message, Transcript, Wire

__all__ = ["SHARES", "Properties", "PropertyTraining"]

SHARES = (0.25, 0.75)
"""The share of records with the attribute, by the coin."""
_SPARE = 1.5
"""How many records there are for each that is drawn at most, so that two trainings share not all of them."""
_MOST, _ROUNDS, _FEWEST = 1000, 200, 8
"""Records of each training, and rounds of it: no more than so many; and no fewer records."""
_TOO_FEW = "needs more records with and without the sensitive attribute, of each label: a batch has to be drawn of them"
Advance = Callable[[int], None] | None


@dataclass(frozen=True, eq=False, kw_only=True)
class PropertyTraining:
    """Trains `models` replicas to be guessed about and as many of the adversary's own, all from the same first
    parameters, which are public; every replica has records and noise of its own.

    `attribute` (N,) of 0 and 1 is the victim's. Of each label there are as many records in every training, whatever its
    coin: labels, and how often each occurs, tell nothing of it.
    """

    system: System
    victim: int
    attribute: Tensor | None
    models: int
    confidence: float

    @property
    def coins(self) -> Tensor:
        """(2 · models,) of 0 and 1, as many of each among those that are guessed about and among the others."""
        thrown = [
            host_generator(self.system.seed, "canary", half).permutation(np.arange(self.models) % 2) for half in (0, 1)
        ]
        return torch.from_numpy(np.concatenate(thrown))

    @property
    def records(self) -> Tensor:
        """(2 · models, m) which records each replica trains on."""
        labels, attribute = self.system.data.labels.cpu().numpy(), np.asarray(self.attribute)
        strata = {(y, a): np.flatnonzero((labels == y) & (attribute == a)) for y in np.unique(labels) for a in (0, 1)}
        # What the rarer value of the attribute allows in either world, of each label.
        sizes = {y: min(len(strata[y, a]) for a in (0, 1)) / max(SHARES) / _SPARE for y in np.unique(labels)}
        scale = min(1.0, _MOST / max(1.0, sum(sizes.values())))
        rows = []
        for r, coin in enumerate(self.coins.tolist()):
            generator, drawn = host_generator(self.system.seed, "canary", 2 + r), []
            for y, size in sizes.items():
                count = int(size * scale)
                having = round(SHARES[coin] * count)
                for a, some in ((1, having), (0, count - having)):
                    drawn.append(generator.permutation(strata[y, a])[:some])
            rows.append(generator.permutation(np.concatenate(drawn)))
        return torch.from_numpy(np.stack(rows))

    def attempts(
        self,
        attacks: Sequence[Any],
        adversaries: Sequence[Adversary],
        needs: frozenset[str],
        advance: Advance = None,
    ) -> list[Attempt]:
        """Try every attack through every view, on messages of these kinds."""
        refusal = NO_COLUMN if self.attribute is None else None
        views = None if refusal else self._views(adversaries, needs, advance)
        if views is None:
            reason = refusal or _TOO_FEW
            return [Attempt.of(a, who, victim=self.victim, refusal=reason) for a in attacks for who in adversaries]
        guessed, known = self.coins.split(self.models)
        common: dict[str, Any] = {"seed": self.system.seed, "confidence": self.confidence, "victim": self.victim}
        return [
            Properties(coins=guessed, own=views[who][1], own_coins=known, **common).attempt(attack, views[who][0])
            for attack in attacks
            for who in adversaries
        ]

    def _views(
        self, adversaries: Sequence[Adversary], needs: frozenset[str], advance: Advance
    ) -> Mapping[Adversary, tuple[View, View]] | None:
        """What each adversary sees of the replicas that are guessed about and of its own; None with too few records."""
        records, system = self.records, self.system
        if records.shape[1] < max(system.settings.batch_size, _FEWEST):
            return None
        data, engine = system.data, self._engine(records)
        watched = Watched(needs, frozenset({self.victim}))
        engine.run(Wire(watched), advance=advance, stop=lambda round_: round_ + 1 >= _ROUNDS)
        messages = [m.to(precise_device(system.torch_device)) for m in watched.transcript.messages]
        first, second = (
            Transcript(messages=[_part(m, half) for m in messages])
            for half in (slice(0, self.models), slice(self.models, None))
        )

        def seen(half: Transcript, who: Adversary) -> View:
            return View.of(half, who, devices=data.devices, classes=data.classes)

        return {who: (seen(first, who), seen(second, who)) for who in adversaries}

    def _engine(self, records: Tensor) -> Engine:
        """The system with a replica for each row of records, all from one start, each with noise of its own."""
        system, data = self.system, self.system.data
        kept = replace(data, blocks=tuple(b[records[0]] for b in data.blocks), labels=data.labels[records[0]])
        blocks = {m: block[records] for m, block in enumerate(data.blocks)}
        drawn = kept.override(range(records.shape[1]), labels=data.labels[records], blocks=blocks)
        sizes = {"records": drawn.records, "devices": drawn.devices, "seed": system.seed}
        schedule = system.engine.draw_schedule(system.settings, **sizes)
        engine = replace(system, data=drawn, schedule=schedule).train([0] * len(records))
        engine.redraw_noise(system.seed, range(len(records)))
        return engine


def _part(message: Message, replicas: slice) -> Message:
    """The message of some replicas."""
    return replace(message, tensors={name: value[replicas] for name, value in message.tensors.items()})


@dataclass(frozen=True, eq=False, kw_only=True)
class Properties(Secret):
    """The coins (models,) of trainings, beside what the adversary sees of its own (`own`), whose coins it knows."""

    coins: Tensor
    victim: int
    own: View
    own_coins: Tensor

    nothing_to_score: ClassVar[str] = "no guess to score: all trainings have the same share"

    @property
    def attacked_device(self) -> int:
        return self.victim

    def auxiliary(self, attack: FeatureAttack, r: int) -> PropertyAuxiliary:
        del attack, r
        return PropertyAuxiliary(victim=self.victim, own=self.own, coins=self.own_coins)

    def refusal(self, attack: FeatureAttack, view: View, auxiliaries: Sequence[PropertyAuxiliary]) -> str | None:
        return attack.refusal(view, auxiliaries[0])

    def guesses(self, attack: FeatureAttack, view: View, auxiliaries: Sequence[PropertyAuxiliary]) -> Guesses:
        return [attack.run(view, auxiliaries[0])], [attack.blind(view.silent(), auxiliaries[0])]

    def score(
        self, attack: FeatureAttack, guess: Guess, blind: Guess | None, auxiliary: PropertyAuxiliary, r: int
    ) -> Score | None:
        del attack, blind, auxiliary, r
        coins, scores = self.coins.to(guess.values.device)[guess.records], guess.values[0]
        if not 0 < int(coins.sum()) < len(coins):
            return None
        success = auc_interval(scores[coins == 0], scores[coins == 1], self.confidence)
        return scored(AUC, success, chance=0.5, guesses=len(scores))
