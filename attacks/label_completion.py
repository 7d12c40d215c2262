"""Model completion by MixMatch (Fu et al. 2022): a trained bottom, a fresh head, a few labels and many records."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, log_softmax, one_hot, softmax

from vflpriv.attacks._base import LabelAttack
from vflpriv.common.registry import register
from vflpriv.core.attack import Auxiliary, Conduct, LabelGuess
from vflpriv.core.views import View

__all__ = ["Bottom", "Completion", "LabelCompletionActive", "LabelCompletionPassive", "complete"]


@dataclass(frozen=True, eq=False, kw_only=True)
class Bottom:
    """A device's features (N, d), its model, and the parameters to begin with, (1, …) each."""

    features: Tensor
    apply: Callable[[Mapping[str, Tensor], Tensor], Tensor]
    parameters: Mapping[str, Tensor]


@dataclass(frozen=True, kw_only=True)
class Completion:
    """How the completed model is trained. Published: 25 epochs of 1024 iterations; `decay` and `tuning` are ours."""

    epochs: int = 5
    iterations: int = 200
    batch: int = 16
    rate: float = 2e-3
    tuning: float = 1.0
    """The bottoms' rate as a share of the head's, 1 as published. Where training has gone far enough for the bottoms to
    tell the labels apart, a smaller one keeps a fresh head's steps from undoing that."""
    sharpness: float = 0.8
    mixing: float = 0.75
    unlabelled_weight: float = 50.0
    average: float = 0.999
    decay: float = 4e-5
    """Share of itself that a parameter loses in a step."""
    augment: float = 0.0
    """Std of the noise on standardised features, by which two looks at a record differ."""


class _Completed(nn.Module):
    """The devices' bottoms side by side under batch normalisation, ReLU and one linear layer.

    The bottoms' parameters are parameters of this module before any optimiser is made: they train along.
    """

    def __init__(self, bottoms: Sequence[Bottom], classes: int, coins: torch.Generator) -> None:
        super().__init__()
        self._applies = [b.apply for b in bottoms]
        self._names = [list(b.parameters) for b in bottoms]
        self.own = nn.ParameterList(nn.Parameter(v.detach().clone()) for b in bottoms for v in b.parameters.values())
        with torch.no_grad():
            rows = [b.apply(b.parameters, b.features[:2]) for b in bottoms]
        width = sum(r.shape[-1] for r in rows)
        self.norm = nn.BatchNorm1d(width)
        self.head = nn.Linear(width, classes)
        bound = width**-0.5
        with torch.no_grad():
            for weight in self.head.parameters():
                weight.copy_((2 * torch.rand(weight.shape, generator=coins) - 1) * bound)
        self.to(rows[0].device)

    def forward(self, blocks: Sequence[Tensor]) -> Tensor:
        own, outputs = iter(self.own), []
        for apply, names, rows in zip(self._applies, self._names, blocks, strict=True):
            outputs.append(apply({name: next(own) for name in names}, rows)[0])
        logits: Tensor = self.head(torch.relu(self.norm(torch.cat(outputs, dim=-1))))
        return logits


def complete(bottoms: Sequence[Bottom], auxiliary: Auxiliary, classes: int, how: Completion) -> Tensor:
    """(N, classes) probabilities of every record's label, from the average of the model over its training.

    The last model is taken, whatever its success: nobody who attacks could choose a better one.
    """
    coins = torch.Generator().manual_seed(auxiliary.seed)
    model, device = _Completed(bottoms, classes, coins), bottoms[0].features.device
    fresh = [*model.norm.parameters(), *model.head.parameters()]
    groups: list[dict[str, Any]] = [{"params": fresh}, {"params": list(model.own), "lr": how.tuning * how.rate}]
    optimiser = torch.optim.Adam(groups, lr=how.rate)
    average = {name: value.detach().clone() for name, value in model.state_dict().items()}
    labels = one_hot(auxiliary.labels, classes).to(torch.float32)
    features, total = [b.features for b in bottoms], how.epochs * how.iterations
    steps = [how.augment * f.std(0) for f in features]

    def look(records: Tensor) -> list[Tensor]:
        rows = [f.index_select(0, records) for f in features]
        if not how.augment:
            return rows
        noise = [torch.randn(r.shape, generator=coins).to(device) for r in rows]
        return [r + n * s for r, n, s in zip(rows, noise, steps, strict=True)]

    for step in range(total):
        size, known = how.batch, len(auxiliary.records)
        few = torch.randint(known, (size,), generator=coins).to(device)
        many = torch.randint(len(features[0]), (size,), generator=coins).to(device)
        looks = [look(many), look(many)] if how.augment else [look(many)]
        model.train()
        with torch.no_grad():
            guess = torch.stack([softmax(model(one), -1) for one in looks]).mean(0) ** (1 / how.sharpness)
            guess = guess / guess.sum(-1, keepdim=True)
        rows = [torch.cat(parts) for parts in zip(look(auxiliary.records[few]), *looks, strict=True)]
        targets = torch.cat([labels[few], *[guess] * len(looks)])
        share = _share(how.mixing, coins)
        order = torch.randperm(len(targets), generator=coins).to(device)
        logits = model([share * r + (1 - share) * r[order] for r in rows])
        targets = share * targets + (1 - share) * targets[order]
        weight = how.unlabelled_weight * min(1.0, step / total)
        missed = (softmax(logits[size:], -1) - targets[size:]).square().mean()
        loss = cross_entropy(logits[:size], targets[:size]) + weight * missed
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        _follow(average, model, how, step)
    return _predict(model, average, features)


def _share(mixing: float, coins: torch.Generator) -> float:
    """max(λ, 1 - λ) with λ ~ Beta(a, a): a uniform pair (u, v) with u^(1/a) + v^(1/a) ≤ 1 gives one (Jöhnk)."""
    while True:
        x, y = (torch.rand(2, generator=coins, dtype=torch.float64) ** (1 / mixing)).tolist()
        if 0 < x + y <= 1:
            return float(max(x, y) / (x + y))


@torch.no_grad()
def _follow(average: dict[str, Tensor], model: nn.Module, how: Completion, step: int) -> None:
    """The moving average of the model, shorter at first so that it does not hang on the start; then weight decay."""
    keep = min(how.average, (1 + step) / (10 + step))
    for name, value in model.state_dict().items():
        if value.dtype.is_floating_point:
            average[name].lerp_(value, 1 - keep)
    for parameter in model.parameters():
        parameter.mul_(1 - how.decay)


@torch.no_grad()
def _predict(model: nn.Module, average: Mapping[str, Tensor], features: Sequence[Tensor]) -> Tensor:
    model.load_state_dict(dict(average))
    model.eval()
    parts = zip(*(f.split(4096) for f in features), strict=True)
    return torch.cat([log_softmax(model(list(part)), -1) for part in parts]).exp()


# Passive model completion (Fu et al. 2022): a trained bottom already knows the labels; a few of them give the rest.


@register("attack")
class LabelCompletionPassive(LabelAttack):
    """The device puts a head on the bottom it trained honestly, and trains both on a few labels and all its records.

    Colluding devices put one head on all their bottoms. Without the protocol the same adversary begins with the bottom
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
        """A bottom that nobody trained holds nothing to be kept: it learns as fast as the head."""
        return self._guess(view, auxiliary, replace(self.completion, tuning=1.0))

    def _guess(self, view: View, auxiliary: Auxiliary, how: Completion) -> LabelGuess:
        own = view.own.values()
        bottoms = [Bottom(features=b.features, apply=b.apply, parameters=b.trained) for b in own]
        chances = complete(bottoms, auxiliary, view.classes, how)
        return LabelGuess(torch.arange(len(chances), device=chances.device), chances.argmax(-1).unsqueeze(0))


# Active model completion (Fu et al. 2022): the device scales its steps up, so that its bottom learns more of them.


@register("attack")
class LabelCompletionActive(LabelCompletionPassive):
    """Passive completion by a device that trained with the malicious optimiser, γ = 1.

    The server then leans on that device's embedding more than on the others', and more of the labels moves into it.
    """

    name = "label_completion_active"
    summary = "completes the bottom of a device that scaled its own steps up"
    conduct = Conduct(name="malicious-optimiser", gain=1.0)
