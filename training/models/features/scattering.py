"""Scattering: two layers of wavelets and moduli, whose weights are fixed, so that an image's features are its own.

Bruna and Mallat, "Invariant Scattering Convolution Networks" (2013). A linear model on such features is a strong base
for differentially private training (Tramèr and Boneh, "Differentially Private Learning Needs Better Features", 2021):
nothing of the features has to be learnt from private records.
"""

from __future__ import annotations

import math
from itertools import product
from typing import TYPE_CHECKING

from vflpriv.common.lazy import torch

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Scattering"]

_SLANT, _WIDTH, _FREQUENCY = 0.5, 0.8, 3 * math.pi / 4
"""Of the wavelets: height over width, width in pixels at the finest scale, and frequency there."""
_BORDER = 2
"""Pixels by which an image is mirrored at its edges."""
_EQUAL = 1e-5
"""Values whose distance from their mean is shorter are taken to be equal."""
_IN_CACHE, _TOGETHER = 16, 1024
"""Images that are transformed at once: on a processor as many as its cache holds, on other devices more."""


class Scattering:
    """Features of images of one shape: averages of wavelet moduli over a grid of cells.

    Wavelets have two scales and `angles` directions. The groups of channels (the image itself, either scale, and the
    fine scale seen through the coarse one) are each brought to mean 0 and one norm for every image by itself; and once
    more every channel.
    """

    def __init__(self, height: int, width: int, *, angles: int = 8, grid: int = 4) -> None:
        self.height, self.width, self.angles, self.grid = height, width, angles, grid
        # Halves of both sides have to be whole.
        self._padding = [_BORDER, _BORDER + width % 2, _BORDER, _BORDER + height % 2]

    @property
    def size(self) -> int:
        """The number of features."""
        return 2 * (1 + 2 * self.angles + self.angles**2) * self.cells

    @property
    def cells(self) -> int:
        return min(self.grid, self.height) * min(self.grid, self.width)

    def __call__(self, images: Tensor) -> Tensor:
        """(N, size) features of images (N, height, width)."""
        fine, coarse = (self._wavelets(scale, images.device) for scale in (0, 1))
        together = _IN_CACHE if images.device.type == "cpu" else _TOGETHER
        return torch.cat([self._features(part, fine, coarse) for part in images.split(together)])

    def _features(self, images: Tensor, fine: Tensor, coarse: Tensor) -> Tensor:
        padded = torch.nn.functional.pad(images.unsqueeze(1), self._padding, mode="replicate")
        spectrum = torch.fft.fft2(padded)
        first = _modulus(torch.fft.ifft2(spectrum * fine))
        groups = [
            padded,
            first,
            _modulus(torch.fft.ifft2(_halved(spectrum * coarse))),
            _modulus(torch.fft.ifft2(_halved(torch.fft.fft2(first).unsqueeze(2) * coarse))).flatten(1, 2),
        ]
        cells = (min(self.grid, self.height), min(self.grid, self.width))
        averages = [torch.nn.functional.adaptive_avg_pool2d(group, cells).flatten(2) for group in groups]
        channels = _standardised(torch.cat(averages, dim=1)).flatten(1) / sum(a.shape[1] for a in averages) ** 0.5
        together = torch.cat([_standardised(group.flatten(1)) for group in averages], dim=1) / len(groups) ** 0.5
        return torch.cat((together, channels), dim=1)

    def _wavelets(self, scale: int, device: torch.device) -> Tensor:
        """(angles, height, width) the spectra of the wavelets of one scale, with the border; none passes a constant."""
        height, width = self.height + sum(self._padding[2:]), self.width + sum(self._padding[:2])
        spread, centre = _WIDTH * 2**scale, _FREQUENCY / 2**scale
        down, right = (2 * math.pi * torch.fft.fftfreq(n, device=device) for n in (height, width))
        turn = math.pi * torch.arange(self.angles, device=device)[:, None, None] / self.angles
        wave, bell = (torch.zeros(self.angles, height, width, device=device) for _ in range(2))
        for alias_down, alias_right in product((-2 * math.pi, 0.0, 2 * math.pi), repeat=2):
            y, x = (down + alias_down)[:, None], (right + alias_right)[None]
            along, across = turn.cos() * x + turn.sin() * y, (turn.cos() * y - turn.sin() * x) / _SLANT
            wave += _bell(along - centre, across, spread)
            bell += _bell(along, across, spread)
        return wave - wave[:, :1, :1] / bell[:, :1, :1] * bell


def _bell(along: Tensor, across: Tensor, spread: float) -> Tensor:
    return torch.exp(-(spread**2) / 2 * (along.square() + across.square()))


def _modulus(values: Tensor) -> Tensor:
    """Of complex values; twice as fast as `abs` of them."""
    parts = torch.view_as_real(values)
    return torch.hypot(parts[..., 0], parts[..., 1])


def _halved(spectrum: Tensor) -> Tensor:
    """The spectrum of every second pixel in both directions."""
    height, width = spectrum.shape[-2:]
    rows = spectrum[..., : height // 2, :] + spectrum[..., height // 2 :, :]
    return (rows[..., : width // 2] + rows[..., width // 2 :]) / 4


def _standardised(values: Tensor) -> Tensor:
    """Mean 0 and norm 1 along the last axis; values that are all the same are zeros."""
    centred = values - values.mean(-1, keepdim=True)
    length = centred.norm(dim=-1, keepdim=True)
    return torch.where(length > _EQUAL, centred / length.clamp(min=_EQUAL), 0.0)
