"""Where numbers lie and how precise they may be: accelerators without float64, and copies that the host waits for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from vflpriv.common.lazy import torch

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["precise_device", "to_host", "widest_float"]


def widest_float(device: torch.device) -> torch.dtype:
    """float64, or float32 where the device has nothing wider, as MPS has not.

    >>> widest_float(torch.device("cpu"))
    torch.float64
    """
    try:
        torch.empty(0, dtype=torch.float64, device=device)
    except TypeError:
        return torch.float32
    return torch.float64


def precise_device(device: torch.device) -> torch.device:
    """Where float64 is computed: the device itself, or the CPU where the device has no float64."""
    return device if widest_float(device) == torch.float64 else torch.device("cpu")


def to_host(tensors: Sequence[Tensor]) -> list[Tensor]:
    """The tensors on the CPU: the host waits once for all that share a type, not once for each.

    A tensor that is there already is returned as it is, and one that is given twice is copied once.

    >>> [t.device.type for t in to_host([torch.zeros(2), torch.ones(3, 1)])]
    ['cpu', 'cpu']
    """
    elsewhere = {id(tensor): tensor for tensor in tensors if tensor.device.type != "cpu"}
    moved: dict[int, Tensor] = {}
    for kind in dict.fromkeys((tensor.device, tensor.dtype) for tensor in elsewhere.values()):
        alike = {key: t for key, t in elsewhere.items() if (t.device, t.dtype) == kind}
        packed = torch.cat([tensor.detach().reshape(-1) for tensor in alike.values()]).cpu()
        parts = packed.split([tensor.numel() for tensor in alike.values()])
        moved |= {key: part.reshape(t.shape) for (key, t), part in zip(alike.items(), parts, strict=True)}
    return [moved.get(id(tensor), tensor) for tensor in tensors]
