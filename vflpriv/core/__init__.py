"""The vocabulary of the project: units, views, releases, ledgers, claims, budgets; what an engine, attack or audit is.

The names below are for plug-ins of other packages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vflpriv.common.lazy import lazy_names

if TYPE_CHECKING:
    from vflpriv.core.audit import Audit as Audit
    from vflpriv.core.audit import AuditContext as AuditContext
    from vflpriv.core.audit import Finding as Finding
    from vflpriv.core.budgets import Budget as Budget
    from vflpriv.core.budgets import Tightness as Tightness
    from vflpriv.core.claims import Claim as Claim
    from vflpriv.core.claims import SuccessClaim as SuccessClaim
    from vflpriv.core.claims import Verdict as Verdict
    from vflpriv.core.data import VerticalData as VerticalData
    from vflpriv.core.engine import Capabilities as Capabilities
    from vflpriv.core.kinds import Kind as Kind
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
    "Capabilities",
    "Claim",
    "Finding",
    "Kind",
    "Ledger",
    "Message",
    "Release",
    "Schedule",
    "SuccessClaim",
    "Tightness",
    "Unit",
    "Verdict",
    "VerticalData",
    "View",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "Adversary": "vflpriv.core.views",
        "Audit": "vflpriv.core.audit",
        "AuditContext": "vflpriv.core.audit",
        "Budget": "vflpriv.core.budgets",
        "Capabilities": "vflpriv.core.engine",
        "Claim": "vflpriv.core.claims",
        "Finding": "vflpriv.core.audit",
        "Kind": "vflpriv.core.kinds",
        "Ledger": "vflpriv.core.ledger",
        "Message": "vflpriv.core.wire",
        "Release": "vflpriv.core.releases",
        "Schedule": "vflpriv.core.schedules",
        "SuccessClaim": "vflpriv.core.claims",
        "Tightness": "vflpriv.core.budgets",
        "Unit": "vflpriv.core.units",
        "Verdict": "vflpriv.core.claims",
        "VerticalData": "vflpriv.core.data",
        "View": "vflpriv.core.views",
    },
)
