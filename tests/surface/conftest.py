"""Commands run here write no step summary of the job that runs the tests."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _no_step_summary(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
