"""The accountant that is used when none is named: it asks the tightest registered accountant that has an answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from vflpriv.accountants._merging import check, refusal
from vflpriv.common.registry import available, register
from vflpriv.core.budgets import Accountant, Budget, Tightness, quick_upper
from vflpriv.core.ledger import Exposure

__all__ = ["AutoAccountant"]


@register("accountant")
class AutoAccountant:
    """Of all registered accountants that support an exposure, the one with the greatest `tightness`.

    Of several with the same tightness it takes the least upper bound. With the accountants of this package that is
    `gdp` where it is exact, otherwise `prv`, whose bound is never above that of `rdp`. The budget's `upper` is
    certified by the accountant that computed it; the method names that accountant, and why no tighter one applies.
    """

    name = "auto"
    summary = "the tightest certified bound: gdp where it is exact, else prv, else rdp"
    tightness = Tightness.TIGHT

    def supports(self, exposure: Exposure) -> str | None:
        chosen, reason = self._choice(exposure)
        return None if chosen else reason

    def budget(self, exposure: Exposure, delta: float) -> Budget:
        chosen, reason = self._choice(exposure)
        check(None if chosen else reason, delta)
        budgets = [accountant.budget(exposure, delta) for accountant in chosen]
        least = min(budgets, key=lambda budget: budget.upper)
        method = f"{least.accountant}: {least.method}" + (f" ({reason})" if reason else "")
        return replace(least, accountant=self.name, method=method)

    def upper(self, exposure: Exposure, delta: float) -> float:
        """The upper bound, from each accountant that has a quick way to it by that way."""
        chosen, reason = self._choice(exposure)
        check(None if chosen else reason, delta)
        return min(quick_upper(accountant, exposure, delta) for accountant in chosen)

    def _choice(self, exposure: Exposure) -> tuple[Sequence[Accountant], str | None]:
        """The accountants to ask, and why tighter ones do not apply; none, and the reason, if no accountant does."""
        if exposure.not_applicable is not None:
            return (), refusal(exposure)
        accountants = [accountant() for name, accountant in available("accountant").items() if name != self.name]
        reasons: list[str] = []
        for tightness in sorted(Tightness, reverse=True):
            answers = [(a, a.supports(exposure)) for a in accountants if _tightness(a) is tightness]
            supporting = [accountant for accountant, reason in answers if reason is None]
            if supporting:
                return supporting, "; ".join(dict.fromkeys(reasons)) or None
            reasons += [reason for _, reason in answers if reason is not None]
        return (), refusal(exposure) or "; ".join(dict.fromkeys(reasons))


def _tightness(accountant: Accountant) -> Tightness:
    """What an accountant says of its bounds; one of another package that says nothing is taken to be loose."""
    return getattr(accountant, "tightness", Tightness.LOOSE)
