"""Labels of any number of classes from clusters of embeddings, which training pulls apart by class."""

from __future__ import annotations

from vflpriv.attacks._base import LabelInference
from vflpriv.attacks._embeddings import EMBEDDING_NEEDS, embeddings_of, without_embeddings
from vflpriv.attacks.label._clusters import clustered
from vflpriv.common.registry import register
from vflpriv.core.attack import Auxiliary, Guess
from vflpriv.core.views import View

__all__ = ["LabelEmbeddingClusters"]

_STARTS = 2
"""Random starts beside the one at the known labels."""


@register("attack")
class LabelEmbeddingClusters(LabelInference):
    """k-means, one cluster for each class, on each record's embedding, every entry with mean 0 and deviation 1.

    The attack of "Label Leakage and Protection from Forward Embedding in Vertical Federated Learning" (Sun et al. 2022)
    for more than two classes. A device computes the embeddings with its trained model; an eavesdropper takes those that
    were sent last. Embeddings of several devices are concatenated. Of more than `most` records it attacks a random
    sample.
    """

    name = "label_embedding_clusters"
    summary = "splits any number of classes by clusters of the embeddings"
    needs = EMBEDDING_NEEDS
    auxiliary = True

    def missing(self, view: View) -> str | None:
        return without_embeddings(view)

    def run(self, view: View, auxiliary: Auxiliary) -> Guess:
        sample, embeddings = embeddings_of(view, auxiliary, self.most)
        centred = embeddings - embeddings.mean(0)
        points = centred / centred.square().mean(0).sqrt().clamp(min=1e-12)
        labels = clustered(points, sample.records, auxiliary, view.classes, starts=_STARTS)
        return sample.guess(labels.unsqueeze(0))
