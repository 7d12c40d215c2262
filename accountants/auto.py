"""The accountant to use when none is named: the tightest certified upper bound there is for an exposure."""

from __future__ import annotations

from dataclasses import replace

from vflpriv.accountants._merging import check, why_not
from vflpriv.accountants.gdp import GdpAccountant
from vflpriv.accountants.prv import PrvAccountant
from vflpriv.common.registry import register
from vflpriv.core.budgets import Budget
from vflpriv.core.ledger import Exposure

__all__ = ["AutoAccountant"]


@register("accountant")
class AutoAccountant:
    """`gdp` where it is exact, otherwise `prv`, whose bound is never above that of `rdp`.

    The budget's `upper` is certified by the accountant that gave it; the method says which that was, and why.
    """

    name = "auto"
    summary = "the tightest certified bound: gdp where it is exact, else prv, else rdp"

    def supports(self, exposure: Exposure) -> str | None:
        return why_not(exposure)

    def budget(self, exposure: Exposure, delta: float) -> Budget:
        check(self.supports(exposure), delta)
        reason = GdpAccountant().supports(exposure)
        chosen = GdpAccountant() if reason is None else PrvAccountant()
        budget = chosen.budget(exposure, delta)
        method = f"{chosen.name}: {budget.method}" + (f" ({reason})" if reason else "")
        return replace(budget, accountant=self.name, method=method)
