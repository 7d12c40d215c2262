"""The two-world audit: many trainings in two neighbouring worlds, and how well a view tells them apart."""

from vflpriv.audits.two_world.audit import TwoWorldAudit

__all__ = ["TwoWorldAudit"]
