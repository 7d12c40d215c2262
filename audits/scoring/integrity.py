"""Integrity as what attacks go after: what a model predicts that dishonest devices have helped to train.

Each attack has a training of its own. Its success is held against an honestly trained model that is asked about the
same records, as they are and as the dishonest devices change them. The accuracy is that on records as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from vflpriv.audits.scoring.attempts import Attempt
from vflpriv.audits.scoring.candidates import predictions
from vflpriv.audits.scoring.score import SHARE, Score, mean_score, scored
from vflpriv.audits.scoring.trainings import Training, attempt_work
from vflpriv.audits.statistics.bounds import interval
from vflpriv.common.seeds import derive, host_generator
from vflpriv.core.attack import IntegrityAttack, IntegrityAuxiliary
from vflpriv.core.data import VerticalData
from vflpriv.core.engine import Engine
from vflpriv.core.systems import System
from vflpriv.core.views import Adversary, View
from vflpriv.core.wire import Wire

__all__ = ["IntegrityTrials"]

Advance = Callable[[int], None] | None
Blocks = Mapping[int, Tensor]
NOTHING_TO_SCORE = "needs test records of other classes than the one that it wants"


@dataclass(frozen=True, eq=False, kw_only=True)
class IntegrityTrials:
    """Tries attacks on the integrity of a system: `honest` is a training of it in which all devices are.

    The class that attacks want is the last one; those that know `target` are told `known` of its training records.
    """

    honest: Training
    confidence: float
    known: int

    @property
    def system(self) -> System:
        """The system that is attacked."""
        return self.honest.system

    def run(
        self, attacks: Sequence[IntegrityAttack], adversaries: Sequence[Adversary], *, advance: Advance = None
    ) -> tuple[Attempt, ...]:
        """Try every attack by every adversary, each in a training of its own."""
        views = self.honest.views(adversaries)
        return tuple(self._attempt(attack, views[who], advance) for attack in attacks for who in adversaries)

    def _attempt(self, attack: IntegrityAttack, honest: View, advance: Advance) -> Attempt:
        system, members = self.system, honest.adversary.members(self.system.data.devices)
        attempt, auxiliary = Attempt.of(attack, honest.adversary), self._auxiliary(attack, members)
        refusal = attack.refusal(honest, auxiliary)
        labels = system.data.test_labels
        asked = torch.ones_like(labels, dtype=torch.bool) if attack.goal == "wrong" else labels != auxiliary.target
        if refusal is None and not bool(asked.any()):
            refusal = NOTHING_TO_SCORE
        if refusal is not None:
            return replace(attempt, refusal=refusal)
        engine = self._trained(attack, auxiliary, advance)
        own = {m: system.data.test_blocks[m].to(system.torch_device) for m in members}
        changed = {m: rows.to(system.data.test_blocks[m].device) for m, rows in attack.asked(own, auxiliary).items()}
        before, after = self.honest.engine, engine
        said = {
            "success": self._said(attack, after, changed, auxiliary, honest.adversary),
            "blind": self._said(attack, before, changed, auxiliary, honest.adversary),
            "chance": self._said(attack, before, {}, auxiliary, honest.adversary),
            "main": self._said(attack, after, {}, auxiliary, honest.adversary),
        }
        scores = self._scores(attack, said, asked, auxiliary)
        return replace(attempt, scores=tuple(scores), mean=mean_score(scores, confidence=self.confidence))

    def _auxiliary(self, attack: IntegrityAttack, members: Sequence[int]) -> IntegrityAuxiliary:
        data, where = self.system.data.to(self.system.torch_device), self.system.torch_device
        target, seed = data.classes - 1, derive(self.system.seed, "attack") >> 1
        records = (data.labels == target).nonzero().flatten().cpu()
        order = torch.from_numpy(host_generator(self.system.seed, "auxiliary").permutation(len(records)))
        count = self.known if "target" in attack.knows else 0
        blocks = {m: data.blocks[m] for m in members}
        told = records[order[:count]].sort().values.to(where)
        return IntegrityAuxiliary(blocks=blocks, records=told, target=target, seed=seed)

    def _trained(self, attack: IntegrityAttack, auxiliary: IntegrityAuxiliary, advance: Advance) -> Engine:
        """The system trained with dishonest devices, in as many replicas as the honest training has."""
        poisoned, data = attack.poisoned(auxiliary), self.system.data
        blocks = tuple(poisoned[m].to(block.device) if m in poisoned else block for m, block in enumerate(data.blocks))
        engine = self.system.train(
            self.honest.engine.replicas, data=replace(data, blocks=blocks), conducts=attack.conducts(auxiliary)
        )
        engine.run(Wire(), advance=advance)
        if advance is not None:
            advance(attempt_work(self.system))
        return engine

    def _said(
        self, attack: IntegrityAttack, engine: Engine, changed: Blocks, auxiliary: IntegrityAuxiliary, who: Adversary
    ) -> Tensor:
        """(R, n) what the model says of the test records, of which some devices have changed rows."""
        view = _predicted(engine, self.system.data, changed, who)
        return attack.run(view, auxiliary).values.cpu()

    def _scores(
        self, attack: IntegrityAttack, said: Mapping[str, Tensor], asked: Tensor, auxiliary: IntegrityAuxiliary
    ) -> list[Score]:
        truth, asked = self.system.data.test_labels.cpu(), asked.cpu()

        def reached(predicted: Tensor) -> float:
            right = predicted == auxiliary.target if attack.goal == "target" else predicted != truth
            return float(right[asked].double().mean())

        def accuracy(predicted: Tensor) -> float:
            return float((predicted == truth).double().mean())

        scores, count = [], int(asked.sum())
        for r in range(len(said["success"])):
            share = reached(said["success"][r])
            success = share, *interval(round(share * count), count, self.confidence)
            numbers = {"main": accuracy(said["main"][r]), "main_honest": accuracy(said["chance"][r])}
            chance, blind = reached(said["chance"][r]), reached(said["blind"][r])
            scores.append(scored(SHARE, success, chance=chance, blind=blind, guesses=count, numbers=numbers))
        return scores


def _predicted(engine: Engine, data: VerticalData, changed: Blocks, who: Adversary) -> View:
    """What an adversary is told of the test records, of which some devices have changed rows."""
    blocks = tuple(changed.get(m, block) for m, block in enumerate(data.test_blocks))
    asked = replace(data, blocks=blocks, labels=data.test_labels, overrides=None).to(engine.torch_device)
    records = torch.arange(len(data.test_labels), device=engine.torch_device)
    return View.of(predictions(engine, asked, records), who, devices=data.devices, classes=data.classes)
