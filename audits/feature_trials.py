"""Attacks on one device's features: one training of several seeds at once, every attack through every view."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from vflpriv.audits._images import picture_shape
from vflpriv.audits.attack_trials import Watched
from vflpriv.audits.feature_success import FeatureLeak, FeatureScore, attribute_score, feature_leak, feature_score
from vflpriv.feature_attempts import AttributeGuess, FeatureAttack, FeatureAuxiliary, FeatureGuess, KnownModel
from vflpriv.seeds import derive, host_generator
from vflpriv.systems import System
from vflpriv.views import Adversary, View
from vflpriv.wire import Wire

__all__ = ["FeatureTrials", "FeatureTried", "known_model"]

_SHOWN = 8
_MEMORY = 1 << 30


@dataclass(frozen=True, kw_only=True)
class FeatureTried:
    """One attack through one view, or the reason why it was not tried.

    `pictures` is (2, n, channels, height, width), originals above reconstructions, of the first seed, for pictures.
    """

    attack: str
    target: str
    adversary: Adversary
    victim: int
    knows: frozenset[str]
    leak: FeatureLeak | None = None
    refusal: str | None = None
    pictures: Tensor | None = None


def known_model(engine: Any, m: int, rounds: Mapping[int, Mapping[str, Tensor]]) -> KnownModel:
    """Device m's model as a white box: what it sends but for the noise, so its clip included."""
    model, mechanism = engine.bank.models[m], engine.mechanisms(engine.settings, engine.schedule).get("embeddings")

    def apply(parameters: Mapping[str, Tensor], rows: Tensor) -> Tensor:
        outputs: Tensor = model.apply(parameters, rows)
        return outputs if mechanism is None else mechanism.noiseless(outputs)

    return KnownModel(apply=apply, rounds=rounds)


@dataclass(frozen=True, kw_only=True)
class FeatureTrials:
    """Trains a system once and tries every attack on the block of device `victim`.

    Each seed is a replica of its own with its own `known` records, drawn at random. An attack is given only what it
    declares to know; success is scored here, on the other records. `attribute` is a column of the victim's block: the
    sensitive attribute is whether its value lies above the column's middle.
    """

    system: System
    seeds: int
    confidence: float
    known: int
    victim: int
    attribute: int | None = None

    def run(
        self,
        attacks: Sequence[FeatureAttack],
        adversaries: Sequence[Adversary],
        *,
        advance: Callable[[int], None] | None = None,
    ) -> tuple[FeatureTried, ...]:
        """Every attack through every view."""
        data = self.system.data
        sent = frozenset(release.kind for release in self.system.ledger.releases)
        watched = Watched(frozenset().union(*(a.needs for a in attacks)) & sent)
        engine: Any = self.system.train(range(self.seeds))
        models = self._train(engine, watched, advance, white=any("model" in a.knows for a in attacks))
        members = {m for adversary in adversaries for m in adversary.members(data.devices)}
        own = {m: engine.belongings(m) for m in sorted(members)}
        shape = {"devices": data.devices, "classes": data.classes}
        views = [View.of(watched.whole, adversary, own=own, **shape) for adversary in adversaries]
        return tuple(self._try(attack, view, models) for attack in attacks for view in views)

    def _train(
        self, engine: Any, watched: Watched, advance: Callable[[int], None] | None, *, white: bool
    ) -> dict[int, KnownModel]:
        """All rounds; every device's model as it was before each of the last ones, as many as memory has room for."""
        every = [engine.bank.parameters[m] for m in range(self.system.data.devices)] if white else []
        rounds = self.system.schedule.rounds
        each = sum(value.numel() * value.element_size() for one in every for value in one.values())
        first = max(0, rounds - _MEMORY // max(1, each))
        kept: dict[int, dict[int, dict[str, Tensor]]] = {m: {} for m in range(len(every))}

        def keep(round_: int) -> None:
            for m in kept if round_ >= first else ():
                kept[m][round_] = {name: value.clone() for name, value in engine.bank.parameters[m].items()}

        wire = Wire(watched)
        for round_ in range(rounds):
            keep(round_)
            engine.round(round_, wire)
            if advance is not None:
                advance(1)
        keep(rounds)
        return {m: known_model(engine, m, found) for m, found in kept.items()}

    def _try(self, attack: FeatureAttack, view: View, models: Mapping[int, KnownModel]) -> FeatureTried:
        words: dict[str, Any] = {"attack": attack.name, "target": attack.target, "knows": attack.knows}
        tried = FeatureTried(**words, adversary=view.adversary, victim=self.victim)
        if attack.target == "attribute" and self.attribute is None:
            return _refused(tried, "needs a sensitive column; none is named")
        scores: list[FeatureScore] = []
        pictures = None
        for r in range(self.seeds):
            auxiliary, mine = self._auxiliary(attack, models, r), view.replica(r)
            refusal = attack.refusal(mine, auxiliary)
            if refusal is not None:
                return _refused(tried, refusal)
            guess, blind = attack.run(mine, auxiliary), attack.blind(mine.silent(), auxiliary)
            scores.append(self._score(guess, blind, auxiliary, r))
            if pictures is None and isinstance(guess, FeatureGuess):
                pictures = self._pictures(guess, auxiliary)
        leak = feature_leak(scores, confidence=self.confidence)
        return FeatureTried(**words, adversary=view.adversary, victim=self.victim, leak=leak, pictures=pictures)

    @property
    def _truth(self) -> Tensor:
        return self.system.data.blocks[self.victim].to(self.system.torch_device)

    def _sensitive(self) -> Tensor:
        column = self._truth.flatten(1)[:, self.attribute or 0]
        return (column > (column.min() + column.max()) / 2).long()

    def _auxiliary(self, attack: FeatureAttack, models: Mapping[int, KnownModel], r: int) -> FeatureAuxiliary:
        system, truth = self.system, self._truth
        generator = host_generator(system.seed, "auxiliary", r)
        told = "records" in attack.knows or "attribute" in attack.knows
        count = min(self.known, len(truth) // 2) if told else 0
        chosen = torch.from_numpy(generator.permutation(len(truth))[:count]).sort().values.to(truth.device)
        rows = chosen if "records" in attack.knows else chosen[:0]
        blocks = [block.to(truth.device).flatten(1).index_select(0, rows) for block in system.data.blocks]
        mechanism = system.engine.mechanisms(system.settings, system.schedule).get("embeddings")
        return FeatureAuxiliary(
            victim=self.victim,
            records=chosen,
            blocks=dict(enumerate(blocks)),
            attribute=self._sensitive().index_select(0, chosen) if "attribute" in attack.knows else None,
            models={m: model.replica(r) for m, model in models.items()} if "model" in attack.knows else {},
            noise_std=0.0 if mechanism is None else mechanism.noise_std,
            seed=derive(system.seed, "attack", r) >> 1,
        )

    def _score(
        self,
        guess: FeatureGuess | AttributeGuess,
        blind: FeatureGuess | AttributeGuess | None,
        auxiliary: FeatureAuxiliary,
        r: int,
    ) -> FeatureScore:
        known = auxiliary.records
        if isinstance(guess, AttributeGuess):
            alone = blind if isinstance(blind, AttributeGuess) else None
            sensitive = self._sensitive()
            return attribute_score(guess, sensitive, known=known, confidence=self.confidence, blind=alone)
        made = blind if isinstance(blind, FeatureGuess) else None
        return feature_score(guess, self._truth, known=known, confidence=self.confidence, blind=made, seed=r)

    def _pictures(self, guess: FeatureGuess, auxiliary: FeatureAuxiliary) -> Tensor | None:
        truth, shape = self._truth, picture_shape(self._truth)
        if shape is None:
            return None
        rows = (~torch.isin(guess.records, auxiliary.records)).nonzero().flatten()[:_SHOWN]
        made = guess.blocks[0].index_select(0, rows).to(truth).clamp(0, 1)
        real = truth.index_select(0, guess.records.index_select(0, rows)).flatten(1)
        return torch.stack((real, made)).reshape(2, len(rows), *shape).cpu()


def _refused(tried: FeatureTried, why: str) -> FeatureTried:
    return FeatureTried(
        attack=tried.attack,
        target=tried.target,
        adversary=tried.adversary,
        victim=tried.victim,
        knows=tried.knows,
        refusal=why,
    )
