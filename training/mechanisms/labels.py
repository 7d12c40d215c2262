"""Label mechanisms: the labels are noised once, before training; all that follows is post-processing of them."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vflpriv.common.random import Stream
from vflpriv.core.claims import Claim
from vflpriv.core.releases import Laplace, Noise, RandomizedResponse, Release
from vflpriv.core.units import Unit

__all__ = [
    "Alibi",
    "LabelMechanism",
    "RandomizedLabels",
    "as_target",
    "label_claims",
    "posterior",
    "protected",
    "summed_loss",
]


def posterior(evidence: Tensor, logits: Tensor | None = None) -> Tensor:
    """P[label = c | what was observed], (…, C), from log-likelihoods of the observation under each label, (…, C).

    The prior is uniform, or the prediction that these logits are (ALIBI, Malek et al. 2021). No gradient flows through
    it. With the prediction as prior, softmax(z) - posterior is the gradient by z of -log P[observation] under the
    model: cross-entropy against it descends what was observed, noise included.
    """
    if logits is None:
        return torch.softmax(evidence, dim=-1)
    return torch.softmax(evidence + torch.log_softmax(logits.detach(), dim=-1), dim=-1)


def as_target(labels: Tensor, like: Tensor) -> Tensor:
    """One-hot labels (…, C) of labels (…), with the type of `like` (…, C); a posterior stays what it is."""
    onehot = labels if labels.is_floating_point() else torch.nn.functional.one_hot(labels, like.shape[-1])
    return onehot.to(like.dtype)


def summed_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """Cross-entropy of logits (R, B, C) against labels (R, B) or a posterior (R, B, C), summed over all records."""
    target = labels.transpose(1, 2) if labels.is_floating_point() else labels
    return torch.nn.functional.cross_entropy(logits.transpose(1, 2), target, reduction="sum")


# Label mechanisms: the labels are noised once, before training; all that follows is post-processing of them.


@dataclass(frozen=True, kw_only=True)
class LabelMechanism(ABC):
    """Turns labels into an observation of them, and describes that release."""

    @abstractmethod
    def observe(self, labels: Tensor, classes: int, stream: Stream) -> Tensor:
        """(R, N, C): all that labels (R, N) let out, an entry a class; its largest entry is at the likeliest label."""

    @abstractmethod
    def evidence(self, observed: Tensor) -> Tensor:
        """(R, N, C): the log-likelihood of what was observed under every label, but for what all classes share."""

    def apply(self, labels: Tensor, classes: int, stream: Stream) -> Tensor:
        """(R, N) noised labels of (R, N) labels: the likeliest ones."""
        return self.observe(labels, classes, stream).argmax(-1)

    @property
    @abstractmethod
    def noise(self) -> Noise: ...

    @property
    @abstractmethod
    def epsilon(self) -> float:
        """What one label gives away, whoever looks."""

    def describe(self, rounds: int, sensitivity: float) -> Release:
        everyone = frozenset({"device", "devices", "eavesdropper", "outsider", "model"})
        return Release(
            kind="noised-labels",
            what="every label once, noised before training; all later messages read only these",
            noise=self.noise,
            sensitivity=dict.fromkeys((Unit.LABEL, Unit.RECORD, Unit.ADD_REMOVE), sensitivity),
            rounds=np.arange(rounds) == 0,
            seen_by=everyone,
            reaches_all=True,
            once=True,
        )

    @abstractmethod
    def release(self, rounds: int) -> Release:
        """The ledger's entry."""


@dataclass(frozen=True, kw_only=True)
class Alibi(LabelMechanism):
    """Laplace noise of this std on every entry of the one-hot label (ALIBI, Malek et al. 2021).

    Two one-hot labels are at L1 distance 2 and the scale is std/√2: ε = 2√2/std. An observed o has under label c the
    log-likelihood -(|o_c - 1| + Σ_{j≠c} |o_j|)/scale, which is (|o_c| - |o_c - 1|)/scale but for what all classes
    share. It grows with o_c up to 1 and is flat from there on: several classes are often equally likely. The largest
    o_c is one of the likeliest, and favours no class; the first of them, or whichever rounding prefers, would.
    """

    std: float

    def observe(self, labels: Tensor, classes: int, stream: Stream) -> Tensor:
        replicas, records = labels.shape
        uniform = stream.uniform(records * classes).reshape(replicas, records, classes)
        centred = (uniform - 0.5).clamp(-0.4999999, 0.4999999)
        laplace = -centred.sign() * torch.log1p(-2 * centred.abs()) * (self.std / math.sqrt(2))
        return torch.nn.functional.one_hot(labels, classes) + laplace

    def evidence(self, observed: Tensor) -> Tensor:
        return (observed.abs() - (observed - 1).abs()) / (self.std / math.sqrt(2))

    @property
    def noise(self) -> Noise:
        return Laplace(self.std / math.sqrt(2))

    @property
    def epsilon(self) -> float:
        return 2 * math.sqrt(2) / self.std

    def release(self, rounds: int) -> Release:
        return self.describe(rounds, 2.0)


@dataclass(frozen=True, kw_only=True)
class RandomizedLabels(LabelMechanism):
    """Keeps a label with probability e^ε/(e^ε + C - 1), otherwise draws one of the others: ε-DP for each label."""

    budget: float

    def observe(self, labels: Tensor, classes: int, stream: Stream) -> Tensor:
        replicas, records = labels.shape
        keep = 1 / (1 + (classes - 1) * math.exp(-self.budget))
        uniform = stream.uniform(2 * records).reshape(replicas, records, 2)
        shift = 1 + (uniform[..., 1] * (classes - 1)).long().clamp(max=classes - 2)
        drawn = torch.where(uniform[..., 0] <= keep, labels, (labels + shift) % classes)
        return torch.nn.functional.one_hot(drawn, classes).to(torch.float32)

    def evidence(self, observed: Tensor) -> Tensor:
        return self.budget * observed

    @property
    def noise(self) -> Noise:
        return RandomizedResponse(self.budget)

    @property
    def epsilon(self) -> float:
        return self.budget

    def release(self, rounds: int) -> Release:
        return self.describe(rounds, 1.0)


def protected(releases: tuple[Release, ...], mechanism: LabelMechanism, rounds: int) -> tuple[Release, ...]:
    """The releases of an engine that only ever reads noised labels: of a label they tell nothing beyond those."""
    rest = []
    for release in releases:
        leak = release.leak
        if leak is not None:
            leak = replace(leak, sensitivity=_without_labels(leak.sensitivity))
        rest.append(replace(release, sensitivity=_without_labels(release.sensitivity), leak=leak))
    return (*rest, mechanism.release(rounds))


def label_claims(engine: Any, settings: Any) -> tuple[Claim, ...]:
    """What the label protection of an engine's settings promises to those who do not hold the labels."""
    mechanism: LabelMechanism | None = settings.label_mechanism
    if mechanism is None:
        return ()
    alibi = isinstance(mechanism, Alibi)
    return (
        Claim.of_epsilon(
            mechanism.epsilon,
            float(getattr(settings, "delta", 1e-5)),
            key="labels",
            source="alibi" if alibi else "randomised response",
            where="label_protection",
            statement="ε = 2√2/λ for Laplace noise of std λ on one-hot labels" if alibi else "ε of each label",
            unit=Unit.LABEL,
            view="eavesdropper" if "device" in engine.label_holders else "device",
        ),
    )


def _without_labels(bounds: Mapping[Unit, float]) -> dict[Unit, float]:
    return {unit: bound for unit, bound in bounds.items() if unit != Unit.LABEL}
