"""Candidates for membership attacks: trainings in which a coin decides for each pair of records which one takes part.

After such a training the model predicts the candidates; each adversary sees these predictions and nothing of the
training.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from vflpriv.audits.scoring.membership import Members
from vflpriv.common.devices import precise_device
from vflpriv.common.seeds import derive, host_generator
from vflpriv.core.attack import ShadowModels
from vflpriv.core.data import VerticalData
from vflpriv.core.engine import Engine
from vflpriv.core.systems import System
from vflpriv.core.views import Adversary, View
from vflpriv.core.wire import SERVER, Message, Transcript, Wire, device

__all__ = ["SHADOW_MODELS", "Candidates", "MembershipTraining", "predictions"]

SHADOW_MODELS = 32
"""How many models an attack that needs some has trained."""
Advance = Callable[[int], None] | None


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


@dataclass(frozen=True, kw_only=True)
class MembershipTraining:
    """Trains a system on one record of each of `pairs` pairs and on all others, every seed with coins of its own.

    Of `known` candidates, in whole pairs, an attack may be told whether they were members; they are not scored.

    An attack that needs `shadow_models` is given predictions by as many models of the same system, which its adversary
    trains on the same pairs with coins of its own: their first parameters, batches and noise are others, too.
    """

    system: System
    seeds: int
    pairs: int
    known: int
    shadow_models: int = SHADOW_MODELS

    @property
    def candidates(self) -> Candidates:
        """The pairs and every seed's coins."""
        records = self.system.data.records
        return Candidates.draw(records, self.pairs, replicas=range(self.seeds), seed=self.system.seed)

    @property
    def trained(self) -> System:
        """The system that is trained: its batches are drawn again, from fewer records."""
        return self._with_coins(self.candidates, self.system.seed)

    def _with_coins(self, candidates: Candidates, seed: int) -> System:
        """The system on what these coins leave of its data, with the random draws of this seed."""
        system, data = self.system, candidates.into(self.system.data)
        draw = system.engine.draw_schedule
        schedule = draw(system.settings, records=data.records, devices=data.devices, seed=seed)
        return replace(system, data=data, schedule=schedule, seed=seed)

    def views(self, adversaries: Sequence[Adversary], advance: Advance = None) -> dict[Adversary, View]:
        """Train, and what each adversary sees of the predictions."""
        predicted = self._predictions(self.trained, self.candidates, advance)
        return {adversary: _view(predicted, adversary, self.system.data) for adversary in adversaries}

    def secret(self, *, confidence: float, shadows: bool, advance: Advance = None) -> Members:
        """What attacks guess; with `shadows`, the models are trained that some attacks need."""
        candidates, where = self.candidates, precise_device(self.system.torch_device)
        numbers = torch.arange(min(self.known, len(candidates.pairs)) // 2)
        return Members(
            seed=self.system.seed,
            confidence=confidence,
            seeds=self.seeds,
            trained=torch.stack([candidates.members(r) for r in range(self.seeds)]).to(where),
            labels=self.system.data.labels.to(where)[candidates.records.to(where)],
            # Both of the first pairs, which are in random order; at most half of all pairs.
            known=torch.cat((numbers, numbers + len(candidates.pairs))).to(where),
            shadows=self._shadows(candidates, advance) if shadows else None,
            defences=self.system.defences,
        )

    def _predictions(self, system: System, candidates: Candidates, advance: Advance) -> Transcript:
        """Train a replica for each row of coins; what the trained models say of all candidates."""
        engine = system.train(range(len(candidates.coins)))
        engine.run(Wire(), advance=advance)
        where = self.system.torch_device
        return predictions(engine, self.system.data.to(where), candidates.records.to(where))

    def _shadows(self, candidates: Candidates, advance: Advance) -> ShadowModels:
        """The models that the adversary trains itself."""
        seed = derive(self.system.seed, "attack")
        thrown = candidates.thrown_again(self.shadow_models, seed=seed)
        predicted = self._predictions(self._with_coins(thrown, seed), thrown, advance)
        confidences = predicted.messages[0].tensors["confidences"]
        members = torch.stack([thrown.members(r) for r in range(self.shadow_models)])
        return ShadowModels(confidences=confidences, members=members.to(confidences.device))


@torch.no_grad()
def predictions(engine: Engine, data: VerticalData, records: Tensor) -> Transcript:
    """The messages by which a trained model predicts these records: every device is sent all confidences."""
    logits = engine.predicted([block[records] for block in data.blocks], len(engine.replicas))
    logits = logits.to(precise_device(logits.device), torch.float64)
    confidences = torch.softmax(logits, dim=-1)
    numbers = torch.arange(len(records), device=logits.device)
    messages = [
        Message(
            round=engine.schedule.rounds,
            sender=SERVER,
            receiver=device(m),
            kind="predictions",
            tensors={"confidences": confidences},
            records=numbers,
        )
        for m in range(data.devices)
    ]
    return Transcript(messages=messages)


def _view(predicted: Transcript, adversary: Adversary, data: VerticalData) -> View:
    """What an adversary sees of the predictions; the holder of the model can compute them itself."""
    if adversary.kind == "model":
        return View(adversary, tuple(predicted.messages[:1]), data.classes)
    return View.of(predicted, adversary, devices=data.devices, classes=data.classes)
