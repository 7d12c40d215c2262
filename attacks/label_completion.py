"""Model completion (Fu et al. 2022): a head on the device's trained model, fitted to a few labels by MixMatch.

Fu et al., "Label Inference Attacks Against Vertical Federated Learning", USENIX Security 2022. Training has taught the
device's model (its bottom) to separate the labels; a few labels and many unlabelled records suffice to name them. The
passive attacker trains honestly; the active one scales its own steps up, so that its model learns more of the labels.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import softmax

from vflpriv.attacks._adam import FlatAdam
from vflpriv.attacks._base import LabelInference
from vflpriv.attacks._mixmatch import MixMatch
from vflpriv.common.random import Stream
from vflpriv.common.registry import register
from vflpriv.core.attack import Auxiliary, Conduct, LabelGuess
from vflpriv.core.views import View

__all__ = [
    "Bottom",
    "CompletedModels",
    "Completion",
    "LabelCompletionActive",
    "LabelCompletionPassive",
    "complete",
]

_ROWS = 4096
"""Records that are predicted at once."""


@dataclass(frozen=True, kw_only=True)
class Completion:
    """How the completed model is trained. Published: 25 epochs of 1024 iterations; `decay` and `tuning` are ours."""

    epochs: int = 5
    iterations: int = 200
    batch: int = 16
    rate: float = 2e-3
    tuning: float = 1.0
    """Learning rate of the bottoms as a share of the head's; 1 as published. A smaller one keeps the first steps of an
    untrained head from undoing what well-trained bottoms have learnt."""
    sharpness: float = 0.8
    mixing: float = 0.75
    unlabelled_weight: float = 50.0
    average: float = 0.999
    decay: float = 4e-5
    """Share of itself that a parameter loses in a step."""
    augment: float = 0.0
    """Std of the noise, on standardised features, that tells two augmentations of a record apart."""


@register("attack")
class LabelCompletionPassive(LabelInference):
    """The device puts a head on the bottom that it trained honestly, and trains both on a few labels and all records.

    Colluding devices put one head on all their bottoms. Without the protocol the same adversary starts from the bottom
    as it was before the first round. The models of all seeds are trained at once.
    """

    name = "label_completion_passive"
    summary = "completes the trained bottom with a head, from a few labels and many records"
    needs = frozenset({"own-model"})
    auxiliary = True
    heavy = True
    completion: ClassVar[Completion] = Completion()

    def missing(self, view: View) -> str | None:
        return None if view.own else "a model of its own; this adversary trains none"

    def run(self, view: View, auxiliary: Auxiliary) -> LabelGuess:
        return self.run_together(view, [auxiliary])[0]

    def run_together(self, view: View, auxiliaries: Sequence[Auxiliary]) -> list[LabelGuess]:
        return self._guess(view, auxiliaries, self.completion)

    def blind(self, view: View, auxiliary: Auxiliary) -> LabelGuess | None:
        return self.blind_together(view, [auxiliary])[0]

    def blind_together(self, view: View, auxiliaries: Sequence[Auxiliary]) -> Sequence[LabelGuess | None]:
        """An untrained bottom has learnt nothing that should be kept, so it learns as fast as the head."""
        return self._guess(view, auxiliaries, replace(self.completion, tuning=1.0))

    def _guess(self, view: View, auxiliaries: Sequence[Auxiliary], settings: Completion) -> list[LabelGuess]:
        own = view.own.values()
        bottoms = [Bottom(features=b.features, apply=b.apply, parameters=b.trained) for b in own]
        labels = complete(bottoms, auxiliaries, view.classes, settings).argmax(-1)
        records = torch.arange(labels.shape[1], device=labels.device)
        return [LabelGuess(records, of_replica.unsqueeze(0)) for of_replica in labels]


@register("attack")
class LabelCompletionActive(LabelCompletionPassive):
    """Passive completion by a device that trained with the malicious optimiser, γ = 1.

    The server then relies on that device's embedding more than on the others', and its bottom learns more of the
    labels.
    """

    name = "label_completion_active"
    summary = "completes the bottom of a device that scaled its own steps up"
    conduct = Conduct(name="malicious-optimiser", gain=1.0)


@dataclass(frozen=True, eq=False, kw_only=True)
class Bottom:
    """A device's features (N, d), its model, and the initial parameters, (R, …) each."""

    features: Tensor
    apply: Callable[[Mapping[str, Tensor], Tensor], Tensor]
    parameters: Mapping[str, Tensor]


class CompletedModels(nn.Module):
    """R models: the devices' bottoms, concatenated, under batch normalisation, ReLU and one linear layer.

    The bottoms' parameters are parameters of this module before any optimiser is built, so that they are trained too.
    The normalised columns of all models lie side by side in one layer, which treats each column by itself.
    """

    def __init__(self, bottoms: Sequence[Bottom], classes: int, stream: Stream) -> None:
        super().__init__()
        self._applies = [b.apply for b in bottoms]
        self._names = [list(b.parameters) for b in bottoms]
        self.own = nn.ParameterList(nn.Parameter(v.detach().clone()) for b in bottoms for v in b.parameters.values())
        with torch.no_grad():
            outputs = [b.apply(b.parameters, b.features[:2]) for b in bottoms]
        width, replicas = sum(output.shape[-1] for output in outputs), len(stream.keys)
        self.norm = nn.BatchNorm1d(replicas * width)
        drawn = (2 * stream.uniform((width + 1) * classes, 0) - 1) * width**-0.5
        self.weight = nn.Parameter(drawn[:, classes:].unflatten(1, (width, classes)).contiguous())
        self.bias = nn.Parameter(drawn[:, :classes].clone())
        self.to(outputs[0].device)

    @property
    def head(self) -> list[nn.Parameter]:
        """The parameters that no device has trained before."""
        return [*self.norm.parameters(), self.weight, self.bias]

    @property
    def statistics(self) -> list[Tensor]:
        """The running means and variances of batch normalisation, which training updates without a gradient."""
        return [value for value in self.norm.buffers() if value.is_floating_point()]

    def forward(self, blocks: Sequence[Tensor]) -> Tensor:
        """(R, B, classes) logits of rows (R, B, d), or of rows (B, d) that all models share."""
        own, outputs = iter(self.own), []
        for apply, names, rows in zip(self._applies, self._names, blocks, strict=True):
            outputs.append(apply({name: next(own) for name in names}, rows))
        hidden = torch.cat(outputs, dim=-1)
        columns = self.norm(hidden.transpose(0, 1).flatten(1))
        normalised = columns.unflatten(1, (len(hidden), -1)).transpose(0, 1)
        return torch.baddbmm(self.bias.unsqueeze(1), torch.relu(normalised), self.weight)


def complete(bottoms: Sequence[Bottom], auxiliaries: Sequence[Auxiliary], classes: int, settings: Completion) -> Tensor:
    """(R, N, classes) probabilities of every record's label, from the moving average of each model over its training.

    Model r has the r-th known labels and draws from a stream of its own. The last model is used, whatever its success:
    choosing the best one would take labels that no attacker has.
    """
    mixmatch = _mixmatch(bottoms, auxiliaries, classes, settings)
    models = CompletedModels(bottoms, classes, mixmatch.stream)
    rates = [settings.rate] * len(models.head) + [settings.tuning * settings.rate] * len(models.own)
    adam = FlatAdam([*models.head, *models.own], rates)
    averages = [t.clone() for t in (adam.values, *models.statistics)]
    steps = settings.epochs * settings.iterations
    models.train()
    for step, batch in enumerate(mixmatch.batches(steps)):
        adam.step(mixmatch.loss(models, batch, settings.unlabelled_weight * min(1.0, step / steps)))
        # The average runs over fewer steps at first, so that it forgets the start.
        keep = min(settings.average, (1 + step) / (10 + step))
        for average, value in zip(averages, (adam.values, *models.statistics), strict=True):
            average.lerp_(value, 1 - keep)
        adam.values.mul_(1 - settings.decay)
    for average, value in zip(averages, (adam.values, *models.statistics), strict=True):
        value.copy_(average)
    return _predict(models, mixmatch.features)


def _mixmatch(
    bottoms: Sequence[Bottom], auxiliaries: Sequence[Auxiliary], classes: int, settings: Completion
) -> MixMatch:
    """The training of a model for each of the auxiliaries, whose seeds are those of its draws."""
    device = bottoms[0].features.device
    keys = [Stream.of(auxiliary.seed, "attack", [0], device).keys for auxiliary in auxiliaries]
    return MixMatch(
        features=[b.features for b in bottoms],
        auxiliaries=auxiliaries,
        classes=classes,
        batch=settings.batch,
        sharpness=settings.sharpness,
        mixing=settings.mixing,
        augment=settings.augment,
        stream=Stream(torch.cat(keys)),
    )


@torch.no_grad()
def _predict(models: nn.Module, features: Sequence[Tensor]) -> Tensor:
    """(R, N, classes) probabilities of all records."""
    models.eval()
    parts = zip(*(f.split(_ROWS) for f in features), strict=True)
    return torch.cat([softmax(models(part), -1) for part in parts], dim=1)
