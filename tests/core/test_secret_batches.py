"""Secret batches: who can tell them anyway, and whether what is accounted bounds worlds that the ledger allows."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as pld
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from tests.core.test_ledger import dpzv
from vflpriv.accountants.auto import AutoAccountant
from vflpriv.core.ledger import Ledger
from vflpriv.core.releases import Release, StateLeak
from vflpriv.core.schedules import Activation, Batching, Schedule
from vflpriv.core.units import Unit
from vflpriv.core.views import Adversary
from vflpriv.laws import Exact, Gaussian, Laplace

OUTSIDER, EAVESDROPPER, MODEL = (Adversary.parse(text) for text in ("outsider", "eavesdropper", "model"))
RECORDS, ROUNDS, DELTA = 100, 1000, 1e-5


def schedule_of(batching=Batching.POISSON, *, rounds=ROUNDS, batch_size=1, devices=1):
    return Schedule.draw(
        batching=batching,
        activation=Activation.ROUND_ROBIN,
        records=RECORDS,
        batch_size=batch_size,
        rounds=rounds,
        devices=devices,
        seed=0,
    )


def release_of(sensitivity, *, rounds=ROUNDS, **changes):
    fields = {"kind": "sum", "what": "x", "noise": Gaussian(1.0), "additive": True, "seen_by": frozenset({"outsider"})}
    return Release(sensitivity=sensitivity, rounds=np.ones(rounds, dtype=np.bool_), **fields | changes)


def exposure_of(*releases, unit=Unit.LABEL, schedule=None):
    return Ledger(schedule=schedule or schedule_of(), releases=releases).exposure(OUTSIDER, unit)


def epsilon_of(*releases, unit=Unit.LABEL, schedule=None, delta=DELTA):
    return AutoAccountant().budget(exposure_of(*releases, unit=unit, schedule=schedule), delta).upper


# Who can tell the batches ------------------------------------------------------------------------------------------


def test_an_outsider_that_reads_exact_embeddings_has_the_eavesdroppers_budget():
    ledger = dpzv(server_update="joint", schedule="poisson")[0]
    found, known = (ledger.exposure(adversary, Unit.LABEL) for adversary in (OUTSIDER, EAVESDROPPER))
    assert found.batches == "known"
    assert found.events == known.events
    assert "embedding-pair shows who is in them: no amplification" in " ".join(found.assumptions)


def test_where_embeddings_are_encrypted_an_outsiders_batches_stay_secret():
    ledger = dpzv(server_update="joint", schedule="poisson", encrypted_uplink=True)[0]
    found = ledger.exposure(OUTSIDER, Unit.LABEL)
    assert found.batches == "secret"
    assert [e.sampling.scheme for e in found.events] == ["poisson"]
    assert found.events == ledger.exposure(MODEL, Unit.LABEL).events
    assert ledger.exposure(OUTSIDER, Unit.FEATURES).unprotected == ()
    assert ledger.exposure(EAVESDROPPER, Unit.LABEL).batches == "known", "ids are on the downlink, too"


@pytest.mark.parametrize("unit", [u for u in Unit if u.per_record])
def test_anything_exact_that_depends_on_a_record_shows_the_batch(unit):
    noised = release_of({Unit.LABEL: 1.0, Unit.ADD_REMOVE: 0.5})
    exact = release_of({unit: math.inf}, kind="rows", noise=Exact(), additive=False)
    assert exposure_of(noised).events[0].sampling is not None
    found = exposure_of(noised, exact)
    assert found.batches == "known"
    assert all(e.sampling is None for e in found.events)
    elsewhere = replace(exact, seen_by=frozenset({"server"}))
    assert exposure_of(noised, elsewhere).events == exposure_of(noised).events


def test_what_does_not_depend_on_the_batch_shows_nothing_of_it():
    noised = release_of({Unit.LABEL: 1.0, Unit.ADD_REMOVE: 0.5})
    for other in (
        release_of({Unit.RECORD: math.inf}, kind="features, once", noise=Exact(), once=True),
        release_of({Unit.CLIENT: math.inf}, kind="a device's mean", noise=Exact()),
        release_of({}, kind="public", noise=Exact()),
    ):
        assert exposure_of(noised, other).events == exposure_of(noised).events


def test_noised_rows_that_do_not_depend_on_labels_still_show_who_takes_part():
    scalar = release_of({Unit.LABEL: 1.0, Unit.ADD_REMOVE: 0.5})
    rows = release_of({Unit.FEATURES: 2.0, Unit.ADD_REMOVE: 1.0}, kind="rows", additive=False)
    alone, beside = exposure_of(scalar), exposure_of(scalar, rows)
    assert [e.sampling.scheme for e in alone.events] == ["poisson"]
    assert [(e.sampling.scheme, e.sensitivity) for e in beside.events] == [("poisson-seen", 1.0)]
    assert epsilon_of(scalar, rows) > epsilon_of(scalar)


def test_a_noised_sum_that_does_not_depend_on_labels_adds_to_what_one_record_adds():
    scalar = release_of({Unit.LABEL: 1.0, Unit.ADD_REMOVE: 0.5})
    features = release_of({Unit.FEATURES: 2.0, Unit.ADD_REMOVE: 1.0}, kind="features", noise=Gaussian(2.0))
    (event,) = exposure_of(scalar, features).events
    assert event.sensitivity == pytest.approx(2 * math.hypot(0.5, 1.0 / 2))
    laplace = replace(features, noise=Laplace(1.0))
    assert [e.sampling for e in exposure_of(scalar, laplace).events] == [None], "not joined, hence counted as known"
    assert exposure_of(features).events == ()


def test_state_that_leaks_another_unit_undoes_the_secrecy_too():
    leak = StateLeak(carrier="model", sensitivity={Unit.FEATURES: 1.0})
    moved = release_of({Unit.FEATURES: 2.0, Unit.ADD_REMOVE: 1.0}, kind="features", leak=leak)
    scalar = release_of({Unit.LABEL: 1.0, Unit.ADD_REMOVE: 0.5})
    assert [e.sampling for e in exposure_of(scalar, moved).events] == [None]


@pytest.mark.parametrize(
    ("batch_size", "rounds", "claimed", "epsilon"), [(64, 1122, 1.0, 1.000), (32, 898, 2.0, 2.007)]
)
def test_dpzv_with_encrypted_uplinks_has_the_budgets_of_secret_batches(batch_size, rounds, claimed, epsilon):
    changes = {"batch_size": batch_size, "rounds": rounds, "epsilon": claimed, "server_update": "joint"}
    ledger = dpzv(schedule="poisson", encrypted_uplink=True, **changes)[0]
    assert AutoAccountant().budget(ledger.exposure(OUTSIDER, Unit.RECORD), 1e-3).upper == pytest.approx(
        epsilon, abs=2e-3
    )


# What one record adds ----------------------------------------------------------------------------------------------


def softmax_epsilon():
    """Labels 0 and 1 of a record with the prediction (1, 0): its gradient is 0 in one world, (1, -1) in the other."""
    one = pld.from_gaussian_mechanism(1.0, sensitivity=math.sqrt(2), sampling_prob=0.01)
    return one.self_compose(ROUNDS).get_epsilon_for_delta(DELTA)


def test_softmax_gradients_in_secret_batches_cost_what_their_worlds_do():
    true = softmax_epsilon()
    assert true == pytest.approx(4.48, abs=0.01)
    silent = release_of({Unit.LABEL: math.sqrt(2)})
    assert epsilon_of(silent) >= true
    assert "no sensitivity for the add-remove unit" in " ".join(exposure_of(silent).assumptions)
    bounded = release_of({Unit.LABEL: math.sqrt(2), Unit.ADD_REMOVE: math.sqrt(2)})
    assert true <= epsilon_of(bounded) < epsilon_of(silent)
    centred = release_of({Unit.LABEL: math.sqrt(2), Unit.ADD_REMOVE: math.sqrt(2) / 2})
    assert epsilon_of(centred) == pytest.approx(1.798, abs=1e-3), "contributions of half the sensitivity"


def test_a_loose_bound_on_what_a_record_adds_never_costs_more_than_none():
    none, loose = (release_of({Unit.LABEL: 1.0} | add) for add in ({}, {Unit.ADD_REMOVE: 1e3}))
    assert epsilon_of(loose) == epsilon_of(none)


GRID = np.arange(-9, 9, 0.03)


def mixture(rate, mean):
    return (1 - rate) * norm.pdf(GRID) + rate * norm.pdf(GRID - mean)


def hockey_stick(p, q, epsilon, cell):
    return float(np.maximum(p - math.exp(epsilon) * q, 0).sum() * cell)


@settings(max_examples=30, deadline=None)
@given(
    bound=st.floats(0.1, 2.0),
    first=st.floats(-1, 1),
    second=st.floats(-1, 1),
    angle=st.sampled_from([0.0, 1.0, math.pi / 2]),
    batch_size=st.sampled_from([5, 20, 60]),
    delta=st.sampled_from([1e-3, 1e-2]),
    stated=st.booleans(),
)
def test_one_round_bounds_all_worlds_that_keep_what_the_ledger_says(
    bound, first, second, angle, batch_size, delta, stated
):
    """Two records that add vectors of two entries, at any angle."""
    a = bound * first, 0.0
    b = bound * second * math.cos(angle), bound * second * math.sin(angle)
    assume(math.dist(a, b) > 0.05)
    declared = {Unit.LABEL: math.dist(a, b)} | ({Unit.ADD_REMOVE: bound} if stated else {})
    schedule = schedule_of(rounds=1, batch_size=batch_size)
    epsilon = epsilon_of(release_of(declared, rounds=1), schedule=schedule, delta=delta)
    without = np.outer(norm.pdf(GRID), norm.pdf(GRID))
    within = [np.outer(norm.pdf(GRID - x), norm.pdf(GRID - y)) for x, y in (a, b)]
    worlds = [(1 - schedule.rate) * without + schedule.rate * present for present in within]
    for p, q in (worlds, worlds[::-1]):
        assert hockey_stick(p, q, epsilon, 0.03**2) <= delta * (1 + 1e-3)


@settings(max_examples=25, deadline=None)
@given(
    means=st.lists(st.floats(-1, 1), min_size=6, max_size=6),
    batch_size=st.sampled_from([5, 30, 60]),
    delta=st.sampled_from([1e-3, 1e-2]),
)
def test_what_a_record_adds_may_depend_on_its_earlier_secret_rounds(means, batch_size, delta):
    """The second mean depends on whether the record was in the first batch, as with a table of old embeddings."""
    rate, kept = batch_size / RECORDS, [means[:3], means[3:]]
    distance = max(abs(a - b) for a, b in zip(*kept, strict=True))
    assume(distance > 0.05)
    worlds = [
        (1 - rate) * np.outer(norm.pdf(GRID), mixture(rate, absent))
        + rate * np.outer(norm.pdf(GRID - once), mixture(rate, present))
        for once, absent, present in kept
    ]
    declared = {Unit.LABEL: distance, Unit.ADD_REMOVE: max(map(abs, means))}
    schedule = schedule_of(rounds=2, batch_size=batch_size)
    epsilon = epsilon_of(release_of(declared, rounds=2), schedule=schedule, delta=delta)
    for p, q in (worlds, worlds[::-1]):
        assert hockey_stick(p, q, epsilon, 0.03**2) <= delta * (1 + 1e-3)
