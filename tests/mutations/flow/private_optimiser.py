"""Helpers of an ordinary project: a privacy module that training scripts import."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

__all__ = ["Bottom", "NoisyBackward", "PrivacyConfig", "RowPrivacy", "privatise"]


@dataclass
class PrivacyConfig:
    """How much each row may move, and by how much noise it is hidden."""

    max_norm: float = 0.5
    noise_multiplier: float = 4.0

    def mu(self, times: int) -> float:
        """μ of one record whose row is replaced this many times."""
        return 2 * math.sqrt(times) / self.noise_multiplier


class RowPrivacy:
    """Clips rows and adds noise to them; counts how often it was asked."""

    def __init__(self, config: PrivacyConfig):
        self.config = config
        self.steps = 0

    def clip(self, rows: Tensor) -> Tensor:
        norms = rows.flatten(1).norm(dim=1).clamp(min=1e-12)
        factors = (self.config.max_norm / norms).clamp(max=1.0)
        return rows * factors.view(-1, *[1] * (rows.dim() - 1))

    def __call__(self, rows: Tensor) -> Tensor:
        self.steps += 1
        std = self.config.max_norm * self.config.noise_multiplier
        return self.clip(rows) + std * torch.randn_like(rows)


def privatise(rows: Tensor, max_norm: float, noise_multiplier: float) -> Tensor:
    """The same as one function."""
    return RowPrivacy(PrivacyConfig(max_norm, noise_multiplier))(rows)


class NoisyBackward(torch.autograd.Function):
    """The identity, whose gradient is clipped by row and noised."""

    @staticmethod
    def forward(ctx, rows, max_norm, noise_multiplier):
        ctx.privacy = max_norm, noise_multiplier
        return rows.view_as(rows)

    @staticmethod
    def backward(ctx, gradient):
        return privatise(gradient, *ctx.privacy), None, None


class Bottom(nn.Module):
    """What one party trains on its columns."""

    def __init__(self, columns: int, width: int = 4, *, norm: bool = True):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(columns, 16),
            nn.BatchNorm1d(16) if norm else nn.Identity(),
            nn.ReLU(),
            nn.Dropout(0.1),
            nn.Linear(16, width),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x)
