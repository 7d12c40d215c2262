"""Model completion (Fu et al. 2022): a head on the device's trained model, fitted to a few labels by MixMatch.

Fu et al., "Label Inference Attacks Against Vertical Federated Learning", USENIX Security 2022. Training has taught the
device's model (its bottom) to separate the labels; a few labels and many unlabelled records suffice to name them. The
passive attacker trains honestly; the active one scales its own steps up, so that its model learns more of the labels.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, log_softmax, one_hot, softmax

from vflpriv.attacks._base import LabelInference
from vflpriv.common.registry import register
from vflpriv.core.attack import Auxiliary, Conduct, LabelGuess
from vflpriv.core.views import View

__all__ = [
    "Bottom",
    "CompletedModel",
    "Completion",
    "LabelCompletionActive",
    "LabelCompletionPassive",
    "complete",
    "mixup_share",
]


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
    as it was before the first round.
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
        return self._guess(view, auxiliary, self.completion)

    def blind(self, view: View, auxiliary: Auxiliary) -> LabelGuess | None:
        """An untrained bottom has learnt nothing that should be kept, so it learns as fast as the head."""
        return self._guess(view, auxiliary, replace(self.completion, tuning=1.0))

    def _guess(self, view: View, auxiliary: Auxiliary, settings: Completion) -> LabelGuess:
        own = view.own.values()
        bottoms = [Bottom(features=b.features, apply=b.apply, parameters=b.trained) for b in own]
        probabilities = complete(bottoms, auxiliary, view.classes, settings)
        records = torch.arange(len(probabilities), device=probabilities.device)
        return LabelGuess(records, probabilities.argmax(-1).unsqueeze(0))


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
    """A device's features (N, d), its model, and the initial parameters, (1, …) each."""

    features: Tensor
    apply: Callable[[Mapping[str, Tensor], Tensor], Tensor]
    parameters: Mapping[str, Tensor]


class CompletedModel(nn.Module):
    """The devices' bottoms, concatenated, under batch normalisation, ReLU and one linear layer.

    The bottoms' parameters are parameters of this module before any optimiser is built, so that they are trained too.
    """

    def __init__(self, bottoms: Sequence[Bottom], classes: int, random: torch.Generator) -> None:
        super().__init__()
        self._applies = [b.apply for b in bottoms]
        self._names = [list(b.parameters) for b in bottoms]
        self.own = nn.ParameterList(nn.Parameter(v.detach().clone()) for b in bottoms for v in b.parameters.values())
        with torch.no_grad():
            outputs = [b.apply(b.parameters, b.features[:2]) for b in bottoms]
        width = sum(output.shape[-1] for output in outputs)
        self.norm = nn.BatchNorm1d(width)
        self.head = nn.Linear(width, classes)
        bound = width**-0.5
        with torch.no_grad():
            for weight in self.head.parameters():
                weight.copy_((2 * torch.rand(weight.shape, generator=random) - 1) * bound)
        self.to(outputs[0].device)

    def forward(self, blocks: Sequence[Tensor]) -> Tensor:
        own, outputs = iter(self.own), []
        for apply, names, rows in zip(self._applies, self._names, blocks, strict=True):
            outputs.append(apply({name: next(own) for name in names}, rows)[0])
        logits: Tensor = self.head(torch.relu(self.norm(torch.cat(outputs, dim=-1))))
        return logits


def complete(bottoms: Sequence[Bottom], auxiliary: Auxiliary, classes: int, settings: Completion) -> Tensor:
    """(N, classes) probabilities of every record's label, from the moving average of the model over its training.

    The last model is used, whatever its success: choosing the best one would take labels that no attacker has.
    """
    random = torch.Generator().manual_seed(auxiliary.seed)
    model = CompletedModel(bottoms, classes, random)
    fresh = [*model.norm.parameters(), *model.head.parameters()]
    bottom_group = {"params": list(model.own), "lr": settings.tuning * settings.rate}
    groups: list[dict[str, Any]] = [{"params": fresh}, bottom_group]
    optimiser = torch.optim.Adam(groups, lr=settings.rate)
    average = {name: value.detach().clone() for name, value in model.state_dict().items()}
    mixmatch = _MixMatch([b.features for b in bottoms], auxiliary, classes, settings, random)
    steps = settings.epochs * settings.iterations
    for step in range(steps):
        loss = mixmatch.loss(model, settings.unlabelled_weight * min(1.0, step / steps))
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        _average_and_decay(average, model, settings, step)
    return _predict(model, average, mixmatch.features)


class _MixMatch:
    """The loss of MixMatch (Berthelot et al. 2019) on a random batch of labelled and one of unlabelled records."""

    def __init__(
        self,
        features: Sequence[Tensor],
        auxiliary: Auxiliary,
        classes: int,
        settings: Completion,
        random: torch.Generator,
    ) -> None:
        self.features, self.known, self.settings, self.random = features, auxiliary.records, settings, random
        self.labels = one_hot(auxiliary.labels, classes).to(torch.float32)
        self._noise_std = [settings.augment * f.std(0) for f in features]

    def loss(self, model: nn.Module, weight: float) -> Tensor:
        """Cross entropy of the labelled half plus `weight` times the squared error of the unlabelled half."""
        size = self.settings.batch
        labelled = self._on_device(torch.randint(len(self.known), (size,), generator=self.random))
        unlabelled = self._on_device(torch.randint(len(self.features[0]), (size,), generator=self.random))
        copies = [self._augmented(unlabelled) for _ in range(2 if self.settings.augment else 1)]
        model.train()
        guess = self._sharpened(model, copies)
        rows = [torch.cat(parts) for parts in zip(self._augmented(self.known[labelled]), *copies, strict=True)]
        rows, targets = self._mixed(rows, torch.cat([self.labels[labelled], *[guess] * len(copies)]))
        logits = model(rows)
        unlabelled_error = (softmax(logits[size:], -1) - targets[size:]).square().mean()
        return cross_entropy(logits[:size], targets[:size]) + weight * unlabelled_error

    def _on_device(self, tensor: Tensor) -> Tensor:
        return tensor.to(self.features[0].device)

    def _augmented(self, records: Tensor) -> list[Tensor]:
        """These records' rows in each block, with noise if `augment` is set."""
        rows = [f.index_select(0, records) for f in self.features]
        if not self.settings.augment:
            return rows
        noise = [self._on_device(torch.randn(r.shape, generator=self.random)) for r in rows]
        return [r + n * std for r, n, std in zip(rows, noise, self._noise_std, strict=True)]

    @torch.no_grad()
    def _sharpened(self, model: nn.Module, copies: Sequence[list[Tensor]]) -> Tensor:
        """The model's mean prediction over all copies, sharpened by temperature."""
        guess = torch.stack([softmax(model(rows), -1) for rows in copies]).mean(0) ** (1 / self.settings.sharpness)
        return guess / guess.sum(-1, keepdim=True)

    def _mixed(self, rows: list[Tensor], targets: Tensor) -> tuple[list[Tensor], Tensor]:
        """Mixup: every row and its target, combined with those of another row."""
        share = mixup_share(self.settings.mixing, self.random)
        order = self._on_device(torch.randperm(len(targets), generator=self.random))
        mixed = [share * r + (1 - share) * r[order] for r in rows]
        return mixed, share * targets + (1 - share) * targets[order]


def mixup_share(mixing: float, random: torch.Generator) -> float:
    """max(λ, 1 - λ) with λ ~ Beta(a, a), by Jöhnk's method: a uniform pair (u, v) with u^(1/a) + v^(1/a) ≤ 1."""
    while True:
        x, y = (torch.rand(2, generator=random, dtype=torch.float64) ** (1 / mixing)).tolist()
        if 0 < x + y <= 1:
            return float(max(x, y) / (x + y))


@torch.no_grad()
def _average_and_decay(average: dict[str, Tensor], model: nn.Module, settings: Completion, step: int) -> None:
    """Update the model's moving average, over fewer steps at first so that it forgets the start; then decay weights."""
    keep = min(settings.average, (1 + step) / (10 + step))
    for name, value in model.state_dict().items():
        if value.dtype.is_floating_point:
            average[name].lerp_(value, 1 - keep)
    for parameter in model.parameters():
        parameter.mul_(1 - settings.decay)


@torch.no_grad()
def _predict(model: nn.Module, average: Mapping[str, Tensor], features: Sequence[Tensor]) -> Tensor:
    """(N, classes) probabilities by the averaged model."""
    model.load_state_dict(dict(average))
    model.eval()
    parts = zip(*(f.split(4096) for f in features), strict=True)
    return torch.cat([log_softmax(model(list(part)), -1) for part in parts]).exp()
