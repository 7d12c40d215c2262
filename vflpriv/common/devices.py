"""Where numbers lie and how precise they may be: accelerators without float64, and copies that the host waits for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from vflpriv.common.lazy import torch
from vflpriv.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["check_device", "check_device_name", "pick_device", "precise_device", "to_host", "widest_float"]

_DEVICES = ("auto", "cpu", "cuda", "mps")


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


def check_device_name(name: str) -> None:
    """Raise an InputError if a setting means no torch device; only names that are not the usual ones load torch."""
    if name not in _DEVICES:
        pick_device(name)


def pick_device(name: str) -> torch.device:
    """The torch device that a setting means; `auto` takes the accelerator that is there."""
    if name != "auto":
        try:
            return torch.device(name)
        except RuntimeError as error:
            raise InputError("device", name, "auto, cpu, cuda or mps") from error
    if torch.cuda.is_available():
        return torch.device("cuda")
    return torch.device("mps" if torch.backends.mps.is_available() else "cpu")


def check_device(name: str) -> None:
    """Raise an InputError if torch cannot compute on the device that a setting means."""
    device = pick_device(name)
    try:
        torch.zeros(1, device=device).sum().item()
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise InputError("device", name, f"auto or cpu, since torch finds no {device} here") from error
