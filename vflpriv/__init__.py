"""Audits the privacy of vertical federated learning: what is claimed, what can be accounted for, what is measured."""

from __future__ import annotations

__all__ = ["__version__"]

__version__ = "0.1.0"
