"""The words of the project: units, views, releases, ledgers, claims, budgets, and what an engine, attack or audit is.

The names below are for plug-ins of other packages.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vflpriv.core.audit import Audit as Audit
    from vflpriv.core.audit import AuditContext as AuditContext
    from vflpriv.core.audit import Finding as Finding
    from vflpriv.core.budgets import Budget as Budget
    from vflpriv.core.claims import Claim as Claim
    from vflpriv.core.claims import SuccessClaim as SuccessClaim
    from vflpriv.core.claims import Verdict as Verdict
    from vflpriv.core.data import VerticalData as VerticalData
    from vflpriv.core.ledger import Ledger as Ledger
    from vflpriv.core.releases import Release as Release
    from vflpriv.core.schedules import Schedule as Schedule
    from vflpriv.core.units import Unit as Unit
    from vflpriv.core.views import Adversary as Adversary
    from vflpriv.core.views import View as View
    from vflpriv.core.wire import Message as Message

__all__ = [
    "Adversary",
    "Audit",
    "AuditContext",
    "Budget",
    "Claim",
    "Finding",
    "Ledger",
    "Message",
    "Release",
    "Schedule",
    "SuccessClaim",
    "Unit",
    "Verdict",
    "VerticalData",
    "View",
]

_FROM = {
    "Adversary": "vflpriv.core.views",
    "Audit": "vflpriv.core.audit",
    "AuditContext": "vflpriv.core.audit",
    "Budget": "vflpriv.core.budgets",
    "Claim": "vflpriv.core.claims",
    "Finding": "vflpriv.core.audit",
    "Ledger": "vflpriv.core.ledger",
    "Message": "vflpriv.core.wire",
    "Release": "vflpriv.core.releases",
    "Schedule": "vflpriv.core.schedules",
    "SuccessClaim": "vflpriv.core.claims",
    "Unit": "vflpriv.core.units",
    "Verdict": "vflpriv.core.claims",
    "VerticalData": "vflpriv.core.data",
    "View": "vflpriv.core.views",
}


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> Any:
    """Names are imported when they are first used, so that importing the package costs nothing."""
    if name not in _FROM:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_FROM[name]), name)
