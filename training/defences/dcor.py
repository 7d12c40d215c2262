"""dCor: the server's gradients also push the embeddings towards independence of the labels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from vflpriv.common.lazy import torch
from vflpriv.common.registry import register
from vflpriv.core.kinds import Content
from vflpriv.training.defence import Exchange, MessageDefence, Protected

if TYPE_CHECKING:
    from torch import Tensor

    from vflpriv.core.law import Draws

__all__ = ["DistanceCorrelation", "distance_correlation", "distances"]


def distance_correlation(left: Tensor, right: Tensor) -> Tensor:
    """(R,) squared distance correlation (Székely et al. 2007), biased, in [0, 1], from distances (R, B, B) of each."""
    first, second = _centred(left), _centred(right)
    covariance = (first * second).mean(dim=(1, 2))
    variances = first.square().mean(dim=(1, 2)) * second.square().mean(dim=(1, 2))
    return covariance.clamp(min=0) / variances.clamp(min=1e-20).sqrt()


def distances(rows: Tensor) -> Tensor:
    """(R, B, B) Euclidean distances of rows (R, B, n)."""
    squares = rows.square().sum(-1)
    products = torch.bmm(rows, rows.transpose(1, 2))
    # A root of zero has no slope: the distance of a row to itself is 1e-6.
    return (squares.unsqueeze(2) + squares.unsqueeze(1) - 2 * products).clamp(min=1e-12).sqrt()


def _centred(distances: Tensor) -> Tensor:
    """The distances minus the means of their row and column, plus the mean of all."""
    means = distances.mean(1, keepdim=True), distances.mean(2, keepdim=True), distances.mean(dim=(1, 2), keepdim=True)
    return distances - means[0] - means[1] + means[2]


@register("defence")
class DistanceCorrelation(MessageDefence):
    """The gradient of weight·log dCor(embeddings, labels) is added to what each device is sent.

    "Label Leakage and Protection from Forward Embedding in Vertical Federated Learning" (Sun et al. 2022): devices'
    embeddings of a batch come to be almost independent of the labels, so that clusters of embeddings tell little. It
    promises no ε, and the gradients themselves go out unprotected.
    """

    name = "dcor"
    draws = False
    summary = "the server makes embeddings nearly independent of the labels"
    source = "Sun et al. 2022, dCor"
    content = Content.GRADIENT
    for_each_device = True
    weight: float = Field(0.1, gt=0, description="α, the weight of log dCor beside the mean loss of a batch")

    def protect(self, values: Tensor, exchange: Exchange, stream: Draws) -> Protected:
        embeddings = exchange.received.get(exchange.party)
        if embeddings is None or embeddings.shape != values.shape or values.shape[1] < 2:
            return Protected(values=values)
        # Two labels are as far apart as any two others.
        apart = (exchange.labels.unsqueeze(2) != exchange.labels.unsqueeze(1)).to(values.dtype)
        with torch.enable_grad():
            leaf = embeddings.detach().requires_grad_()
            penalty = 0.5 * self.weight * distance_correlation(distances(leaf), apart).clamp(min=1e-8).log()
        return Protected(values=values + torch.autograd.grad(penalty.sum(), leaf)[0])
