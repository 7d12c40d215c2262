"""MARVELL: noise with the covariances that make the gradients of two classes hardest to tell apart."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pydantic import Field

from vflpriv.common.lazy import torch
from vflpriv.common.registry import register
from vflpriv.core.kinds import Content
from vflpriv.training.defence import Exchange, MessageDefence, Protected

if TYPE_CHECKING:
    from torch import Tensor

    from vflpriv.core.law import Draws

__all__ = ["Marvell", "Moments", "noise_variances", "symmetric_divergence"]

_GRID = 65
"""Candidates in each of the two directions of the search."""


@register("defence")
class Marvell(MessageDefence):
    """Gaussian noise for each class, of variance λ₁ along the difference Δ of the class means and λ₂ across it.

    "Label Leakage and Protection in Two-party Split Learning" (Li et al., ICLR 2022), Theorem 3: of all noise whose
    mean squared norm is at most `power`·‖Δ‖², this minimises the sum of the two Kullback-Leibler divergences between
    the classes' gradients, taken to be normal with one variance per class. It bounds what norms and directions tell in
    one batch; it promises no ε.
    """

    name = "marvell"
    summary = "the server adds the noise that best hides which of two classes a gradient is of"
    source = "Li et al. 2022, MARVELL"
    content = Content.GRADIENT
    binary = True
    power: float = Field(4.0, gt=0, description="s, the noise's mean squared norm as a multiple of ‖Δ‖²")

    def protect(self, values: Tensor, exchange: Exchange, stream: Draws) -> Protected:
        rows, width = values.shape[1:]
        classes = torch.nn.functional.one_hot(exchange.labels, 2).to(values.dtype)  # (R, B, 2)
        counts = classes.sum(1)
        means = torch.bmm(classes.transpose(1, 2), values) / counts.clamp(min=1).unsqueeze(-1)
        spread = (values - torch.bmm(classes, means)).square().mean(-1, keepdim=True)
        variances = (classes * spread).sum(1) / counts.clamp(min=1)
        difference = means[:, 1] - means[:, 0]
        distance = difference.square().sum(-1)
        floor = 1e-12 * distance.clamp(min=1e-20).unsqueeze(-1)
        moments = Moments(shares=counts / rows, variances=variances + floor, distance=distance, width=width)
        along, across = noise_variances(moments, self.power * distance)
        both = (counts.amin(-1) > 0).to(values.dtype)[:, None, None]  # a batch of one class has nothing to hide
        deviations = (torch.bmm(classes, torch.stack((along - across, across), -1)).clamp(min=0).sqrt()) * both
        normals = stream.normal(rows * (width + 1), exchange.round, exchange.party)
        normals = normals.reshape(-1, rows, width + 1)
        direction = (difference / distance.sqrt().clamp(min=1e-20).unsqueeze(-1)).unsqueeze(1)
        noise = normals[..., :1] * deviations[..., :1] * direction + normals[..., 1:] * deviations[..., 1:]
        return Protected(values=values + noise)


@dataclass(frozen=True, eq=False, kw_only=True)
class Moments:
    """Shares and variances per entry, (R, 2), of the two classes, and the squared distance of their means, (R,)."""

    shares: Tensor
    variances: Tensor
    distance: Tensor
    width: int


def symmetric_divergence(m: Moments, along: Tensor, across: Tensor) -> Tensor:
    """Twice the sum of both divergences, up to a constant, with noise variances (…, 2) along and across Δ.

    (d-1)(B₀/B₁ + B₁/B₀) + (A₀ + ‖Δ‖²)/A₁ + (A₁ + ‖Δ‖²)/A₀, where A and B are a class's whole variances along and across
    it. Moments have as many axes in front of their last as the noise.
    """
    first, second = (along + m.variances).unbind(-1)
    third, fourth = (across + m.variances).unbind(-1)
    return (
        (m.width - 1) * (third / fourth + fourth / third)
        + (first + m.distance) / second
        + (second + m.distance) / first
    )


def noise_variances(m: Moments, power: Tensor) -> tuple[Tensor, Tensor]:
    """(R, 2) variances of the noise along and across Δ, by search over how the power (R,) is spent.

    Across Δ only the class with the lesser variance is given noise, up to that of the other: more helps nothing. What
    is left goes along Δ, divided between the classes.
    """
    fractions = torch.linspace(0, 1, _GRID, device=power.device)
    less = torch.zeros_like(m.variances).scatter(-1, m.variances.argmin(-1, keepdim=True), 1.0)
    gap = (m.variances[..., 0] - m.variances[..., 1]).abs()
    cost = m.width * (less * m.shares).sum(-1)
    filled = torch.minimum(gap, power / cost.clamp(min=1e-30))
    across = (fractions[:, None, None] * filled)[..., None] * less  # (grid, 1, R, 2)
    left_over = power - m.width * (across * m.shares).sum(-1)
    split = torch.stack((fractions, 1 - fractions), -1)[None, :, None]  # (1, grid, 1, 2)
    along = across + split * (left_over[..., None] / m.shares.clamp(min=1e-30))
    divergence = symmetric_divergence(m, along, across).flatten(0, 1)
    best = divergence.argmin(0)
    pick = best[None, :, None].expand(1, -1, 2)
    whole = across.expand_as(along)
    return along.flatten(0, 1).gather(0, pick)[0], whole.flatten(0, 1).gather(0, pick)[0]
