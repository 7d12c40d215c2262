"""What `vflpriv replay` does."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from vflpriv.audits.sensitivity import replay_witness
from vflpriv.render.console import say

__all__ = ["replay"]


def replay(path: Path) -> int:
    """Compute a saved witness of the sensitivity search again; 1 if it breaks the declared bound."""
    found = replay_witness(path)
    verdict = "within" if found.holds else "beyond"
    line = (
        f"{found.mechanism}, {found.unit}: observed {found.observed:.6g}, {verdict} the declared {found.declared:.6g}"
    )
    say(Console(), line)
    return 0 if found.holds else 1
