"""The machine on which a result is computed: what its last bits depend on, and one thread in place of many.

A sum that several threads share, or that other instructions compute, is rounded differently.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager

from threadpoolctl import threadpool_limits

from vflpriv import __version__

__all__ = ["hardware", "machine", "single_threaded", "versions"]


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


@contextmanager
def single_threaded() -> Iterator[None]:
    """Run every operation of torch, numpy and scipy on one thread; also a decorator of a function.

    So the same seed gives the same bytes on every computer of a kind, however many cores it has.
    """
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpool_limits(limits=1, user_api="blas"):
            yield
    finally:
        torch.set_num_threads(before)
