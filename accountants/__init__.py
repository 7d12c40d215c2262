"""Accountants: upper bounds on epsilon for what an adversary observes. None of them imports torch.

`gdp` is exact where the trade-off curve is Gaussian, `rdp` bounds any mix of noises, `prv` bounds it tightly from both
sides, and `auto` chooses the tightest. `calibration` finds the noise for a given budget.
"""

from __future__ import annotations

__all__ = ["auto", "calibration", "cross_checks", "gdp", "prv", "rdp"]
