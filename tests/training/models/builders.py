"""Bottom and top models built from settings, for tests."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from tests.training.models.encoders import TOKENS
from vflpriv.core.data import VerticalData
from vflpriv.training.model_factory import bottom_model, server_model
from vflpriv.training.models.base import Model
from vflpriv.training.settings import EngineSettings, TopSettings

__all__ = ["bottom", "resnet_top", "transformer_top"]


def bottom(
    kind: Any, shape: tuple[int, ...], width: int, *, activate: bool = True, vocabulary: int = 99, **settings: Any
) -> Model:
    """A device's model for blocks of this shape."""
    chosen = EngineSettings(rounds=1, batch_size=1, bottom=kind, **settings)
    return bottom_model(chosen, shape, width, activate=activate, vocabulary=vocabulary)


def resnet_top(tiles: Sequence[tuple[int, int]], classes: int, *, maps: int) -> Model:
    """The server's part of ResNet-18 for devices whose tiles, of these heights and widths, lie side by side."""
    blocks = tuple(torch.zeros(1, 3, *tile) for tile in tiles)
    settings = TopSettings(rounds=1, batch_size=1, bottom="resnet18-stem", top="resnet18", hidden=(maps,))
    return server_model(settings, _data(blocks, classes, grid=(1, len(tiles))))


def transformer_top(classes: int, encoder: Path) -> Model:
    """The server's part of the encoder in this folder, for one device with TOKENS tokens."""
    settings = TopSettings(
        rounds=1, batch_size=1, bottom="transformer-embedding", top="transformer", encoder=str(encoder)
    )
    return server_model(settings, _data((torch.zeros(1, TOKENS, dtype=torch.int64),), classes))


def _data(blocks: tuple[torch.Tensor, ...], classes: int, grid: tuple[int, int] | None = None) -> VerticalData:
    label = torch.zeros(1, dtype=torch.int64)
    return VerticalData(
        name="shapes",
        classes=classes,
        blocks=blocks,
        labels=label,
        test_blocks=blocks,
        test_labels=label,
        grid=grid,
    )
