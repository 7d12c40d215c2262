"""Label mechanisms: noise that each label is given once, and the targets that are trained on.

Whatever the training does with noised labels is post-processing of them, and costs no further privacy. Their laws are
in `vflpriv/laws/`; mechanisms that draw labels during training are in `priors.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from vflpriv.common.lazy import torch
from vflpriv.common.random import answered
from vflpriv.core.claims import Claim
from vflpriv.core.engine import Engine
from vflpriv.core.law import Draws, Law
from vflpriv.core.releases import Release
from vflpriv.core.units import Unit
from vflpriv.core.views import EVERYONE
from vflpriv.laws.labels.law import LabelLaw, LawAnswers

if TYPE_CHECKING:
    from torch import Tensor

__all__ = [
    "LabelMechanism",
    "NoisedBefore",
    "as_target",
    "label_claims",
    "posterior",
    "protected",
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
class LabelMechanism:
    """Gives every label noise once, by a law, and describes that release for the ledger."""

    law: LabelLaw
    what: ClassVar[str] = "every label once, with noise, before training"

    @property
    def source(self) -> str:
        """Where the guarantee was published."""
        return self.law.source

    @property
    def statement(self) -> str:
        """The guarantee for one label, as its claim states it."""
        return self.law.statement

    @property
    def noise(self) -> Law:
        """The law of the noise, for the ledger."""
        return self.law

    @property
    def epsilon(self) -> float:
        """The ε of one label, for every adversary that does not hold the labels."""
        return self.law.label_epsilon

    @property
    def sensitivity(self) -> float:
        """How far one changed label moves the value under the noise: L1 distance for Laplace noise, a count for rr."""
        return self.law.distance

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

    def observe(self, labels: Tensor, classes: int, stream: Draws) -> Tensor:
        """The released observation (R, N, C) of labels (R, N); its largest entry is at the likeliest label."""
        return answered(labels, LawAnswers(self.law, classes, stream))

    def evidence(self, observed: Tensor) -> Tensor:
        """(R, N, C): the log-likelihood of an observation (R, N, C) under each label, up to terms all labels share."""
        return self.law.evidence(observed)


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
