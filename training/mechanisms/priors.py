"""Randomised response with a prior, in one or several stages: labels that are drawn once each, during training.

"Deep Learning with Label Differential Privacy" (Ghazi et al., NeurIPS 2021), Algorithms 2 and 3. A label's response is
drawn when the server first computes the model's prediction for its record. That prediction depends on other records'
responses alone, so that every label costs ε once.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from vflpriv.common.lazy import torch
from vflpriv.common.random import Answers, answered
from vflpriv.core.engine import Probe
from vflpriv.core.law import Draws
from vflpriv.core.schedules import Schedule
from vflpriv.training.mechanisms.labels import LabelMechanism

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["DrawnLabels", "PriorAnswers", "PriorLabels", "response", "response_law"]


def _best(prior: Tensor, epsilon: float) -> tuple[Tensor, Tensor]:
    """The classes from likeliest to least likely, (…, C), and how many of them to choose among, (…,): Algorithm 2.

    The best k is that of the largest e^ε/(e^ε + k - 1) · Σ of the k largest probabilities, with which a label drawn
    from the prior is kept. The least k where several are best.
    """
    ordered, order = prior.sort(dim=-1, descending=True, stable=True)
    others = torch.arange(prior.shape[-1], device=prior.device, dtype=prior.dtype)
    kept = ordered.cumsum(-1) / (1 + others * math.exp(-epsilon))
    return order, 1 + kept.argmax(-1)


def response(labels: Tensor, prior: Tensor, uniform: Tensor, epsilon: float) -> Tensor:
    """RRWithPrior's response (…,) to labels (…,) under priors (…, C), from uniform numbers (…, 2).

    Among the k likeliest classes a label is kept with probability e^ε/(e^ε + k - 1), else another of them is drawn; a
    label that is not among them is answered by any of them. Whatever the prior, no response is more than e^ε times as
    likely under one label as under another.
    """
    order, k = _best(prior, epsilon)
    rank = (order == labels.unsqueeze(-1)).to(torch.int64).argmax(-1)
    keep = 1 / (1 + (k - 1) * math.exp(-epsilon))
    shift = 1 + torch.minimum((uniform[..., 1] * (k - 1)).long(), (k - 2).clamp(min=0))
    moved = torch.where(uniform[..., 0] <= keep, rank, (rank + shift) % k)
    elsewhere = torch.minimum((uniform[..., 1] * k).long(), k - 1)
    chosen = torch.where(rank < k, moved, elsewhere)
    return order.gather(-1, chosen.unsqueeze(-1)).squeeze(-1)


def response_law(prior: Tensor, epsilon: float) -> Tensor:
    """P[response = j | label = i], (…, C, C), rows i, that `response` draws from under priors (…, C)."""
    order, k = _best(prior, epsilon)
    classes = prior.shape[-1]
    rank = order.argsort(-1)
    inside = (rank < k.unsqueeze(-1)).to(prior.dtype)
    keep = (1 / (1 + (k - 1) * math.exp(-epsilon)))[..., None, None]
    same = torch.eye(classes, device=prior.device, dtype=prior.dtype)
    among = inside.unsqueeze(-2) * (same * keep + (1 - same) * keep * math.exp(-epsilon))
    anywhere = (inside / k.unsqueeze(-1)).unsqueeze(-2)
    return torch.where(inside.unsqueeze(-1) > 0, among, anywhere)


@dataclass(frozen=True, eq=False)
class PriorAnswers(Answers):
    """Responses to labels (…) under priors (…, C), from uniform numbers (…, 2), to those whose turn it is `now`.

    The others keep the labels that they have `before`.
    """

    prior: Tensor
    uniform: Tensor
    epsilon: float
    now: Tensor
    before: Tensor

    def answered(self, asked: Tensor) -> Tensor:
        return torch.where(self.now, response(asked, self.prior, self.uniform, self.epsilon), self.before)

    def table(self) -> Tensor:
        return response_law(self.prior, self.epsilon)

    @property
    def public(self) -> tuple[Tensor, ...]:
        return self.prior, self.now, self.before

    @property
    def numbers(self) -> Tensor:
        return self.uniform

    @property
    def asks(self) -> Tensor:
        return self.now


@dataclass(frozen=True, kw_only=True)
class PriorLabels(LabelMechanism):
    """RRWithPrior of each label, once, in the first round of its stage that its record takes part in.

    Stages divide rounds and records evenly, the latter at random. A record whose stage has not begun moves no model: it
    is trained towards the prediction that the model makes of it. In the first of several stages the prior is uniform,
    which makes it plain randomised response (LP-MST); otherwise it is `prior`, or the model's prediction.
    """

    what = "every label once, by randomised response with a prior that other records' responses decide"
    stages: int = 1
    prior: tuple[float, ...] | None = None

    @property
    def source(self) -> str:
        return "LP-MST"

    @property
    def statement(self) -> str:
        return "ε-DP for each label, which is answered in one stage"

    @property
    def budget(self) -> float:
        """The ε of each response."""
        return self.law.label_epsilon

    @property
    def record_sensitivity(self) -> float:
        """Unbounded where the record's features decide which responses are possible."""
        return math.inf if self.prior is None else 1.0

    def stage(self, round_: int, rounds: int) -> int:
        """The stage of a round."""
        return min(self.stages - 1, round_ * self.stages // rounds)

    def last_draw(self, schedule: Schedule) -> int:
        """The last round in which a label may be drawn: the last first visit of a record in the last stage."""
        seen, last = np.zeros(schedule.records, dtype=np.bool_), schedule.rounds - 1
        for t in range(schedule.rounds):
            if self.stage(t, schedule.rounds) == self.stages - 1:
                batch = schedule.batch(t)
                last = t if not seen[batch].all() else last
                seen[batch] = True
        return last


class DrawnLabels:
    """The responses of one training. `labels` (R, N) holds those that are `drawn`; the others are classes at random."""

    def __init__(
        self, mechanism: PriorLabels, truth: Tensor, classes: int, *, stream: Draws, schedule: Schedule
    ) -> None:
        replicas, records = truth.shape
        uniform = stream.uniform(4 * records).reshape(replicas, records, 4)
        self._mechanism, self._truth, self._schedule = mechanism, truth, schedule
        self._uniform = uniform[..., :2]
        self._stage_of = (uniform[..., 2] * mechanism.stages).long().clamp(max=mechanism.stages - 1)
        self.labels = (uniform[..., 3] * classes).long().clamp(max=classes - 1)
        self.drawn = torch.zeros_like(self.labels, dtype=torch.bool)
        given = mechanism.prior or (1 / classes,) * classes
        self._given = torch.tensor(given, dtype=torch.float32).to(truth.device)
        self._last_draw = mechanism.last_draw(schedule)
        self._round = 0
        self._seen: Tensor | None = None
        self._probe: Probe | None = None

    def attach(self, probe: Probe) -> None:
        """Show a probe each batch when its labels are drawn; at first it is shown the placeholders of all."""
        self._probe = probe
        probe.observed(self._onehot(self.labels), torch.arange(self.labels.shape[1], device=self.labels.device))

    def _onehot(self, labels: Tensor) -> Tensor:
        return torch.nn.functional.one_hot(labels, len(self._given)).to(torch.float32)

    def begin(self, round_: int) -> None:
        """Responses are those of this round from here on."""
        self._round, self._seen = round_, None

    def visit(self, records: Tensor, logits: Callable[[], Tensor]) -> tuple[Tensor, Tensor | None]:
        """The labels (R, B) of a batch, drawn if it is their turn, and which of them are drawn; None if all are.

        The logits (R, B, C) of the current model are asked for where its prediction is the prior.
        """
        # The host knows from when on nothing is left to draw: rounds after that cost a look-up.
        if self._round > self._last_draw:
            return self.labels.index_select(1, records), None
        last = self._stage == self._mechanism.stages - 1
        if self._seen is not records:
            self._seen = records
            self._draw(records, logits)
        return self.labels.index_select(1, records), None if last else self.drawn.index_select(1, records)

    @property
    def _stage(self) -> int:
        return self._mechanism.stage(self._round, self._schedule.rounds)

    def _draw(self, records: Tensor, logits: Callable[[], Tensor]) -> None:
        labels, drawn, truth, uniform, stages = (
            held.index_select(1, records)
            for held in (self.labels, self.drawn, self._truth, self._uniform, self._stage_of)
        )
        due = stages <= self._stage
        now, prior = due & ~drawn, self._prior(labels, logits)
        responses = answered(truth, PriorAnswers(prior, uniform, self._mechanism.budget, now, labels))
        if self._probe is not None:
            shown = self._probe.observed(self._onehot(responses), records, prior * now.unsqueeze(-1))
            responses = torch.where(now, shown.argmax(-1), labels)
        self.labels.index_copy_(1, records, responses)
        self.drawn.index_copy_(1, records, drawn | due)

    def _prior(self, like: Tensor, logits: Callable[[], Tensor]) -> Tensor:
        """(R, B, C) for labels `like`, (R, B)."""
        known = self._mechanism.prior is not None
        if known or (self._mechanism.stages > 1 and self._stage == 0):
            return self._given.expand(*like.shape, -1)
        return torch.softmax(logits().detach().to(torch.float32), dim=-1)
