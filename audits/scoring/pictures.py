"""Similarity of pictures: SSIM and PSNR of reconstructions and originals."""

from __future__ import annotations

import math

import torch
from torch import Tensor

__all__ = ["picture_shape", "psnr", "ssim"]

_WINDOW, _SIGMA = 11, 1.5
_C1, _C2 = 0.01**2, 0.03**2
"""Window and constants of SSIM."""


def picture_shape(block: Tensor) -> tuple[int, int, int] | None:
    """(channels, height, width) of a block of pictures with values in [0, 1], at least 2 pixels high; or None."""
    if block.dim() not in (3, 4) or float(block.min()) < 0 or float(block.max()) > 1:
        return None
    channels, height, width = block.shape[1:] if block.dim() == 4 else (1, *block.shape[1:])
    return (channels, height, width) if min(height, width) > 1 else None


def ssim(ours: Tensor, theirs: Tensor) -> Tensor:
    """(n,) mean structural similarity of (n, channels, height, width) pictures (Wang et al. 2004).

    Their Gaussian window of 11 × 11 pixels, σ = 1.5, and constants for a range of 1; where a picture is smaller
    than the window, the window is the largest odd rectangle that fits.
    """
    channels = ours.shape[1]
    vertical, horizontal = (_window(side, ours.device) for side in ours.shape[-2:])
    kernel = torch.outer(vertical, horizontal).expand(channels, 1, -1, -1)

    def mean(x: Tensor) -> Tensor:
        return torch.nn.functional.conv2d(x, kernel, groups=channels)

    x, y = ours.to(torch.float64), theirs.to(torch.float64)
    a, b = mean(x), mean(y)
    xx, yy, xy = mean(x * x) - a * a, mean(y * y) - b * b, mean(x * y) - a * b
    similarity = (2 * a * b + _C1) * (2 * xy + _C2) / ((a * a + b * b + _C1) * (xx + yy + _C2))
    return similarity.flatten(1).mean(1)


def _window(side: int, device: torch.device) -> Tensor:
    """The Gaussian window along one side, with sum 1."""
    size = min(_WINDOW, side)
    size -= 1 - size % 2
    offsets = torch.arange(size, dtype=torch.float64, device=device) - size // 2
    weights = torch.exp(-offsets.square() / (2 * _SIGMA**2))
    return weights / weights.sum()


def psnr(mse: float) -> float:
    """Peak signal-to-noise ratio in decibels, for values in [0, 1].

    >>> psnr(0.01), psnr(0.0)
    (20.0, inf)
    """
    return math.inf if mse <= 0 else -10 * math.log10(mse)
