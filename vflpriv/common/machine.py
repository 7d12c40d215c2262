"""What a result says of the place where it was computed, and on what its last bits depend."""

from __future__ import annotations

import os
import platform

from vflpriv import __version__

__all__ = ["hardware", "machine", "versions"]


def versions() -> dict[str, str]:
    """Of this program, torch and Python."""
    import torch

    return {"vflpriv": __version__, "torch": torch.__version__, "python": platform.python_version()}


def machine() -> dict[str, str | int]:
    """On what the bits of a result depend beside its input: processor, instructions, threads, libraries.

    Matrix products add their terms in another order with other instructions (AVX2, AVX-512) or on more threads, and
    trainings enlarge the difference.
    """
    import torch

    return {
        "processor": platform.machine(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "threads": torch.get_num_threads(),
        **{name: version for name, version in versions().items() if name != "vflpriv"},
    }


def hardware() -> dict[str, str | int]:
    """The kind of processor, the instructions that torch uses, and the number of cores."""
    kind = machine()
    return {"machine": kind["processor"], "cpu_capability": kind["cpu_capability"], "cores": os.cpu_count() or 1}
