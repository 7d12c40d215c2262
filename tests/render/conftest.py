"""The example reports of `tests/report`, which every format is rendered from."""

from __future__ import annotations

from tests.report.conftest import hostile, report, small

__all__ = ["hostile", "report", "small"]
