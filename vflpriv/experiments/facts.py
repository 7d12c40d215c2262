"""What the pages of all experiments say of their data, machine and settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from vflpriv.common import formatting as f
from vflpriv.render.document import Pairs

__all__ = ["ExperimentReport", "page_facts", "settings_pairs"]


class ExperimentReport(Protocol):
    """What the reports of all experiments have in common."""

    @property
    def data(self) -> dict[str, Any]: ...
    @property
    def hardware(self) -> dict[str, str | int]: ...
    @property
    def versions(self) -> dict[str, str]: ...
    @property
    def seeds(self) -> int: ...
    @property
    def confidence(self) -> float: ...


def page_facts(report: ExperimentReport) -> Sequence[tuple[str, str]]:
    """The line below the headline of a page."""
    data, machine = report.data, report.hardware
    records = f.count(data.get("records", 0))
    return (
        ("data", f"{data.get('name', f.NOTHING)}, {data.get('devices', f.NOTHING)} devices, {records} records"),
        ("seeds", str(report.seeds)),
        ("confidence", f.confidence(report.confidence)),
        ("machine", f"{machine.get('machine', f.NOTHING)}, {machine.get('cores', f.NOTHING)} cores"),
        ("versions", ", ".join(f"{name} {version}" for name, version in report.versions.items())),
    )


def settings_pairs(settings: Mapping[str, Any]) -> Pairs:
    """Settings with their values."""
    return Pairs([(name, str(value)) for name, value in settings.items()])
