"""The generative regression network as published (Luo et al. 2021): shown its own features and noise only."""

from __future__ import annotations

from vflpriv.attacks.feature_grn import FeatureGrn
from vflpriv.registry import register

__all__ = ["FeatureGrnPublished"]


@register("attack")
class FeatureGrnPublished(FeatureGrn):
    """Adam with a rate of 1e-4 for 60 epochs, no known record in the loss. Two things differ: it matches differences of
    logits, which the adversary sees, rather than confidences; and the sigmoid spans the known records' range."""

    name = "feature_grn_published"
    summary = "the generator as published: from its own features and noise alone"
    informed = False
    rate = 1e-4
    steps = 0
