"""Success of an attack as a line of text."""

from __future__ import annotations

from vflpriv.audits.scoring.labels import Leakage

__all__ = ["words"]


def words(r: Leakage) -> str:
    """Success, a blind guess, the adversary without the protocol, what the protocol adds, %; intervals over seeds."""
    return (
        f"success {100 * r.success:.1f} [{100 * r.success_low:.1f}, {100 * r.success_high:.1f}], chance "
        f"{100 * r.chance:.1f}, no signal {100 * (r.blind or 0):.1f}, leakage {100 * r.leakage:+.1f} "
        f"[{100 * r.low:+.1f}, {100 * r.high:+.1f}]"
    )
