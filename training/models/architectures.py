"""Convolutional and recurrent networks of the papers as torch modules: flat records (B, n) to outputs (B, k).

A replica's function must depend on its parameters alone, so no module keeps running statistics: ResNet has group
normalisation where the original has batch normalisation. No module draws random numbers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn

__all__ = ["ConvNet", "Lstm", "ResNet18", "ResNet18Rest", "ResNet20", "Stem", "head"]

_CHANNELS_PER_GROUP = 16
_LARGE = 64
"""From this many pixels per side, ResNet-18 starts as the original does."""


def head(inputs: int, outputs: int, *, activate: bool) -> nn.Sequential:
    """The last linear layer, followed by ReLU if `activate`."""
    return nn.Sequential(nn.Linear(inputs, outputs), *([nn.ReLU()] if activate else []))


def _halved(size: int) -> int:
    return max(1, size // 2)


class ConvNet(nn.Module):
    """3x3 convolutions with ReLU, each followed by 2x2 mean pooling (while two pixels are left), and a linear layer.

    `map_shapes` are the shapes of the convolutions' outputs for one record. With `average` the last feature maps
    are averaged, as in the CNN of VIMADMM §VI-1; otherwise they are flattened. The code published for VIMADMM
    enlarges CIFAR's patches to 32x32 and normalises the embedding over the batch; neither is done here.
    """

    def __init__(
        self, shape: tuple[int, int, int], channels: Sequence[int], embedding: int, *, average: bool, activate: bool
    ) -> None:
        super().__init__()
        (depth, height, width), self.shape, self.average = shape, shape, average
        self.map_shapes: list[tuple[int, int, int]] = []
        layers: list[nn.Module] = []
        for count in channels:
            self.map_shapes.append((count, height, width))
            layers += [nn.Conv2d(depth, count, 3, padding=1), nn.ReLU()]
            layers += [nn.AvgPool2d((min(2, height), min(2, width)))]
            depth, height, width = count, _halved(height), _halved(width)
        self.body = nn.Sequential(*layers)
        self.head = head(depth * (1 if average else height * width), embedding, activate=activate)

    def forward(self, records: Tensor, *neurons: Tensor) -> Tensor:
        """Outputs of flat records; `neurons` are added to the outputs of the convolutions, before their ReLU."""
        maps, left = records.unflatten(1, self.shape), iter(neurons)
        for layer in self.body:
            maps = layer(maps)
            if neurons and isinstance(layer, nn.Conv2d):
                maps = maps + next(left)
        return cast("Tensor", self.head(maps.mean((2, 3)) if self.average else maps.flatten(1)))


def _norm(channels: int) -> nn.GroupNorm:
    # 16 channels per group (Wu and He 2018); groups of two values, in maps of one pixel, would become ±1.
    return nn.GroupNorm(math.gcd(channels, max(1, channels // _CHANNELS_PER_GROUP)), channels)


class _Block(nn.Module):
    """A residual block: two 3x3 convolutions, to which the input is added (He et al. 2016)."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False),
            _norm(outputs),
            nn.ReLU(),
            nn.Conv2d(outputs, outputs, 3, padding=1, bias=False),
            _norm(outputs),
        )
        same = stride == 1 and inputs == outputs
        self.shortcut: nn.Module = nn.Identity()
        if not same:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), _norm(outputs))

    def forward(self, maps: Tensor) -> Tensor:
        return torch.relu(self.body(maps) + self.shortcut(maps))


def _trunk(width: int, *, stages: int = 4, depth: int = 2, pool: bool = False) -> nn.Sequential:
    """All layers between the first convolution and the last layer: stages of `depth` blocks, each stage but the first
    with twice the channels and half the pixels of the stage before it."""
    inputs, blocks = width, []
    for stage in range(stages):
        outputs = width * 2**stage
        blocks += [_Block(inputs, outputs, 1 if stage == 0 else 2)]
        blocks += [_Block(outputs, outputs, 1) for _ in range(depth - 1)]
        inputs = outputs
    first = [nn.MaxPool2d(3, stride=2, padding=1)] if pool else []
    return nn.Sequential(_norm(width), nn.ReLU(), *first, *blocks)


class _ResNet(nn.Module):
    """A first convolution, stages of residual blocks, the mean over pixels, and the last linear layer."""

    def __init__(self, shape: tuple[int, int, int], stem: nn.Conv2d, trunk: nn.Sequential, last: nn.Sequential) -> None:
        super().__init__()
        self.shape, self.stem, self.trunk, self.head = shape, stem, trunk, last

    def forward(self, records: Tensor) -> Tensor:
        maps = self.trunk(self.stem(records.unflatten(1, self.shape)))
        return cast("Tensor", self.head(maps.mean((2, 3))))


class ResNet18(_ResNet):
    """ResNet-18 with group normalisation, for images (channels, height, width).

    For images below 64 pixels per side it starts with a 3x3 convolution and no pooling, as is usual for CIFAR; for
    larger ones with the original's 7x7 convolution and 3x3 pooling, both with stride 2.
    """

    def __init__(self, shape: tuple[int, int, int], embedding: int, *, width: int, activate: bool) -> None:
        large = min(shape[1:]) >= _LARGE
        kernel, stride = (7, 2) if large else (3, 1)
        stem = nn.Conv2d(shape[0], width, kernel, stride, padding=kernel // 2, bias=False)
        super().__init__(shape, stem, _trunk(width, pool=large), head(8 * width, embedding, activate=activate))


class ResNet20(_ResNet):
    """ResNet-20 (He et al. 2016, §4.2) with group normalisation: three stages of three blocks, for small images.

    Where the number of channels changes the shortcut is a convolution, as in ResNet-18, not padding.
    """

    def __init__(self, shape: tuple[int, int, int], embedding: int, *, width: int, activate: bool) -> None:
        stem = nn.Conv2d(shape[0], width, 3, padding=1, bias=False)
        trunk = _trunk(width, stages=3, depth=3)
        super().__init__(shape, stem, trunk, head(4 * width, embedding, activate=activate))


class Stem(nn.Module):
    """A device's part of the split ResNet-18 (VFL-Cascaded §VI-A): the first convolution, 3x3, of its own tile.

    Its outputs are `width` feature maps of the tile's size, flat.
    """

    def __init__(self, shape: tuple[int, int, int], width: int) -> None:
        super().__init__()
        self.shape = shape
        self.convolution = nn.Conv2d(shape[0], width, 3, padding=1, bias=False)

    def forward(self, records: Tensor) -> Tensor:
        return cast("Tensor", self.convolution(records.unflatten(1, self.shape))).flatten(1)


class ResNet18Rest(nn.Module):
    """The server's part of the split ResNet-18: joins the feature maps of all tiles, and computes all other layers.

    `tiles` are the (height, width) of the devices' tiles, row by row; inputs are their flat maps, concatenated.
    """

    def __init__(self, tiles: Sequence[Sequence[tuple[int, int]]], classes: int, *, width: int) -> None:
        super().__init__()
        self.tiles, self.width = [list(row) for row in tiles], width
        self.sizes = [width * height * across for row in tiles for height, across in row]
        self.trunk = _trunk(width)
        self.head = head(8 * width, classes, activate=False)

    def forward(self, embeddings: Tensor) -> Tensor:
        maps = iter(embeddings.split(self.sizes, dim=1))
        rows = [torch.cat([next(maps).unflatten(1, (self.width, *t)) for t in row], dim=3) for row in self.tiles]
        return cast("Tensor", self.head(self.trunk(torch.cat(rows, dim=2)).mean((2, 3))))


class Lstm(nn.Module):
    """Word vectors, one LSTM layer over them, and a linear layer on its last state; padding (id 0) is skipped.

    Inputs are token ids (B, tokens). The cell is written out, since `vmap` does not support torch's own LSTM.
    """

    def __init__(self, vocabulary: int, word: int, state: int, embedding: int, *, activate: bool) -> None:
        super().__init__()
        self.words = nn.Embedding(vocabulary, word)
        self.inputs = nn.Linear(word, 4 * state)
        self.states = nn.Linear(state, 4 * state, bias=False)
        self.head = head(state, embedding, activate=activate)

    def forward(self, ids: Tensor) -> Tensor:
        gates, present = self.inputs(self.words(ids)), (ids != 0).unsqueeze(-1)
        hidden = cell = gates.new_zeros(len(ids), self.states.in_features)
        for t in range(ids.shape[1]):
            input_gate, forget_gate, value, output_gate = (gates[:, t] + self.states(hidden)).chunk(4, dim=1)
            new_cell = torch.sigmoid(forget_gate) * cell + torch.sigmoid(input_gate) * torch.tanh(value)
            new_hidden = torch.sigmoid(output_gate) * torch.tanh(new_cell)
            cell, hidden = torch.where(present[:, t], new_cell, cell), torch.where(present[:, t], new_hidden, hidden)
        return cast("Tensor", self.head(hidden))
