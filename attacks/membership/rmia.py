"""Robust membership inference (RMIA): how many other people's records a candidate's likelihood ratio exceeds.

Zarifzadeh, Liu, Shokri, "Low-Cost High-Power Membership Inference Attacks", ICML 2024.
"""

from __future__ import annotations

import torch
from torch import Tensor

from vflpriv.attacks.membership._base import ShadowInference
from vflpriv.common.registry import register

__all__ = ["FeatureRmia"]


@register("attack")
class FeatureRmia(ShadowInference):
    """The share of other records z that a candidate x dominates: P_z[LR(x, z) > γ], where

        LR(x, z) = (p(x | θ) / p(x)) / (p(z | θ) / p(z)),

    p(x | θ) is the attacked model's probability of x's label and p(x) its mean over shadow models, half of which were
    trained on x (equations 2 to 4, online). LiRA fits a variance to each candidate, for which it needs many models;
    this attack takes means alone, so that two models will do.

    The population z are the other candidates. With γ = 1, as in the authors' code, the score is the candidate's place
    among them, and who dominates more than half of them is called a member, since half of the candidates are. A larger
    γ changes no order but makes ties, of which a few hundred candidates would have many.

    Chance level: an AUC of 0.5. The scores of a model that never saw the candidates do not depend on the coins.
    """

    name = "feature_rmia"
    summary = "how many other candidates' likelihood ratios a candidate's exceeds, against the adversary's own models"
    least_models = 2

    def scores(self, odds: Tensor, shadows: Tensor, members: Tensor) -> Tensor:
        own, theirs = odds.sigmoid(), shadows.sigmoid()
        expected = (_mean(theirs, members) + _mean(theirs, ~members)) / 2
        ratios = own / expected.clamp(min=1e-300)
        dominated = torch.searchsorted(ratios.sort().values, ratios)
        return dominated.to(odds.dtype) / max(1, len(ratios) - 1) - 0.5


def _mean(probabilities: Tensor, chosen: Tensor) -> Tensor:
    """Each candidate's mean probability over the chosen ones of the models, (models, n)."""
    weight = chosen.to(probabilities.dtype)
    return (probabilities * weight).sum(0) / weight.sum(0).clamp(min=1)
