"""The worst record and the worst device: proven where one is worst under every noise, bounded where none is."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vflpriv.accountants.auto import AutoAccountant
from vflpriv.accountants.rdp import RdpAccountant
from vflpriv.core.ledger import Exposure, Ledger, Reading
from vflpriv.core.releases import Release
from vflpriv.core.schedules import Activation, Batching, Schedule
from vflpriv.core.units import Unit
from vflpriv.core.views import Adversary
from vflpriv.core.worst_case import Term, choose
from vflpriv.laws import Exact, Gaussian, Laplace, RandomizedResponse

R, D, M = 24, 12, 3
NOISES = st.sampled_from([Gaussian(2.0), Gaussian(5.0), Laplace(4.0), RandomizedResponse(0.3)])


def release(noise, rounds, sensitivity=1.0):
    return Release(
        kind=f"{noise}",
        what="x",
        noise=noise,
        sensitivity={Unit.LABEL: sensitivity},
        rounds=np.asarray(rounds, dtype=bool),
        seen_by=frozenset({"device", "devices"}),
    )


def drawn(seed):
    return Schedule.draw(
        batching=Batching.FIXED, activation=Activation.CLOCKS, records=D, batch_size=3, rounds=R, devices=M, seed=seed
    )


def own(ledger, device, record):
    """What one record alone meets before one device's eyes, counted by hand."""
    schedule, events = ledger.schedule, []
    for item in ledger.releases:
        rounds = [t for t in range(R) if item.rounds[t] and schedule.active[t, device] and record in schedule.batch(t)]
        term = Term(kind=item.kind, noise=item.noise, sensitivity=1.0, counts=np.array([len(rounds)]))
        events.append(term.event(0))
    return Exposure(
        unit=Unit.LABEL,
        adversary=Adversary("device", (device,)),
        reading=Reading.RIGOROUS,
        batches="known",
        events=tuple(events),
    )


@given(seed=st.integers(0, 10**6), noises=st.lists(NOISES, min_size=1, max_size=3, unique=True))
@settings(max_examples=15, deadline=None)
def test_no_record_of_no_device_exceeds_the_ledgers_budget(seed, noises):
    rng = np.random.default_rng(seed)
    ledger = Ledger(schedule=drawn(seed), releases=tuple(release(n, rng.random(R) < 0.6) for n in noises))
    accountant = RdpAccountant()
    worst = accountant.budget(ledger.exposure(Adversary.parse("device"), Unit.LABEL), 1e-5).upper
    each = [accountant.budget(own(ledger, m, i), 1e-5).upper for m in range(M) for i in range(D)]
    assert max(each) <= worst * (1 + 1e-9)
    if all(isinstance(noise, Gaussian) for noise in noises):
        assert max(each) == pytest.approx(worst, rel=1e-9), "Gaussians have one scale: the bound is attained"


def test_a_record_that_is_worst_under_every_noise_is_found_and_no_note_is_needed():
    schedule = drawn(0)
    every = np.ones(R)
    found = Ledger(schedule=schedule, releases=(release(Gaussian(2.0), every), release(Laplace(4.0), every))).exposure(
        Adversary.parse("devices(all)"), Unit.LABEL
    )
    most = schedule.counts(np.ones(R, dtype=bool)).max()
    assert [e.count for e in found.events] == [most, most]
    assert not any("no record is the worst" in note for note in found.assumptions)


def ledger_of(batches):
    """Laplace noise in the first half of the rounds, Gaussian noise in the second, with these batches of three."""
    schedule = replace(drawn(0), order=np.concatenate(batches), start=np.arange(R) * 3, size=np.full(R, 3))
    early = np.arange(R) < R // 2
    return Ledger(schedule=schedule, releases=(release(Laplace(4.0), early), release(Gaussian(2.0), ~early)))


def test_no_record_is_worst_under_every_noise():
    """One record is in every round with Laplace noise, another in every round with Gaussian noise."""
    half, others = R // 2, [(5 + t % 7, 5 + (t + 1) % 7) for t in range(R)]
    ledger = ledger_of([[0 if t < half else 1, *others[t]] for t in range(R)])
    found = ledger.exposure(Adversary.parse("devices(all)"), Unit.LABEL)
    assert [e.count for e in found.events] == [half, half]
    assert any("no record is the worst case for every noise" in note for note in found.assumptions)
    budgets = [AutoAccountant().budget(e, 1e-5).upper for e in (found, own_of(ledger, 0), own_of(ledger, 1))]
    assert budgets[0] > max(budgets[1:])


def test_a_third_record_that_meets_both_is_worst():
    ledger = ledger_of([[0 if t < R // 2 else 1, 2, 3 + t % 9] for t in range(R)])
    found = ledger.exposure(Adversary.parse("devices(all)"), Unit.LABEL)
    assert found.worst == 2
    assert not any("no record is the worst" in note for note in found.assumptions)


def own_of(ledger, record):
    """One record before the eyes of all devices."""
    found = ledger.exposure(Adversary.parse("devices(all)"), Unit.LABEL)
    counts = [ledger.schedule.counts(item.rounds)[record] for item in ledger.releases]
    events = [
        Term(kind="x", noise=item.noise, sensitivity=1.0, counts=np.array([n])).event(0)
        for item, n in zip(ledger.releases, counts, strict=True)
    ]
    return Exposure(
        unit=Unit.LABEL, adversary=found.adversary, reading=found.reading, batches="known", events=tuple(events)
    )


def test_choices():
    def term(noise, *counts, sensitivity=1.0):
        return Term(kind="x", noise=noise, sensitivity=sensitivity, counts=np.array(counts))

    one = choose([term(Gaussian(1.0), 1, 4), term(Gaussian(2.0), 100, 0)])
    assert (one.leading, one.proven) == (0, True), "26 against 4: one scale"
    two = choose([term(Gaussian(1.0), 1, 4), term(Laplace(2.0), 100, 0)])
    assert (two.of_terms, two.proven) == ((1, 0), False)
    assert choose([]).proven


def test_strength():
    assert Gaussian(2.0).strength(1.0) == 0.5
    assert Exact().strength(1.0) == np.inf
    assert Exact().strength(0.0) == 0.0
    assert RandomizedResponse(0.7).strength(9.0) == 0.7


def test_a_run_that_stops_early_has_fewer_releases():
    ledger = Ledger(schedule=drawn(1), releases=(release(Gaussian(2.0), np.ones(R)),))
    counts = [ledger.until(t).exposure(Adversary.parse("devices(all)"), Unit.LABEL).counts for t in (1, R // 2, R)]
    assert [int(c.sum()) for c in counts] == [3, 3 * R // 2, 3 * R]
    nothing = ledger.until(0).exposure(Adversary.parse("devices(all)"), Unit.LABEL)
    assert nothing.events == ()
