"""Tuning runs: n trainings before the published one cost as much as each release n + 1 times."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vflpriv.common.registry import find
from vflpriv.core.ledger import Ledger, Reading
from vflpriv.core.releases import Release, StateLeak
from vflpriv.core.schedules import Batching, Schedule
from vflpriv.core.units import Unit
from vflpriv.core.views import Adversary
from vflpriv.laws import Gaussian, Laplace, RandomizedResponse

RECORDS, ROUNDS = 12, 6
EVERYBODY = frozenset({"device", "devices", "eavesdropper", "outsider", "server", "model"})
NOISES = st.sampled_from([Gaussian(2.0), Laplace(3.0), RandomizedResponse(0.5)])


def ledger(batching, noise, runs, *, leak=None, once=False, redrawn=True):
    sensitivity = {Unit.LABEL: 0.5, Unit.RECORD: 1.0, Unit.ADD_REMOVE: 0.5, Unit.CLIENT: 2.0}
    release = Release(
        kind="answer",
        what="",
        noise=noise,
        sensitivity=sensitivity,
        rounds=np.arange(ROUNDS) < (1 if once else ROUNDS - 1),
        seen_by=EVERYBODY,
        additive=True,
        once=once,
        redrawn=redrawn,
        leak=leak,
    )
    rng = np.random.default_rng(0)
    batches = [rng.permutation(RECORDS)[:4] for _ in range(ROUNDS)]
    schedule = Schedule(
        batching=batching,
        records=RECORDS,
        batch_size=4,
        devices=1,
        active=np.ones((ROUNDS, 1), dtype=bool),
        order=np.concatenate(batches),
        start=4 * np.arange(ROUNDS),
        size=np.full(ROUNDS, 4),
    )
    return Ledger(schedule=schedule, releases=(release,), tuning_runs=runs)


@given(
    noise=NOISES,
    batching=st.sampled_from([Batching.SHUFFLE, Batching.POISSON]),
    runs=st.integers(0, 50),
    unit=st.sampled_from([Unit.LABEL, Unit.RECORD, Unit.CLIENT]),
    view=st.sampled_from(["device", "outsider"]),
    leak=st.booleans(),
)
@settings(max_examples=40, deadline=None)
def test_n_runs_count_every_release_n_more_times(noise, batching, runs, unit, view, leak):
    state = StateLeak(carrier="the model", sensitivity={Unit.LABEL: 4.0, Unit.RECORD: 4.0}) if leak else None
    once, several = (
        ledger(batching, noise, n, leak=state).exposure(Adversary.parse(view), unit, reading=Reading.RIGOROUS)
        for n in (None, runs)
    )
    assert once.events
    assert several.events == tuple(replace(event, count=(runs + 1) * event.count) for event in once.events)
    if once.counts is not None:
        assert (several.counts == (runs + 1) * once.counts).all()
    if once.squares is not None:
        assert several.squares == pytest.approx((runs + 1) * once.squares)
    if once.gaussian:
        assert several.mu == pytest.approx(math.sqrt(runs + 1) * once.mu)


@pytest.mark.parametrize("accountant", ["auto", "prv", "rdp"])
def test_budgets_are_those_of_the_composition(accountant):
    by_runs, by_count = ledger(Batching.SHUFFLE, Gaussian(2.0), 3), ledger(Batching.SHUFFLE, Gaussian(1.0), None)
    device = Adversary.parse("device")
    exposures = [either.exposure(device, Unit.LABEL) for either in (by_runs, by_count)]
    budgets = [find("accountant", accountant)().budget(exposure, 1e-5) for exposure in exposures]
    # Four trainings under twice the noise: μ is the same.
    assert budgets[0].upper == pytest.approx(budgets[1].upper, rel=1e-3)


@pytest.mark.parametrize(("redrawn", "count"), [(True, 4), (False, 1)])
def test_values_that_are_noised_once_for_all_trainings_count_once(redrawn, count):
    found = ledger(Batching.SHUFFLE, RandomizedResponse(1.0), 3, once=True, redrawn=redrawn)
    exposure = found.exposure(Adversary.parse("device"), Unit.LABEL)
    assert [event.count for event in exposure.events] == [count]
    said = "counts once, since all trainings used the same noised values"
    assert any(said in note for note in exposure.assumptions) is not redrawn


@pytest.mark.parametrize(
    ("runs", "said"),
    [
        (None, None),
        (0, "no training on the same data came before this one, as was stated"),
        (
            1,
            "1 tuning run on the same data counted, each with as many releases as this training",
        ),
        (
            20,
            "20 tuning runs on the same data counted, each with as many releases as this training",
        ),
    ],
)
def test_the_assumption_says_how_many_were_counted(runs, said):
    notes = ledger(Batching.SHUFFLE, Gaussian(1.0), runs).exposure(Adversary.parse("device"), Unit.LABEL).assumptions
    assert [note.split(";")[0] for note in notes if "same data" in note] == ([] if said is None else [said])
