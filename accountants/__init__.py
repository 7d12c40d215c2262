"""Accountants: from what reaches an adversary to an upper bound on epsilon. None of them imports torch.

`gdp` is exact where the trade-off curve is Gaussian, `rdp` bounds any mix of noises, `prv` bounds it tightly from both
sides, and `auto` takes the tightest that is certified. `calibration` goes the other way, from a budget to the noise.
"""

from __future__ import annotations

__all__ = ["auto", "calibration", "cross_checks", "gdp", "prv", "rdp"]
