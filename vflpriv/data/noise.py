"""Noisy devices: Gaussian noise on the features of some devices, as a broken or careless party would have it.

"Improving Privacy-Preserving Vertical Federated Learning by Efficient Communication with ADMM" (VIMADMM), Section VI-C
and Appendix D: one noisy client in training and test (client denoising), or in the test alone (client importance). It
is a property of the data, not a protection, and no budget counts it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from vflpriv.common.lazy import torch
from vflpriv.common.seeds import SecretKey, host_generator
from vflpriv.core.data import BaseData, VerticalData
from vflpriv.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["check_noisy_devices", "with_noisy_devices"]


def check_noisy_devices(data: BaseData, devices: Sequence[int]) -> None:
    """Raise an InputError if there is no such device, or features are token ids, to which no noise can be added."""
    for m in devices:
        if not 0 <= m < data.devices:
            raise InputError("data.noisy_devices", m, f"devices 0 to {data.devices - 1}")
    if devices and data.tokens:
        raise InputError("data.noisy_devices", list(devices), f"none, since the features of {data.name} are token ids")


def with_noisy_devices(
    data: VerticalData,
    devices: Sequence[int],
    *,
    std: float,
    records: Literal["all", "test"],
    seed: int,
    key: SecretKey | None = None,
) -> VerticalData:
    """The same data with noise N(0, std²) on every feature of these devices, drawn once from the key, or the seed."""
    check_noisy_devices(data, devices)

    def noised(blocks: tuple[Tensor, ...], part: int) -> tuple[Tensor, ...]:
        return tuple(
            block + _noise(block, std, generator(part, m)) if m in devices else block for m, block in enumerate(blocks)
        )

    def generator(part: int, m: int) -> np.random.Generator:
        if key is not None:
            return key.generator("features", part, m)
        return host_generator(seed, "features", part, m)

    test_blocks = noised(data.test_blocks, 1)
    if records == "test":
        return replace(data, test_blocks=test_blocks)
    return replace(
        data,
        blocks=noised(data.blocks, 0),
        test_blocks=test_blocks,
        validation_blocks=noised(data.validation_blocks, 2),
    )


def _noise(block: Tensor, std: float, generator: np.random.Generator) -> Tensor:
    drawn = generator.standard_normal(tuple(block.shape), dtype=np.float32)
    return torch.from_numpy(drawn).mul_(std)
