"""The report's facts about what a system lets out: releases, how batches were drawn, where the noise is from."""

from __future__ import annotations

from typing import Any

import numpy as np

from vflpriv.ledger import Ledger
from vflpriv.report_tests import Row
from vflpriv.schedules import Schedule

__all__ = ["ReleaseRow", "SamplingRow", "noise_source", "release_rows", "sampling_row"]


class ReleaseRow(Row):
    """One kind of private value that left its owner."""

    kind: str
    what: str
    noise: str
    seen_by: tuple[str, ...]
    rounds: int
    """In how many rounds it left."""
    sensitivity: dict[str, float]
    """By unit: how far one unit moves it before noise. A unit that is absent cannot move it."""
    protects: tuple[str, ...]
    """The units for which its noise bounds what it tells."""


class SamplingRow(Row):
    """How the batches of the run were drawn, whoever may know them."""

    batching: str
    description: str
    batch_size: int
    records: int
    fewest: int
    """Records in the smallest batch that was drawn."""
    most: int


def release_rows(ledger: Ledger) -> tuple[ReleaseRow, ...]:
    return tuple(
        ReleaseRow(
            kind=r.kind,
            what=r.what,
            noise=str(r.noise),
            seen_by=tuple(sorted(r.seen_by)),
            rounds=int(np.count_nonzero(r.rounds)),
            sensitivity={unit.value: float(r.sensitivity[unit]) for unit in sorted(r.sensitivity)},
            protects=tuple(unit.value for unit in sorted(r.sensitivity) if r.protects(unit)),
        )
        for r in ledger.releases
    )


def sampling_row(schedule: Schedule) -> SamplingRow:
    return SamplingRow(
        batching=schedule.batching.value,
        description=schedule.batching.description,
        batch_size=schedule.batch_size,
        records=schedule.records,
        fewest=int(schedule.size.min(initial=schedule.records)),
        most=int(schedule.size.max(initial=0)),
    )


def noise_source(settings: Any, seed: int) -> str:
    """Where the noise came from, and what that is worth."""
    secure = getattr(settings, "secure_noise", None)
    if secure is None:
        return "not known: no setting of this system says it"
    if secure:
        return "the operating system's secure generator"
    return (
        f"Philox4x32-10 from the seed {seed}, so that the run can be repeated: whoever knows the seed can subtract the "
        "noise; secure_noise = true takes it from the operating system"
    )
