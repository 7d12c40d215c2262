"""Features from summed logits through any known model (Luo et al. 2021): a generator whose output explains the logits.

Luo et al., "Feature Inference Attack on Model Predictions in Vertical Federated Learning", ICDE 2021: the generative
regression network (GRN). `feature_grn_published` follows the paper; `feature_grn` gives its generator the logits, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import ClassVar

import torch
from torch import Tensor, nn

from vflpriv.attacks._base import FeatureInference, own_features
from vflpriv.attacks._observations import Observation, recent
from vflpriv.attacks.feature._other_shares import SHARED, class_differences, missing_shares, other_devices, other_shares
from vflpriv.common.registry import register
from vflpriv.core.attack import FeatureAuxiliary, Guess
from vflpriv.core.views import View

__all__ = ["FeatureGrn", "FeatureGrnPublished"]

_WIDTHS = (600, 200, 100)
_NOISE = 16
_EPOCHS = 60
_VARIANCE = 0.25
_DRAWS = 8


@register("attack")
class FeatureGrn(FeatureInference):
    """A generator G(own features, logits seen, noise), trained so that known models map its output to the logits seen.

    G has three hidden layers with LayerNorm and ReLU, and a sigmoid over the known records' range. The loss is the
    squared error of the others' summed logits plus a quarter of the output's variance, as published. Three things
    differ from the paper: its generator is not given the logits, so that of features independent of the adversary's own
    it can only predict the mean; it is not trained on known records; and for small data our learning rate is higher and
    our epochs are more. `feature_grn_published` has none of the three. The answer is the mean of a few draws.
    """

    name = "feature_grn"
    summary = "trains a generator whose features explain the logits seen, through known models"
    needs = SHARED
    knows = frozenset({"records", "model"})
    heavy = True
    informed: ClassVar[bool] = True
    """Whether the generator is given the logits, and is trained on the known records too."""
    rate: ClassVar[float] = 1e-3
    steps: ClassVar[int] = 1500
    """The least number of steps; epochs are added until there are so many."""

    def missing(self, view: View, auxiliary: FeatureAuxiliary) -> str | None:
        return missing_shares(view) or (None if auxiliary.victim in auxiliary.models else "the victim's model")

    def run(self, view: View, auxiliary: FeatureAuxiliary) -> Guess:
        others = other_devices(view, auxiliary.models)
        shares = recent([s for s in other_shares(view) if s.round in auxiliary.models[others[0]].rounds], 1)
        records = torch.cat([s.records for s in shares]).unique()
        inputs = self._inputs(own_features(view), shares, records)
        with torch.random.fork_rng(devices=[inputs.device] if inputs.is_cuda else []):
            torch.manual_seed(auxiliary.seed % 2**63)
            known = torch.cat([auxiliary.blocks[m] for m in others], dim=1)
            generator = _Generator(inputs.shape[1], known).to(inputs.device)
            self._train(generator, shares, inputs, others, auxiliary)
            with torch.no_grad():
                rows = inputs.index_select(0, records)
                features = torch.stack([generator(rows) for _ in range(_DRAWS)]).mean(0)
        start = sum(auxiliary.blocks[m].shape[1] for m in others[: others.index(auxiliary.victim)])
        block = features[:, start : start + auxiliary.block.shape[1]]
        return Guess(records, block.unsqueeze(0))

    def _inputs(self, own: Tensor, shares: Sequence[Observation], records: Tensor) -> Tensor:
        """(N, …) the generator's inputs but for the noise: own features and, if informed, the logits; standardised."""
        logits = own.new_zeros(len(own), shares[0].values.shape[1])
        logits[torch.cat([s.records for s in shares])] = torch.cat([s.values for s in shares]).to(own.dtype)
        columns = (own, logits) if self.informed else (own,)
        return torch.cat([_standardised_over(x, records) for x in columns], dim=1)

    def _train(
        self,
        generator: nn.Module,
        shares: Sequence[Observation],
        inputs: Tensor,
        others: Sequence[int],
        auxiliary: FeatureAuxiliary,
    ) -> None:
        known = torch.cat([auxiliary.blocks[m] for m in others], dim=1)
        known_inputs, spread = inputs.index_select(0, auxiliary.records), known.std(0).clamp(min=0.05)
        scale = torch.cat([s.values for s in shares]).std().clamp(min=1e-9).to(inputs.dtype)
        optimiser = torch.optim.Adam(generator.parameters(), lr=self.rate)
        for _ in range(max(_EPOCHS, -(-self.steps // len(shares)))):
            for s in shares:
                features = generator(inputs.index_select(0, s.records))
                logits = _summed_logits(features, s.round, others, auxiliary)
                errors = (class_differences(logits) - s.values.to(inputs.dtype)) / scale
                loss = errors.square().sum(1).mean() + _VARIANCE * features.var(0).sum()
                if self.informed:
                    loss = loss + ((generator(known_inputs) - known) / spread).square().sum(1).mean()
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()


@register("attack")
class FeatureGrnPublished(FeatureGrn):
    """The generator as published: given its own features and noise only, Adam with a rate of 1e-4 for 60 epochs, no
    known record in the loss.

    Two things differ: it matches differences of logits, which the adversary sees, rather than confidences; and the
    sigmoid spans the known records' range.
    """

    name = "feature_grn_published"
    summary = "the generator as published: from its own features and noise alone"
    informed = False
    rate = 1e-4
    steps = 0


class _Generator(nn.Module):
    """G: inputs and noise to features within the range of the known records."""

    def __init__(self, inputs: int, known: Tensor) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for n, k in pairwise((inputs + _NOISE, *_WIDTHS)):
            layers += [nn.Linear(n, k), nn.LayerNorm(k), nn.ReLU()]
        self.body = nn.Sequential(*layers, nn.Linear(_WIDTHS[-1], known.shape[1]), nn.Sigmoid())
        self.low, self.high = known.min(0).values, known.max(0).values

    def forward(self, rows: Tensor) -> Tensor:
        noise = torch.randn(len(rows), _NOISE, device=rows.device)
        share: Tensor = self.body(torch.cat((rows, noise), dim=1))
        return self.low + (self.high - self.low) * share


def _summed_logits(features: Tensor, round_: int, others: Sequence[int], auxiliary: FeatureAuxiliary) -> Tensor:
    """(B, C): the sum of the other devices' outputs for features (B, …) of all of them side by side."""
    total = torch.zeros((), device=features.device)
    widths = [auxiliary.blocks[m].shape[1] for m in others]
    for m, block in zip(others, features.split(widths, dim=1), strict=True):
        model = auxiliary.models[m]
        total = total + model.apply(model.rounds[round_], block.unsqueeze(0))[0]
    return total


def _standardised_over(rows: Tensor, records: Tensor) -> Tensor:
    """Columns with mean 0 and standard deviation 1 over these records."""
    chosen = rows.index_select(0, records)
    return (rows - chosen.mean(0)) / chosen.std(0).clamp(min=1e-6)
