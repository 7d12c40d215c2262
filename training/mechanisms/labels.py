"""Label mechanisms: noise that each label is given once, and the targets that are trained on.

Whatever the training does with noised labels is post-processing of them, and costs no further privacy. ALIBI is the
mechanism of "Antipodes of Label Differential Privacy: PATE and ALIBI" (Malek et al. 2021). Those that draw labels
during training are in `priors.py`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from vflpriv.common.lazy import torch
from vflpriv.common.random import Stream
from vflpriv.core.claims import Claim
from vflpriv.core.engine import Engine
from vflpriv.core.law import Law
from vflpriv.core.releases import Release
from vflpriv.core.units import Unit
from vflpriv.core.views import EVERYONE
from vflpriv.laws import Laplace, RandomizedResponse

if TYPE_CHECKING:
    from torch import Tensor

__all__ = [
    "Alibi",
    "LabelMechanism",
    "NoisedBefore",
    "RandomizedLabels",
    "Responses",
    "SubsetLabels",
    "as_target",
    "label_claims",
    "posterior",
    "protected",
    "subset_law",
]


def posterior(evidence: Tensor, logits: Tensor | None = None) -> Tensor:
    """P[label = c | observation], (…, C), from the log-likelihoods of the observation under each label, (…, C).

    The prior is uniform, or softmax(logits), the model's prediction, as in ALIBI. No gradient flows through the result.
    With the prediction as prior, softmax(z) - posterior is the gradient by the logits z of -log P[observation] under
    the model: descending the cross-entropy against the posterior maximises the likelihood of the observation.
    """
    if logits is None:
        return torch.softmax(evidence, dim=-1)
    return torch.softmax(evidence + torch.log_softmax(logits.detach(), dim=-1), dim=-1)


def as_target(labels: Tensor, like: Tensor) -> Tensor:
    """Targets (…, C) of the data type of `like` (…, C): integer labels (…) as one-hot, a posterior (…, C) as it is."""
    onehot = labels if labels.is_floating_point() else torch.nn.functional.one_hot(labels, like.shape[-1])
    return onehot.to(like.dtype)


@dataclass(frozen=True, kw_only=True)
class LabelMechanism(ABC):
    """Gives every label noise once, and describes that release for the ledger."""

    source: ClassVar[str]
    statement: ClassVar[str]
    """The guarantee for one label, as its claim states it."""
    what: ClassVar[str] = "every label once, with noise, before training"

    @property
    @abstractmethod
    def noise(self) -> Law:
        """The distribution of the noise, for the ledger."""

    @property
    @abstractmethod
    def epsilon(self) -> float:
        """The ε of one label, for every adversary that does not hold the labels."""

    @property
    @abstractmethod
    def sensitivity(self) -> float:
        """How far one changed label moves the value under the noise: L1 distance for Laplace noise, a count for rr."""

    @property
    def record_sensitivity(self) -> float:
        """The same for a record whose features change too."""
        return self.sensitivity

    def release(self, rounds: int, *, server_holds: bool = True) -> Release:
        """The ledger's entry. A server that does not hold the labels sees what they did to the devices' messages."""
        of_record = dict.fromkeys((Unit.RECORD, Unit.ADD_REMOVE), self.record_sensitivity)
        return Release(
            kind="noised-labels",
            what=f"{self.what}; later messages depend on labels only through these",
            noise=self.noise,
            sensitivity={Unit.LABEL: self.sensitivity, **of_record},
            rounds=np.arange(rounds) == 0,
            seen_by=EVERYONE - {"server"} if server_holds else EVERYONE,
            reaches_all=True,
            once=True,
        )


@dataclass(frozen=True, kw_only=True)
class NoisedBefore(LabelMechanism):
    """Turns all labels into a noised observation of them before training."""

    @abstractmethod
    def observe(self, labels: Tensor, classes: int, stream: Stream) -> Tensor:
        """The released observation (R, N, C) of labels (R, N); its largest entry is at the likeliest label."""

    @abstractmethod
    def evidence(self, observed: Tensor) -> Tensor:
        """(R, N, C): the log-likelihood of an observation (R, N, C) under each label, up to terms all labels share."""


@dataclass(frozen=True, kw_only=True)
class Alibi(NoisedBefore):
    """ALIBI: Laplace noise of this standard deviation on every entry of the one-hot label.

    Two one-hot labels are at L1 distance 2 and the scale is std/√2, hence ε = 2√2/std. Under label c, an observation o
    has the log-likelihood -(|o_c - 1| + Σ_{j≠c} |o_j|)/scale, which is (|o_c| - |o_c - 1|)/scale up to a term that all
    labels share. It grows with o_c up to 1 and is constant beyond, so that several labels are often equally likely. The
    label with the largest o_c is one of them and favours no class, as the first of them would.
    """

    source = "ALIBI"
    statement = "ε = 2√2/λ for Laplace noise of standard deviation λ on one-hot labels"
    std: float

    @staticmethod
    def std_for(epsilon: float) -> float:
        """The standard deviation with which each label costs at most ε, rounding included."""
        return 2 * math.sqrt(2) / epsilon * (1 + 1e-9)

    def observe(self, labels: Tensor, classes: int, stream: Stream) -> Tensor:
        replicas, records = labels.shape
        uniform = stream.uniform(records * classes).reshape(replicas, records, classes)
        centred = (uniform - 0.5).clamp(-0.4999999, 0.4999999)
        laplace = -centred.sign() * torch.log1p(-2 * centred.abs()) * (self.std / math.sqrt(2))
        return torch.nn.functional.one_hot(labels, classes) + laplace

    def evidence(self, observed: Tensor) -> Tensor:
        return (observed.abs() - (observed - 1).abs()) / (self.std / math.sqrt(2))

    @property
    def noise(self) -> Law:
        return Laplace(self.std / math.sqrt(2))

    @property
    def epsilon(self) -> float:
        return 2 * math.sqrt(2) / self.std

    @property
    def sensitivity(self) -> float:
        return 2.0


@dataclass(frozen=True, kw_only=True)
class Responses(LabelMechanism):
    """Randomised response in any form: no answer is more than e^ε times as likely under one label as under another.

    `budget` is ε.
    """

    budget: float

    @property
    def noise(self) -> Law:
        return RandomizedResponse(self.budget)

    @property
    def epsilon(self) -> float:
        return self.budget

    @property
    def sensitivity(self) -> float:
        return 1.0


@dataclass(frozen=True, kw_only=True)
class RandomizedLabels(Responses, NoisedBefore):
    """Randomised response: keeps a label with probability e^ε/(e^ε + C - 1), else draws one of the C - 1 others.

    The probabilities of any output under two labels differ by at most the factor e^ε: ε-DP for each label. An
    observation is the one-hot encoding of the drawn label.
    """

    source = "randomised response"
    statement = "ε-DP for each label"

    def observe(self, labels: Tensor, classes: int, stream: Stream) -> Tensor:
        replicas, records = labels.shape
        keep = 1 / (1 + (classes - 1) * math.exp(-self.budget))
        uniform = stream.uniform(2 * records).reshape(replicas, records, 2)
        shift = 1 + (uniform[..., 1] * (classes - 1)).long().clamp(max=classes - 2)
        drawn = torch.where(uniform[..., 0] <= keep, labels, (labels + shift) % classes)
        return torch.nn.functional.one_hot(drawn, classes).to(torch.float32)

    def evidence(self, observed: Tensor) -> Tensor:
        return self.budget * observed


def subset_law(classes: int, epsilon: float) -> tuple[int, float]:
    """The size d of the sets that `SubsetLabels` draws, and the probability with which one holds the label.

    The latter is d e^ε/(d e^ε + C - d). Of all d that one is taken whose sets tell most of a label of which nothing is
    known: the mutual information of the two is largest.

    >>> [subset_law(10, epsilon)[0] for epsilon in (0.1, 1.0, 2.0, 2.8)]
    [5, 3, 2, 1]
    """

    def inside(size: int) -> float:
        return 1 / (1 + (classes - size) / size * math.exp(-epsilon))

    def told(size: int) -> float:
        p = inside(size)
        left = (1 - p) * math.log((1 - p) / (classes - size)) if p < 1 else 0.0
        return p * math.log(p / size) + left

    best = max(range(1, max(2, classes)), key=told)
    return best, inside(best)


@dataclass(frozen=True, kw_only=True)
class SubsetLabels(Responses, NoisedBefore):
    """Subset selection: answers with a random set of d classes, any set with the label e^ε times as likely as another.

    "Optimal Schemes for Discrete Distribution Estimation under Locally Differential Privacy" (Ye and Barg 2018). A set
    has probability ∝ e^ε if the label is in it and ∝ 1 otherwise: ε-DP for each label. With d = 1 it is randomised
    response; where e^ε is less than the number of classes, larger sets tell more: at ε = 1 of ten classes, 1.7 times as
    much. In an observation members of the set are 1/2, and one of them, drawn whatever the label, is 1.
    """

    source = "subset selection"
    statement = "ε-DP for each label"

    def observe(self, labels: Tensor, classes: int, stream: Stream) -> Tensor:
        replicas, records = labels.shape
        size, inside = subset_law(classes, self.budget)
        uniform = stream.uniform((classes + 2) * records).reshape(replicas, records, classes + 2)
        order, chance, pick = uniform[..., :classes], uniform[..., classes], uniform[..., classes + 1]
        # The label comes first or last, all other classes in random order between.
        rank = torch.where(chance <= inside, 2.0, -1.0).unsqueeze(-1)
        members = order.scatter(-1, labels.unsqueeze(-1), rank).topk(size, dim=-1).indices
        chosen = members.gather(-1, (pick * size).long().clamp(max=size - 1).unsqueeze(-1))
        observed = torch.zeros_like(order).scatter(-1, members, 0.5)
        return observed.scatter(-1, chosen, 1.0)

    def evidence(self, observed: Tensor) -> Tensor:
        return self.budget * (observed > 0)


def protected(
    releases: tuple[Release, ...], mechanism: LabelMechanism, rounds: int, *, server_holds: bool = True
) -> tuple[Release, ...]:
    """The releases of an engine that reads only noised labels: those labels, and the others without a label cost."""
    others = []
    for release in releases:
        leak = release.leak
        if leak is not None:
            leak = replace(leak, sensitivity=_without_labels(leak.sensitivity))
        others.append(replace(release, sensitivity=_without_labels(release.sensitivity), leak=leak))
    return (*others, mechanism.release(rounds, server_holds=server_holds))


def label_claims(engine: type[Engine], settings: Any) -> tuple[Claim, ...]:
    """The guarantee of an engine's label protection against those who do not hold the labels; none without one."""
    mechanism: LabelMechanism | None = settings.label_mechanism
    if mechanism is None:
        return ()
    target: float | None = settings.label_epsilon
    return (
        Claim.of_epsilon(
            mechanism.epsilon if target is None else target,
            settings.noise_parameters.delta,
            key="labels",
            source=mechanism.source,
            where="label_protection" if target is None else "label_epsilon",
            statement=mechanism.statement,
            unit=Unit.LABEL,
            view="eavesdropper" if "device" in engine.label_holders else "device",
        ),
    )


def _without_labels(bounds: Mapping[Unit, float]) -> dict[Unit, float]:
    return {unit: bound for unit, bound in bounds.items() if unit != Unit.LABEL}
