"""What a result file says of the place where it was computed."""

from __future__ import annotations

import os
import platform

from vflpriv import __version__

__all__ = ["hardware", "versions"]


def versions() -> dict[str, str]:
    """Of this program, torch and Python."""
    import torch

    return {"vflpriv": __version__, "torch": torch.__version__, "python": platform.python_version()}


def hardware() -> dict[str, str | int]:
    """The kind of processor and the number of cores."""
    return {"machine": platform.machine(), "cores": os.cpu_count() or 1}
