"""Membership: one training in which a coin decided which record of each pair is in it, and attacks afterwards."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from vflpriv.audits.membership_success import MembershipLeak, membership_leak, membership_score
from vflpriv.data import VerticalData
from vflpriv.membership_attempts import Candidates, MembershipAttack, MembershipAuxiliary
from vflpriv.parties import SERVER, device
from vflpriv.systems import System
from vflpriv.views import Adversary, View
from vflpriv.wire import Message, Transcript, Wire

__all__ = ["MembershipTrials", "MembershipTried", "predictions"]


@dataclass(frozen=True, kw_only=True)
class MembershipTried:
    """One attack through one view, or the reason why it was not tried."""

    attack: str
    adversary: Adversary
    knows: frozenset[str]
    leak: MembershipLeak | None = None
    refusal: str | None = None


@dataclass(frozen=True, kw_only=True)
class MembershipTrials:
    """Trains a system on one record of each of `pairs` pairs and on all others, every seed with coins of its own.

    After the training the candidates are predicted; each adversary sees these predictions and none of the training.
    `known` candidates, pair by pair, are given away and not scored.
    """

    system: System
    seeds: int
    confidence: float
    pairs: int
    known: int

    @property
    def candidates(self) -> Candidates:
        """The pairs and every seed's coins."""
        records = self.system.data.records
        return Candidates.draw(records, self.pairs, replicas=range(self.seeds), seed=self.system.seed)

    @property
    def trained(self) -> System:
        """The system that is trained: its batches are drawn anew, from fewer records."""
        system = self.system
        data = self.candidates.into(system.data)
        draw = system.engine.draw_schedule
        schedule = draw(system.settings, records=data.records, devices=data.devices, seed=system.seed)
        return replace(system, data=data, schedule=schedule)

    def run(
        self,
        attacks: Sequence[MembershipAttack],
        adversaries: Sequence[Adversary],
        *,
        advance: Callable[[int], None] | None = None,
    ) -> tuple[MembershipTried, ...]:
        """Every attack through every view."""
        candidates, data = self.candidates, self.system.data.to(self.system.torch_device)
        engine: Any = self.trained.train(range(self.seeds))
        engine.run(Wire(), advance=advance)
        asked = predictions(engine, data, candidates.records.to(self.system.torch_device))
        views = [_view(asked, adversary, data) for adversary in adversaries]
        return tuple(self._try(attack, view, candidates, data) for attack in attacks for view in views)

    def _try(self, attack: MembershipAttack, view: View, candidates: Candidates, data: VerticalData) -> MembershipTried:
        tried = MembershipTried(attack=attack.name, adversary=view.adversary, knows=attack.knows)
        scores, where = [], data.labels.device
        labels = data.labels[candidates.records.to(where)]
        told = _told(candidates, self.known).to(where)
        for r in range(self.seeds):
            inside, mine = candidates.members(r).to(where), view.replica(r)
            auxiliary = MembershipAuxiliary(labels=labels, records=told, members=inside[told].long())
            refusal = attack.refusal(mine, auxiliary)
            if refusal is not None:
                return replace(tried, refusal=refusal)
            guess = attack.run(mine, auxiliary)
            rows = ~torch.isin(guess.records, told)
            truth = inside[guess.records[rows]]
            scores.append(membership_score(guess.scores[0][rows], truth, confidence=self.confidence))
        return replace(tried, leak=membership_leak(scores, confidence=self.confidence))


@torch.no_grad()
def predictions(engine: Any, data: VerticalData, records: Tensor) -> Transcript:
    """What passes when a trained model is asked for these records: every device is sent all confidences."""
    logits = engine.predict([block[records] for block in data.blocks], len(engine.replicas))
    confidences = torch.softmax(logits.double(), dim=-1)
    numbers = torch.arange(len(records), device=records.device)
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


def _view(asked: Transcript, adversary: Adversary, data: VerticalData) -> View:
    """What an adversary sees of the predictions; who holds the model computes them."""
    if adversary.kind == "model":
        return View(adversary, tuple(asked.messages[:1]), data.classes)
    return View.of(asked, adversary, devices=data.devices, classes=data.classes)


def _told(candidates: Candidates, known: int) -> Tensor:
    """Both candidates of the first pairs, of at most half of them: pairs are in no order."""
    pairs = len(candidates.pairs)
    first = torch.arange(min(known, pairs) // 2)
    return torch.cat((first, first + pairs))
