"""Labels of two classes from forward embeddings (Sun et al. 2022), which training separates along one axis.

Sun et al., "Label Leakage and Protection from Forward Embedding in Vertical Federated Learning", 2022.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from vflpriv.attacks._base import LabelInference
from vflpriv.attacks._embeddings import EMBEDDING_NEEDS, embeddings_of, without_embeddings
from vflpriv.attacks.label._two_classes import agreement, guess_by_threshold, not_two_classes, two_means
from vflpriv.common.registry import register
from vflpriv.core.attack import Auxiliary, Guess
from vflpriv.core.views import View

__all__ = ["LabelSpectral"]


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
