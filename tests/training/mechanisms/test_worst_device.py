"""The device that a budget of one device's data counts: the most exposed one, over any schedule."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vflpriv.common.registry import find
from vflpriv.core.ledger import Ledger, Reading
from vflpriv.core.schedules import Batching, Schedule
from vflpriv.core.units import Unit
from vflpriv.core.views import Adversary
from vflpriv.training.uplink import uplink_mechanisms, uplink_releases

SERVER = Adversary.parse("server")
FIELDS = {"rounds": 60, "batch_size": 8, "protection": "embedding", "clip": 1.0, "noise_std": 4.0}
SETTINGS = find("engine", "vafl").settings_type.model_validate(FIELDS)


def schedule_of(batches, active, records):
    size = np.array([len(batch) for batch in batches], dtype=np.int64)
    return Schedule(
        batching=Batching.SHUFFLE,
        records=records,
        batch_size=max(1, int(size.max(initial=1))),
        devices=active.shape[1],
        active=active,
        order=np.array([record for batch in batches for record in batch], dtype=np.int64),
        start=np.cumsum(size) - size,
        size=size,
    )


def ledger_of(schedule, sent):
    return Ledger(schedule=schedule, releases=uplink_releases(SETTINGS, schedule, kind="embeddings", sent=sent))


def exposures(schedule, sent, reading):
    """The mu of each record's row at each device, counted message by message."""
    own, whole = (
        uplink_mechanisms(SETTINGS, schedule)["embeddings"].sensitivity[u] for u in (Unit.FEATURES, Unit.CLIENT)
    )
    for device in range(schedule.devices):
        for record in range(schedule.records):
            square, met = 0.0, False
            for t in range(schedule.rounds):
                present = record in schedule.batch(t) and (sent[t, device] or schedule.active[t, device])
                moved = met and reading is Reading.RIGOROUS
                if sent[t, device] and (present or moved):
                    square += ((whole if moved else own) / SETTINGS.noise_std) ** 2
                met = met or present
            yield math.sqrt(square)


def test_a_device_with_fewer_rounds_of_a_record_but_more_after_its_first_decides():
    """Device 0 meets record 0 four times; device 1 meets each record once, and then sends nine more messages."""
    batches = [[0]] * 4 + [[record] for record in range(1, 11)]
    active = np.arange(2) == np.array([0] * 4 + [1] * 10)[:, None]
    schedule = schedule_of(batches, active, records=11)
    ledger = ledger_of(schedule, active)
    found = ledger.exposure(SERVER, Unit.FEATURES)
    assert found.mu == pytest.approx(0.5 * math.sqrt(10))
    assert found.worst == 1, "the first record of device 1"
    paper = ledger.exposure(SERVER, Unit.FEATURES, reading=Reading.PAPER)
    assert paper.mu == pytest.approx(0.5 * math.sqrt(4)), "device 0, where models are taken not to depend on records"
    assert (paper.worst, paper.counts.max()) == (0, 4)
    assert ledger.until(4).exposure(SERVER, Unit.FEATURES).mu == pytest.approx(0.5 * math.sqrt(4))


@st.composite
def runs(draw):
    devices, records = draw(st.integers(1, 3)), draw(st.integers(1, 5))
    rounds = draw(st.integers(1, 9))
    batches = [draw(st.lists(st.integers(0, records - 1), unique=True, max_size=records)) for _ in range(rounds)]
    members = st.lists(st.booleans(), min_size=devices, max_size=devices)
    active = np.array([draw(members) for _ in range(rounds)], dtype=np.bool_)
    asked = np.array([draw(members) for _ in range(rounds)], dtype=np.bool_)
    return schedule_of(batches, active, records), active | asked


@settings(max_examples=150, deadline=None)
@given(runs(), st.sampled_from(list(Reading)))
def test_the_accounted_mu_is_that_of_the_most_exposed_row_of_any_device(run, reading):
    schedule, sent = run
    if not sent.any():
        return
    ledger = ledger_of(schedule, sent)
    found = ledger.exposure(SERVER, Unit.FEATURES, reading=reading)
    assert found.mu == pytest.approx(max(exposures(schedule, sent, reading)))
    rows = schedule.batch_size
    client = ledger.exposure(SERVER, Unit.CLIENT, reading=reading)
    assert client.mu == pytest.approx(0.5 * math.sqrt(rows * sent.sum(axis=0).max()))
    record = ledger.exposure(SERVER, Unit.RECORD, reading=reading)
    assert record.mu >= found.mu * (1 - 1e-12), "a record includes its row at every device"
    for view in ("device", "devices(all)", "eavesdropper"):
        assert ledger.exposure(Adversary.parse(view), Unit.FEATURES, reading=reading).mu == pytest.approx(found.mu)


@pytest.mark.parametrize("name", ["vafl", "czofo"])
def test_of_devices_that_meet_a_record_equally_often_the_one_that_sends_most_counts(name):
    engine = find("engine", name)
    own = engine.settings_type.model_validate(FIELDS | {"rounds": 40, "rates": (1.0, 2.0)})
    schedule = engine.draw_schedule(own, records=400, devices=2, seed=1)
    found = engine.ledger(own, schedule).exposure(SERVER, Unit.FEATURES)
    assert schedule.counts(schedule.active[:, 0]).max() == schedule.counts(schedule.active[:, 1]).max()
    assert found.mu == pytest.approx(max(exposures(schedule, schedule.active, Reading.RIGOROUS)))
