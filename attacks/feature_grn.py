"""Features from sums of logits through any known model (Luo et al. 2021): a generator whose output explains them."""

from __future__ import annotations

from itertools import pairwise
from typing import ClassVar

import torch
from torch import Tensor, nn

from vflpriv.attacks._feature_base import FeatureInference, own_features
from vflpriv.attacks._observations import Seen
from vflpriv.attacks._others import SHARED, differences, missing_shares, others, shares
from vflpriv.common.registry import register
from vflpriv.core.attack import FeatureAuxiliary, FeatureGuess
from vflpriv.core.views import View

__all__ = ["FeatureGrn", "FeatureGrnPublished"]

_WIDTHS = (600, 200, 100)
_NOISE = 16
_EPOCHS = 60
_VARIANCE = 0.25
_DRAWS = 8


@register("attack")
class FeatureGrn(FeatureInference):
    """Generative regression network: G(own features, logits seen, noise), such that known models turn its output into
    the logits seen.

    Three hidden layers with LayerNorm and ReLU, a sigmoid over the known records' range; the loss is the squared error
    of the others' summed logits plus a quarter of the output's variance, as published. Three things differ: the
    published generator is not shown the logits, so that of features which do not depend on its own it can only say the
    mean; it is not trained on known records; and with fewer records the learning rate is higher and epochs are more.
    `feature_grn_published` has none of these. Its answer is the mean of a few draws.
    """

    name = "feature_grn"
    summary = "trains a generator whose features explain the logits seen, through known models"
    needs = SHARED
    knows = frozenset({"records", "model"})
    heavy = True
    informed: ClassVar[bool] = True
    """Whether it is shown the logits, and trained on the known records too."""
    rate: ClassVar[float] = 1e-3
    steps: ClassVar[int] = 1500
    """At least so many, in however many epochs."""

    def missing(self, view: View, auxiliary: FeatureAuxiliary) -> str | None:
        return missing_shares(view) or (None if auxiliary.victim in auxiliary.models else "the victim's model")

    def run(self, view: View, auxiliary: FeatureAuxiliary) -> FeatureGuess:
        members = others(view, [*auxiliary.models])
        seen = _latest([s for s in shares(view) if s.round in auxiliary.models[members[0]].rounds])
        own = own_features(view)
        records = torch.cat([s.records for s in seen]).unique()
        logits = own.new_zeros(len(own), seen[0].values.shape[1])
        logits[torch.cat([s.records for s in seen])] = torch.cat([s.values for s in seen]).to(own.dtype)
        own = torch.cat([_standard(x, records) for x in ((own, logits) if self.informed else (own,))], dim=1)
        known = torch.cat([auxiliary.blocks[m] for m in members], dim=1)
        with torch.random.fork_rng(devices=[own.device] if own.is_cuda else []):
            torch.manual_seed(auxiliary.seed % 2**63)
            generator = _Generator(own.shape[1], known).to(own.device)
            self._train(generator, seen, own, known, members, auxiliary)
            with torch.no_grad():
                rows = own.index_select(0, records)
                made = torch.stack([generator(rows) for _ in range(_DRAWS)]).mean(0)
        start = sum(auxiliary.blocks[m].shape[1] for m in members[: members.index(auxiliary.victim)])
        block = made[:, start : start + auxiliary.block.shape[1]]
        return FeatureGuess(device=auxiliary.victim, records=records, blocks=block.unsqueeze(0))

    def _train(
        self,
        generator: nn.Module,
        seen: list[Seen],
        own: Tensor,
        known: Tensor,
        members: list[int],
        auxiliary: FeatureAuxiliary,
    ) -> None:
        told, spread = own.index_select(0, auxiliary.records), known.std(0).clamp(min=0.05)
        scale = torch.cat([s.values for s in seen]).std().clamp(min=1e-9).to(own.dtype)
        widths = [auxiliary.blocks[m].shape[1] for m in members]
        optimiser = torch.optim.Adam(generator.parameters(), lr=self.rate)
        for _ in range(max(_EPOCHS, -(-self.steps // len(seen)))):
            for s in seen:
                made = generator(own.index_select(0, s.records))
                total = torch.zeros((), device=own.device)
                for m, part in zip(members, made.split(widths, dim=1), strict=True):
                    model = auxiliary.models[m]
                    total = total + model.apply(model.rounds[s.round], part.unsqueeze(0))[0]
                wrong = (differences(total) - s.values.to(own.dtype)) / scale
                loss = wrong.square().sum(1).mean() + _VARIANCE * made.var(0).sum()
                if self.informed:
                    loss = loss + ((generator(told) - known) / spread).square().sum(1).mean()
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()


class _Generator(nn.Module):
    """G: own features and noise to features within the range of the known records."""

    def __init__(self, inputs: int, known: Tensor) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for n, k in pairwise((inputs + _NOISE, *_WIDTHS)):
            layers += [nn.Linear(n, k), nn.LayerNorm(k), nn.ReLU()]
        self.body = nn.Sequential(*layers, nn.Linear(_WIDTHS[-1], known.shape[1]), nn.Sigmoid())
        self.low, self.high = known.min(0).values, known.max(0).values

    def forward(self, rows: Tensor) -> Tensor:
        noise = torch.randn(len(rows), _NOISE, device=rows.device)
        made: Tensor = self.body(torch.cat((rows, noise), dim=1))
        return self.low + (self.high - self.low) * made


def _standard(rows: Tensor, records: Tensor) -> Tensor:
    """Columns with mean 0 and standard deviation 1 over these records."""
    some = rows.index_select(0, records)
    return (rows - some.mean(0)) / some.std(0).clamp(min=1e-6)


def _latest(seen: list[Seen]) -> list[Seen]:
    """The last messages that together speak of every record at least once."""
    kept, there = [], torch.zeros(1 + max(int(s.records.max()) for s in seen), dtype=torch.bool)
    for s in reversed(seen):
        records = s.records.cpu()
        if not bool(there[records].all()):
            kept.append(s)
            there[records] = True
    return kept[::-1]


# The generative regression network as published (Luo et al. 2021): shown its own features and noise only.


@register("attack")
class FeatureGrnPublished(FeatureGrn):
    """Adam with a rate of 1e-4 for 60 epochs, no known record in the loss. Two things differ: it matches differences of
    logits, which the adversary sees, rather than confidences; and the sigmoid spans the known records' range."""

    name = "feature_grn_published"
    summary = "the generator as published: from its own features and noise alone"
    informed = False
    rate = 1e-4
    steps = 0
