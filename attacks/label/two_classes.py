"""Labels of two classes: a threshold found without labels; a few known labels decide which side is which class.

Directions and norms of gradients are read as in Li et al., "Label Leakage and Protection in Two-party Split Learning",
2021, embeddings as in Sun et al., "Label Leakage and Protection from Forward Embedding in Vertical Federated Learning",
2022.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from vflpriv.attacks._base import GradientInference, LabelInference
from vflpriv.attacks._embeddings import EMBEDDING_NEEDS, embeddings_of, without_embeddings
from vflpriv.attacks._observations import known_positions, positions_in, records_of, sum_by_record
from vflpriv.common.registry import register
from vflpriv.core.attack import Auxiliary, Guess
from vflpriv.core.views import View
from vflpriv.core.wire import Message

__all__ = [
    "LabelDirection",
    "LabelNorm",
    "LabelSpectral",
    "TwoClassInference",
    "agreement",
    "guess_by_threshold",
    "not_two_classes",
    "two_means",
]


def not_two_classes(view: View) -> str | None:
    """Why an attack on two classes does not apply, or None."""
    return None if view.classes == 2 else f"two classes; here there are {view.classes}"


class TwoClassInference(GradientInference):
    """Base of attacks on two classes that read each record's gradients and know a few labels."""

    def missing(self, view: View) -> str | None:
        return super().missing(view) or not_two_classes(view)


def two_means(scores: Tensor) -> Tensor:
    """The threshold that splits numbers into two clusters with the least sum of squares."""
    ordered = scores.sort().values.to(torch.float64)
    count = torch.arange(1, len(ordered), device=ordered.device, dtype=ordered.dtype)
    if not len(count):
        return scores.mean()
    sums = ordered.cumsum(0)
    left, right = sums[:-1], sums[-1] - sums[:-1]
    best = (left.square() / count + right.square() / (len(ordered) - count)).argmax()
    return ((ordered[best] + ordered[best + 1]) / 2).to(scores.dtype)


def agreement(records: Tensor, positive: Tensor, auxiliary: Auxiliary) -> Tensor:
    """The share of known labels that `positive` predicts right, minus ½; negative if the two sides are swapped."""
    positions, known = known_positions(records, auxiliary.records)
    right = positive[positions] == (auxiliary.labels[known] == 1)
    return (right.to(torch.float32) - 0.5).mean().nan_to_num(0.0)


def guess_by_threshold(records: Tensor, scores: Tensor, auxiliary: Auxiliary, threshold: Tensor) -> Guess:
    """Labels of sorted records by a threshold; the known labels decide which side of it is class 1."""
    positive = scores > threshold
    swapped = agreement(records, positive, auxiliary) < 0
    scores = torch.where(swapped, -scores, scores)
    return Guess(records, (positive ^ swapped).long().unsqueeze(0), scores.unsqueeze(0))


@register("attack")
class LabelDirection(TwoClassInference):
    """The cosine between a record's gradients and those of the few records whose label is known.

    g = (p - y) ∂logit/∂h: p - y has opposite signs for the two labels, and ∂logit/∂h differs little between records.
    Gradients are unit vectors summed over a record's rounds; the cosines of several devices are added.
    """

    name = "label_direction"
    summary = "splits two classes by the direction of gradients"

    def run(self, view: View, auxiliary: Auxiliary) -> Guess:
        messages = view.of_kind(*self.needs)
        records = records_of(messages)
        scores = torch.zeros(len(records), device=records.device)
        for device in sorted({m.device for m in messages}):
            device_records, cosines = _cosines([m for m in messages if m.device == device], auxiliary)
            scores.index_add_(0, torch.searchsorted(records, device_records), cosines)
        return guess_by_threshold(records, scores, auxiliary, torch.zeros((), device=scores.device))


def _cosines(messages: list[Message], auxiliary: Auxiliary) -> tuple[Tensor, Tensor]:
    """One device's sorted records (n,) and, for each, the cosine of its mean gradient with the reference gradient."""
    records = records_of(messages)
    units = (torch.nn.functional.normalize(m.tensors["gradient"], dim=-1) for m in messages)
    total = sum_by_record(positions_in(records, messages), units, len(records))[0]
    mean = torch.nn.functional.normalize(total, dim=-1)
    known = torch.searchsorted(records, auxiliary.records).clamp(max=len(records) - 1)
    signs = torch.where(auxiliary.labels == 1, 1.0, -1.0) * (records[known] == auxiliary.records)
    reference = (mean[known] * signs.unsqueeze(-1)).sum(0)
    return records, mean @ torch.nn.functional.normalize(reference, dim=0)


@register("attack")
class LabelNorm(TwoClassInference):
    """‖g_i‖ divided by the mean of its batch, averaged over the rounds; two clusters, named by the few known labels.

    A record's gradient has the norm |p - y| up to a common factor: where one class is rare, the model is more certain
    of the other, whose gradients are shorter.
    """

    name = "label_norm"
    summary = "splits two classes by the norm of gradients"

    def run(self, view: View, auxiliary: Auxiliary) -> Guess:
        messages = view.of_kind(*self.needs)
        records = records_of(messages)
        norms = (torch.linalg.vector_norm(m.tensors["gradient"], dim=-1) for m in messages)
        relative = (torch.stack((n / n.mean(1, keepdim=True).clamp(min=1e-30), torch.ones_like(n)), -1) for n in norms)
        sums = sum_by_record(positions_in(records, messages), relative, len(records))[0]
        scores = sums[:, 0] / sums[:, 1]
        return guess_by_threshold(records, scores, auxiliary, two_means(scores))


@register("attack")
class LabelSpectral(LabelInference):
    """Two clusters along the first singular vector v of the embeddings f: of ⟨f - f̄, v⟩, or of its absolute value,
    which separates a rare class from a common one.

    The few known labels decide which of the two is used, and name the clusters. A device computes the embeddings with
    its trained model; an eavesdropper takes those that were sent last. Embeddings of several devices are concatenated.
    Of more than `most` records it attacks a random sample: the axis is that of the classes, whoever is along it.
    """

    name = "label_spectral"
    summary = "splits two classes along the first singular vector of the embeddings"
    needs = EMBEDDING_NEEDS
    auxiliary = True

    def missing(self, view: View) -> str | None:
        return without_embeddings(view) or not_two_classes(view)

    def run(self, view: View, auxiliary: Auxiliary) -> Guess:
        sample, embeddings = embeddings_of(view, auxiliary, self.most)
        records = sample.records
        centred = embeddings - embeddings.mean(0)
        _, _, axes = torch.linalg.svd(centred, full_matrices=False)
        projection = centred @ axes[0]
        candidates = [(scores, two_means(scores)) for scores in (projection, projection.abs())]
        fits = [agreement(records, scores > threshold, auxiliary).abs() for scores, threshold in candidates]
        scores, threshold = candidates[0] if bool(fits[0] >= fits[1]) else candidates[1]
        guess = guess_by_threshold(records, scores, auxiliary, threshold)
        return replace(guess, drawn=sample.drawn, population=sample.population)
