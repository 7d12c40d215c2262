"""Poisson batches may be empty: every engine trains through such a round, and its models stay finite."""

from __future__ import annotations

import pytest

from tests.support import ENGINES, make_system
from vflpriv.core.wire import Transcript, Wire


# Every round of these is over all records.
@pytest.mark.parametrize("variant", [v for v in ENGINES if not v.startswith(("send-once", "noise-once"))])
def test_every_engine_trains_through_empty_batches(variant: str) -> None:
    system = make_system(variant, schedule="poisson", batch_size=1)
    assert 0 in system.schedule.size
    engine, transcript = system.train([0, 1]), Transcript()
    engine.run(Wire(transcript))
    assert {len(m.records) for m in transcript.messages if m.records is not None} >= {0}
    assert bool(engine.evaluate().loss.isfinite().all())
