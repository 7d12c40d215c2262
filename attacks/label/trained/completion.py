"""Model completion (Fu et al. 2022): a head on the device's trained model, fitted to a few labels by MixMatch.

Fu et al., "Label Inference Attacks Against Vertical Federated Learning", USENIX Security 2022. Training has taught the
device's model (its bottom) to separate the labels; a few labels and many unlabelled records suffice to name them. The
passive attacker trains honestly; the active one scales its own steps up, so that its model learns more of the labels.
In the authors' code its gradient and momentum buffer share memory, with another effect in PyTorch 2.0 than before;
`label_completion_active` follows the paper's formula.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import batch_norm, softmax

from vflpriv.attacks._base import TogetherInference
from vflpriv.attacks.label.trained._adam import FlatAdam
from vflpriv.attacks.label.trained._mixmatch import MixMatch
from vflpriv.attacks.label.trained._sent_embeddings import (
    Rows,
    features_of,
    fresh_layer,
    has_sent,
    layer,
    sent_embeddings,
)
from vflpriv.common.random import Stream
from vflpriv.common.registry import register
from vflpriv.core.attack import Auxiliary, Conduct, Guess, Guesses
from vflpriv.core.views import View

__all__ = [
    "QUICK",
    "Bottom",
    "CompletedModels",
    "Completion",
    "LabelCompletionActive",
    "LabelCompletionCompounding",
    "LabelCompletionPassive",
    "LabelCompletionPublished",
    "complete",
]

_ROWS = 4096
"""Records that are predicted at once."""


@dataclass(frozen=True, kw_only=True)
class Completion:
    """How the completed model is trained. Defaults are published but for `decay` and `tuning`, which are ours."""

    epochs: int = 25
    iterations: int = 1024
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


QUICK = Completion(epochs=1, iterations=200, batch=32, rate=1e-2)
"""Fewer, larger steps, which reach what 1000 published ones reach: `python benchmarks/attacks.py settings`.

They were chosen on other seeds, of digits and of Fashion-MNIST.
"""


@register("attack")
class LabelCompletionPassive(TogetherInference):
    """The device puts a head on the bottom that it trained honestly, and trains both on a few labels and all records.

    Colluding devices put one head on all their bottoms. Without the protocol the same adversary starts from the bottom
    as it was before the first round. The models of all seeds, with and without the protocol, are trained at once.

    A recording holds no models. Where it holds a device's features, the head is put, with a layer below it, on these
    and the embeddings that the device sent; without the protocol, on the features alone. This stands for completion: a
    model computes the embedding of every record as it is at the end, and can be trained further.
    """

    name = "label_completion_passive"
    summary = "completes the trained bottom with a head, from a few labels and many records"
    needs = frozenset({"own-model"})
    auxiliary = True
    completion: ClassVar[Completion] = QUICK

    def missing(self, view: View) -> str | None:
        if not view.own:
            return "a model of its own; this adversary trains none"
        if any(not own.features.is_floating_point() for own in view.own.values()):
            return "features that can be mixed (mixup); the device's are token ids"
        if view.has_models or has_sent(view):
            return None
        return "the device's model, or embeddings of records that it sent; this view holds neither"

    def run_together(self, view: View, auxiliaries: Sequence[Auxiliary]) -> list[Guess]:
        if view.has_models:
            return self._guess([view], auxiliaries, [self.completion.tuning])
        return self._from_rows(sent_embeddings(view), auxiliaries, view.classes)

    def blind(self, view: View, auxiliary: Auxiliary) -> Guess | None:
        return self.blind_together(view, [auxiliary])[0]

    def blind_together(self, view: View, auxiliaries: Sequence[Auxiliary]) -> Sequence[Guess | None]:
        """An untrained bottom has learnt nothing that should be kept, so it learns as fast as the head."""
        if view.has_models:
            return self._guess([view], auxiliaries, [1.0])
        return self._from_rows(features_of(view), auxiliaries, view.classes)

    def run_and_blind(self, view: View, auxiliaries: Sequence[Auxiliary]) -> Guesses:
        """The models of both guesses are trained at once, which takes little longer than those of one."""
        if not view.has_models:
            return super().run_and_blind(view, auxiliaries)
        guesses = self._guess([view, view.silent()], auxiliaries, [self.completion.tuning, 1.0])
        return guesses[: len(auxiliaries)], guesses[len(auxiliaries) :]

    def _guess(self, views: Sequence[View], auxiliaries: Sequence[Auxiliary], tuning: Sequence[float]) -> list[Guess]:
        """The guesses of all replicas of the first view, then of the next, which has the same devices."""
        bottoms = [
            Bottom(
                features=own.features,
                apply=own.apply,
                parameters={name: torch.cat([view.own[m].trained[name] for view in views]) for name in own.trained},
            )
            for m, own in views[0].own.items()
        ]
        of_models = [share for share in tuning for _ in auxiliaries]
        told = [*auxiliaries] * len(views)
        labels = complete(bottoms, told, views[0].classes, self.completion, tuning=of_models).argmax(-1)
        records = torch.arange(labels.shape[1], device=labels.device)
        return [Guess(records, of_model.unsqueeze(0)) for of_model in labels]

    def _from_rows(self, rows: Rows, auxiliaries: Sequence[Auxiliary], classes: int) -> list[Guess]:
        """The guesses of models whose bottoms are fresh layers on rows of each device."""
        known, stream = [rows.known(auxiliary) for auxiliary in auxiliaries], _stream(auxiliaries, rows.records.device)
        bottoms = [
            Bottom(features=table, apply=layer, parameters=fresh_layer(table.shape[1], stream, (0, 1 + place)))
            for place, table in enumerate(rows.tables)
        ]
        settings = replace(self.completion, tuning=1.0)
        labels = complete(bottoms, known, classes, settings).argmax(-1)
        return [Guess(rows.records, of_model.unsqueeze(0)) for of_model in labels]


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

    def like(self, other: Bottom) -> bool:
        """Whether both are one function of features and parameters of the same shapes."""
        shapes = [
            (b.features.shape, *((name, value.shape) for name, value in b.parameters.items())) for b in (self, other)
        ]
        return self.apply == other.apply and shapes[0] == shapes[1]


class CompletedModels:
    """R models: the devices' bottoms, concatenated, under batch normalisation, ReLU and one linear layer.

    `own` are the bottoms' parameters, which are trained, too, and `head` those that no device has trained before.
    Bottoms that are one function are stacked, (G·R, …), and computed in one call: `features` has a table (G, N, d) for
    each such group. The normalised columns of all models lie side by side in one layer, which treats each column by
    itself; `statistics` are its running means and variances.
    """

    def __init__(self, bottoms: Sequence[Bottom], classes: int, stream: Stream) -> None:
        groups = _grouped(bottoms)
        self.features = [torch.stack([b.features for b in group]) for group in groups]
        self._applies = [group[0].apply for group in groups]
        self._names = [list(group[0].parameters) for group in groups]
        self.own = [
            torch.cat([b.parameters[name] for b in group]).detach().clone().requires_grad_()
            for group in groups
            for name in group[0].parameters
        ]
        self.replicas, self.training = len(stream.keys), True
        with torch.no_grad():
            hidden = self._hidden([table[:, :2] for table in self.features])
        width, columns = hidden.shape[-1], self.replicas * hidden.shape[-1]
        drawn = (2 * stream.uniform((width + 1) * classes, 0) - 1) * width**-0.5
        weight = drawn[:, classes:].unflatten(1, (width, classes))
        scale, shift = hidden.new_ones(columns), hidden.new_zeros(columns)
        self.head = [t.contiguous().requires_grad_() for t in (scale, shift, weight, drawn[:, :classes])]
        self.statistics = [torch.zeros_like(shift), torch.ones_like(scale)]

    def __call__(self, tables: Sequence[Tensor]) -> Tensor:
        """(R, B, classes) logits of rows (G, R, B, d) of each group, or of rows (G, B, d) that all models share."""
        scale, shift, weight, bias = self.head
        columns = self._hidden(tables).transpose(0, 1).flatten(1)
        mean, variance = self.statistics
        columns = batch_norm(columns, mean, variance, scale, shift, training=self.training)
        normalised = columns.unflatten(1, (self.replicas, -1)).transpose(0, 1)
        return torch.baddbmm(bias.unsqueeze(1), torch.relu(normalised), weight)

    def _hidden(self, tables: Sequence[Tensor]) -> Tensor:
        """(R, B, width) the outputs of all bottoms side by side."""
        own, outputs = iter(self.own), []
        for apply, names, rows in zip(self._applies, self._names, tables, strict=True):
            of_replicas = rows if rows.dim() == 4 else rows.unsqueeze(1).expand(-1, self.replicas, -1, -1)
            stacked = apply({name: next(own) for name in names}, of_replicas.flatten(0, 1))
            outputs += stacked.flatten(2).split(self.replicas)
        return torch.cat(outputs, dim=-1) if len(outputs) > 1 else outputs[0]


def _grouped(bottoms: Sequence[Bottom]) -> list[list[Bottom]]:
    """The bottoms, those together that are one function."""
    groups: list[list[Bottom]] = []
    for bottom in bottoms:
        group = next((g for g in groups if g[0].like(bottom)), None)
        if group is None:
            groups.append([bottom])
        else:
            group.append(bottom)
    return groups


def complete(
    bottoms: Sequence[Bottom],
    auxiliaries: Sequence[Auxiliary],
    classes: int,
    settings: Completion,
    *,
    tuning: Sequence[float] | None = None,
) -> Tensor:
    """(R, N, classes) probabilities of every record's label, from the moving average of each model over its training.

    Model r has the r-th known labels and draws from a stream of its own; `tuning`, if given, is of each model instead
    of the settings'. The last model is used, whatever its success: choosing the best one would take labels that no
    attacker has.
    """
    stream = _stream(auxiliaries, bottoms[0].features.device)
    models = CompletedModels(bottoms, classes, stream)
    mixmatch = _mixmatch(models, auxiliaries, classes, settings, stream)
    adam = _adam(models, settings, [settings.tuning] * len(auxiliaries) if tuning is None else tuning)
    averages = [t.clone() for t in (adam.values, *models.statistics)]
    steps = settings.epochs * settings.iterations
    for step, batch in enumerate(mixmatch.batches(steps)):
        adam.step(*mixmatch.slope(models, batch, settings.unlabelled_weight * min(1.0, step / steps)))
        # The average runs over fewer steps at first, so that it forgets the start.
        keep = min(settings.average, (1 + step) / (10 + step))
        for average, value in zip(averages, (adam.values, *models.statistics), strict=True):
            average.lerp_(value, 1 - keep)
        adam.values.mul_(1 - settings.decay)
    for average, value in zip(averages, (adam.values, *models.statistics), strict=True):
        value.copy_(average)
    return _predict(models, models.features)


def _stream(auxiliaries: Sequence[Auxiliary], device: torch.device) -> Stream:
    """The random sequences of each model: those of its auxiliary's seed."""
    return Stream(torch.cat([Stream.of(auxiliary.seed, "attack", [0], device).keys for auxiliary in auxiliaries]))


def _adam(models: CompletedModels, settings: Completion, tuning: Sequence[float]) -> FlatAdam:
    """The optimiser: the head's learning rate, and a share of it for the bottoms of each model."""
    shares = models.own[0].new_tensor(tuning)
    rates: list[float | Tensor] = [settings.rate] * len(models.head)
    for value in models.own:
        of_models = shares.repeat(len(value) // len(shares)) * settings.rate
        rates.append(of_models.view(-1, *[1] * (value.dim() - 1)))
    return FlatAdam([*models.head, *models.own], rates)


def _mixmatch(
    models: CompletedModels, auxiliaries: Sequence[Auxiliary], classes: int, settings: Completion, stream: Stream
) -> MixMatch:
    """The training of a model for each of the auxiliaries, whose seeds are those of its draws."""
    return MixMatch(
        features=models.features,
        auxiliaries=auxiliaries,
        classes=classes,
        batch=settings.batch,
        sharpness=settings.sharpness,
        mixing=settings.mixing,
        augment=settings.augment,
        stream=stream,
    )


@torch.no_grad()
def _predict(models: CompletedModels, features: Sequence[Tensor]) -> Tensor:
    """(R, N, classes) probabilities of all records."""
    models.training = False
    parts = zip(*(f.split(_ROWS, dim=1) for f in features), strict=True)
    return torch.cat([softmax(models(part), -1) for part in parts], dim=1)


@register("attack")
class LabelCompletionCompounding(LabelCompletionPassive):
    """Passive completion by a device that trained with the authors' optimiser as it runs in PyTorch 2.0, γ = 1.

    Scaled steps enter the momentum, so that the scale compounds. With a momentum of 0.5 (published for Criteo) the
    attacker's bottom then holds more of the labels than by the formula, and the other devices' less
    (tests/attacks/label/trained/test_completion_code.py); with one of 0.9 (published for CIFAR-10) steps grow until all
    numbers overflow, and the attack finds nothing.
    """

    name = "label_completion_compounding"
    summary = "completes the bottom of a device whose scaled steps enter its momentum"
    conduct = Conduct(name="compounding-optimiser", gain=1.0, momentum="compounding")
    heavy = True


@register("attack")
class LabelCompletionPublished(LabelCompletionPassive):
    """Passive completion by a device that trained with the authors' optimiser as it ran in PyTorch 1.7, γ = 1.

    That is the version which the authors name, and in PyTorch 2.0 their code cannot train with a momentum of 0.9: the
    published figures, such as 84.8 % of the training labels of CIFAR-10 against 80.2 % by the passive attack, are of
    this optimiser. It has no momentum m, but steps that are 2 m times as long. At a momentum of 0.5 its bottom holds
    more of the labels than an honest device's, and less than by the formula
    (tests/attacks/label/trained/test_completion_code.py).
    """

    name = "label_completion_published"
    summary = "completes the bottom of a device that scaled its own steps up as the authors' code did"
    conduct = Conduct(name="published-optimiser", gain=1.0, momentum="lost")
    heavy = True
