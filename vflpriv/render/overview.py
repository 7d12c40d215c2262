"""The few parts of a result that a shell or a notebook shows."""

from __future__ import annotations

from dataclasses import dataclass

from vflpriv.core.claims import Verdict
from vflpriv.render.grid import Grid

__all__ = ["Overview"]


@dataclass(frozen=True)
class Overview:
    """What is shown of a result."""

    headline: str
    line: str
    """The result in one line, for a shell."""
    verdict: Verdict | None = None
    grids: tuple[Grid, ...] = ()
    notes: tuple[str, ...] = ()
