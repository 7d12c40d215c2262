"""How much memory a device has left, and which errors say that it ran out of it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

__all__ = ["budget", "free_bytes", "out_of_memory", "release_cached"]

_SHARE = 0.8
"""Of what is free, since other programs and the allocator want some."""
_UNKNOWN = 1 << 30
"""Where neither the system nor the device says what is free."""
_SAYINGS = ("out of memory", "not enough memory", "allocate memory")


def budget(device: torch.device, neighbours: int = 1) -> int:
    """Bytes that one of so many tasks on the same device may plan with."""
    return int(_SHARE * free_bytes(device)) // max(1, neighbours)


def free_bytes(device: torch.device) -> int:
    """Memory that can still be taken, of the device or, for the CPU, of this machine or its container."""
    import torch

    if device.type == "cuda":
        # What torch holds in reserve is free for its own tensors.
        reserved = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(torch.cuda.mem_get_info(device)[0]) + reserved
    if device.type == "mps":
        return int(torch.mps.recommended_max_memory() - torch.mps.driver_allocated_memory())
    return min(_of_machine(), _of_group())


def _of_machine() -> int:
    """Free memory of the machine; on systems without /proc a half of all it has."""
    try:
        lines = Path("/proc/meminfo").read_text("ascii").splitlines()
        return next(1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable:"))
    except (OSError, ValueError, StopIteration):
        return _half_of_all()


def _half_of_all() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    except (AttributeError, OSError, ValueError):
        return _UNKNOWN


def _of_group(root: Path = Path("/sys/fs/cgroup")) -> int:
    """What the memory limit of this container leaves; without a limit more than any machine has.

    Files that were read count as used until something else wants their place, so they are taken off.
    """
    for limit, used, folder in (
        ("memory.max", "memory.current", root),
        ("memory.limit_in_bytes", "memory.usage_in_bytes", root / "memory"),
    ):
        most, taken = _number(folder / limit), _number(folder / used)
        if most is not None and taken is not None:
            return max(0, most - max(0, taken - _files(folder / "memory.stat")))
    return 1 << 62


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text("ascii"))
    except (OSError, ValueError):
        return None


def _files(path: Path) -> int:
    """Bytes of files in memory that can be dropped."""
    try:
        pairs = dict(line.split() for line in path.read_text("ascii").splitlines())
    except (OSError, ValueError):
        return 0
    return int(pairs.get("total_inactive_file", pairs.get("inactive_file", 0)))


def out_of_memory(error: BaseException) -> bool:
    """Whether an error says that there was not enough memory.

    >>> out_of_memory(RuntimeError("DefaultCPUAllocator: can't allocate memory")), out_of_memory(RuntimeError("shape"))
    (True, False)
    """
    if isinstance(error, MemoryError):
        return True
    return isinstance(error, RuntimeError) and any(saying in str(error) for saying in _SAYINGS)


def release_cached(device: torch.device) -> None:
    """Give back what torch holds in reserve on an accelerator."""
    import torch

    if device.type == "cuda":
        torch.cuda.empty_cache()
    elif device.type == "mps":
        torch.mps.empty_cache()
