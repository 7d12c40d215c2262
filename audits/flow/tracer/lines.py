"""The line of the user's program that is running: frames of torch, of NumPy and of this tool are passed over."""

from __future__ import annotations

import os
import sys
import sysconfig
from types import FrameType

import vflpriv

__all__ = ["program_line"]

_HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_PLUMBING = os.path.dirname(os.path.abspath(vflpriv.__file__))
"""What engines send and draw with: the engine's own line says more."""
_STANDARD = sysconfig.get_paths()["stdlib"]


def program_line() -> str:
    """`file.py:12` of the innermost frame that is the user's."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        if not name.startswith((_HERE, _PLUMBING, _STANDARD, "<")) and "site-packages" not in name:
            return f"{os.path.basename(name)}:{frame.f_lineno}"
        frame = frame.f_back
    return ""
