"""Ledgers small enough to be counted by hand: odd schedules, several noises, state that leaks, ciphertexts, tuning.

The oracle counts every record at every device by itself, round after round, from the words of `Release` and
`StateLeak`, and shares no code with the ledger.
"""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from vflpriv.core.ledger import Event, Exposure, Ledger, Reading, SampledRelease, Sampling, _after, join
from vflpriv.core.releases import Release, StateLeak
from vflpriv.core.schedules import Batching, Schedule
from vflpriv.core.units import Unit
from vflpriv.core.views import EVERYONE, Adversary
from vflpriv.laws import CorrelatedGaussian, Exact, Gaussian, Laplace
from vflpriv.laws.opaque import Opaque

RECORDS, DEVICES = 5, 3
BATCHES = ([0, 1], [2], [0, 3, 1], [], [1, 2, 3], [0, 2], [1])
ACTIVE = ([0], [1, 2], [0, 2], [1], [2], [0, 1], [1])
ALL_VIEWS = ("device(0)", "device(1)", "device(2)", "devices(0,2)", "devices(all)", "eavesdropper")
MASK = np.array([True, False, True, True, True, True, True])


def small(batching: Batching = Batching.SHUFFLE, batch_size: int = 2) -> Schedule:
    """Seven uneven rounds of five records, the last of which is in none, at three devices."""
    active = np.array([[m in members for m in range(DEVICES)] for members in ACTIVE])
    size = np.array([len(batch) for batch in BATCHES])
    return Schedule(
        batching=batching,
        records=RECORDS,
        batch_size=batch_size,
        devices=DEVICES,
        active=active,
        order=np.concatenate([np.array(batch, dtype=np.int64) for batch in BATCHES]),
        start=np.cumsum(size) - size,
        size=size,
    )


SMALL = small()


def release(sensitivity: dict[Unit, float], **changes: object) -> Release:
    fields: dict[str, object] = {"kind": "a", "what": "x", "noise": Gaussian(3.0), "rounds": MASK, "seen_by": EVERYONE}
    return Release(sensitivity=sensitivity, **fields | changes)  # type: ignore[arg-type]


def squares(release: Release, unit: Unit, adversary: Adversary, reading: Reading) -> np.ndarray:
    """mu² of every record at every device, (records, devices), counted round by round."""
    std = release.noise.std
    total = np.zeros((RECORDS, DEVICES))
    members = adversary.members(DEVICES)
    everywhere = release.reaches_all or (release.carried and reading is Reading.RIGOROUS)
    rigorous = reading is Reading.RIGOROUS
    leak = release.leak if rigorous and release.leak and unit in release.leak.sensitivity else None
    by_sender = release.senders is not None and unit.at_one_device
    for record, m in product(range(RECORDS), range(DEVICES)):
        entered = False
        for t, batch in enumerate(BATCHES):
            seen = release.rounds[t] and (not members or everywhere or not set(members).isdisjoint(ACTIVE[t]))
            own = bool(release.senders[t, m]) if by_sender else True  # type: ignore[index]
            if leak is None:
                total[record, m] += (seen and own and record in batch) * (release.sensitivity[unit] / std) ** 2
                continue
            moved = max(release.sensitivity[unit], leak.sensitivity[unit])
            if entered and seen and (own or not leak.own):
                total[record, m] += (moved / std) ** 2
            begins = record in batch and (not by_sender or own or m in ACTIVE[t])
            if begins and not entered:
                entered = True
                total[record, m] += (seen and own) * (release.sensitivity[unit] / std) ** 2
    return total


SENDERS = np.array([[(t + m) % 3 != 0 for m in range(DEVICES)] for t in range(len(BATCHES))])
RELEASES = {
    "plain": release({Unit.LABEL: 1.7, Unit.FEATURES: 0.7, Unit.RECORD: 2.3}),
    "carried": release({Unit.LABEL: 1.7, Unit.RECORD: 2.3, Unit.FEATURES: 0.7}, carried=True),
    "reaches all": release({Unit.LABEL: 1.7, Unit.RECORD: 2.3, Unit.FEATURES: 0.7}, reaches_all=True),
    "leak": release(
        {Unit.LABEL: 0.3, Unit.RECORD: 0.9, Unit.FEATURES: 0.7},
        leak=StateLeak(carrier="the model", sensitivity={Unit.LABEL: 2.1, Unit.RECORD: 0.4, Unit.FEATURES: 1.3}),
    ),
    "senders": release({Unit.LABEL: 1.1, Unit.FEATURES: 0.7, Unit.RECORD: 2.3}, senders=SENDERS),
    "senders that leak": release(
        {Unit.LABEL: 1.1, Unit.FEATURES: 0.7, Unit.RECORD: 2.3},
        senders=SENDERS,
        leak=StateLeak(carrier="the model", sensitivity={Unit.FEATURES: 1.9, Unit.RECORD: 2.9}),
    ),
    "senders with a state of their own": release(
        {Unit.LABEL: 1.1, Unit.FEATURES: 0.7, Unit.RECORD: 2.3},
        senders=SENDERS,
        leak=StateLeak(carrier="its model", sensitivity={Unit.FEATURES: 1.9, Unit.RECORD: 2.9}, own=True),
    ),
}


@pytest.mark.parametrize("view", ALL_VIEWS)
@pytest.mark.parametrize("reading", list(Reading))
@pytest.mark.parametrize("unit", [Unit.LABEL, Unit.FEATURES, Unit.RECORD])
@pytest.mark.parametrize("name", RELEASES)
def test_every_record_is_counted_as_by_hand(name: str, unit: Unit, reading: Reading, view: str) -> None:
    adversary = Adversary.parse(view)
    mine, other = RELEASES[name], RELEASES["plain"]
    for releases in ((mine,), (mine, replace(other, kind="b", noise=Gaussian(1.3)))):
        found = Ledger(schedule=SMALL, releases=releases).exposure(adversary, unit, reading=reading)
        expected = sum(squares(r, unit, adversary, reading) for r in releases)
        assert found.squares == pytest.approx(np.max(expected, axis=1)), releases  # type: ignore[call-overload]
        assert found.mu == pytest.approx(math.sqrt(np.max(expected)))  # type: ignore[arg-type]
        assert found.worst is not None
        assert found.squares[found.worst] == found.squares.max()
        assert found.gaussian


@pytest.mark.parametrize("reading", list(Reading))
@pytest.mark.parametrize("unit", [Unit.LABEL, Unit.FEATURES])
def test_any_device_is_the_worst_one(unit: Unit, reading: Reading) -> None:
    for name, mine in RELEASES.items():
        found = Ledger(schedule=SMALL, releases=(mine,)).exposure(Adversary.parse("device"), unit, reading=reading)
        each = [squares(mine, unit, Adversary.parse(f"device({m})"), reading).max() for m in range(DEVICES)]
        assert found.mu == pytest.approx(math.sqrt(max(each))), name


def test_of_two_devices_the_worse_one_counts() -> None:
    """The second device takes part in every round, the first in one."""
    active = np.zeros((7, 2), dtype=np.bool_)
    active[:, 1], active[0, 0] = True, True
    schedule = replace(SMALL, devices=2, active=active)
    found = of(release({Unit.LABEL: 1.0}), view="device", schedule=schedule)
    assert str(found.adversary) == "device(1)"
    assert [e.count for e in found.events] == [4]


def test_rounds_behind_a_first_one() -> None:
    assert _after(MASK, np.array([0, 1, 2, 5, 6, 7])).tolist() == [5, 5, 4, 1, 0, 0]


def of(*releases: Release, view: str = "eavesdropper", unit: Unit = Unit.LABEL, **changes: object) -> Exposure:
    schedule = changes.pop("schedule", SMALL)
    ledger = Ledger(schedule=schedule, releases=releases, **changes)  # type: ignore[arg-type]
    return ledger.exposure(Adversary.parse(view), unit)


def test_a_unit_that_is_no_record_counts_rounds_and_has_no_counts_of_records() -> None:
    mine = release({Unit.CLIENT: 1.5, Unit.FEATURES: 0.5}, senders=SENDERS)
    found = of(mine, unit=Unit.CLIENT)
    most = max(int(np.count_nonzero(MASK & SENDERS[:, m])) for m in range(DEVICES))
    assert [(e.sensitivity, e.count) for e in found.events] == [(1.5, most)]
    assert (found.counts, found.squares, found.worst) == (None, None, None)
    everybody = of(release({Unit.CLIENT: 1.5}), unit=Unit.CLIENT)
    assert [e.count for e in everybody.events] == [np.count_nonzero(MASK)]


def test_senders_matter_only_for_units_at_one_device_and_beside_others_each_counts_its_own() -> None:
    """Two kinds, one of which every message depends on: the candidates are still all records at all devices."""
    theirs, shared = RELEASES["senders"], replace(RELEASES["plain"], kind="b")
    found = of(theirs, shared, unit=Unit.FEATURES)
    adversary = Adversary.parse("eavesdropper")
    expected = squares(theirs, Unit.FEATURES, adversary, Reading.RIGOROUS)
    expected += squares(shared, Unit.FEATURES, adversary, Reading.RIGOROUS)
    assert found.mu == pytest.approx(math.sqrt(expected.max()))
    assert found.counts.tolist() == [3, 4, 2, 2, 0]  # type: ignore[union-attr]


def test_other_noises_and_sampling_are_not_gaussian() -> None:
    gauss, laplace = release({Unit.LABEL: 1.0}), release({Unit.LABEL: 1.0}, kind="b", noise=Laplace(2.0))
    assert of(gauss).gaussian
    for mixed in (of(gauss, laplace), of(laplace)):
        assert not mixed.gaussian
        assert mixed.squares is None
        with pytest.raises(ValueError, match="Gaussian trade-off curve"):
            _ = mixed.mu
    unprotected = of(gauss, release({Unit.LABEL: 1.0}, kind="b", noise=Exact()))
    assert unprotected.unprotected
    assert not unprotected.gaussian
    held = of(gauss, view="server", label_holders=frozenset({"server"}))
    assert held.not_applicable == "the server holds the labels"
    assert not held.gaussian
    sampled = Event(kind="a", noise=Gaussian(1.0), sensitivity=1.0, count=1, sampling=Sampling("poisson", 0.1))
    assert not replace(of(gauss), events=(sampled,)).gaussian
    assert not replace(of(gauss), events=(*of(gauss).events, sampled)).gaussian


def test_where_noises_disagree_each_is_counted_for_the_record_that_meets_it_most_often() -> None:
    """Record 0 meets the first kind most often, record 4 the second: no one is the worst, and all are bounded."""
    schedule = replace(SMALL, order=np.array([0, 1, 2, 0, 3, 1, 0, 2, 3, 4, 2, 4]))
    early, late = np.arange(7) < 4, np.arange(7) >= 4
    first = release({Unit.LABEL: 1.0}, noise=Laplace(2.0), rounds=early)
    second = release({Unit.LABEL: 1.0}, kind="b", noise=Laplace(5.0), rounds=late)
    found = of(first, second, schedule=schedule)
    assert [(e.kind, e.count) for e in found.events] == [("a", 2), ("b", 2)]
    assert any("no record is the worst case for every noise" in note for note in found.assumptions)
    assert not any("no record is the worst" in note for note in of(first, schedule=schedule).assumptions)


def test_where_no_device_is_the_worst_each_noise_is_counted_at_the_device_that_meets_it_most_often() -> None:
    early, late = np.arange(7) < 3, np.arange(7) >= 3
    first = release({Unit.CLIENT: 1.0}, noise=Laplace(2.0), rounds=early)
    second = release({Unit.CLIENT: 1.0}, kind="b", noise=Laplace(5.0), rounds=late)
    found = of(first, second, view="device", unit=Unit.CLIENT)
    assert str(found.adversary) == "device"
    assert sorted((e.kind, e.count) for e in found.events) == [("a", 2), ("b", 3)]
    assert any("no device is the worst case for every noise" in note for note in found.assumptions)


def test_the_device_with_most_unprotected_messages_stands_for_any_device() -> None:
    """Of three devices, the second alone takes part in the round of an exact message."""
    only = np.arange(7) == 3
    exact = release({Unit.FEATURES: math.inf}, kind="rows", noise=Exact(), rounds=only)
    found = of(release({Unit.FEATURES: 1.0}), exact, view="device", unit=Unit.FEATURES)
    assert [line.split(" ")[0] for line in found.unprotected] == ["rows"]
    assert str(found.adversary) == "device(1)"


SEALED = Opaque("CKKS", readers=frozenset({"server"}))


@pytest.mark.parametrize(
    ("sensitivity", "view", "assumed", "unprotected"),
    [
        ({Unit.FEATURES: 0.5}, "eavesdropper", 1, 0),
        ({Unit.FEATURES: 0.5}, "server", 0, 1),
        ({Unit.FEATURES: 0.0}, "eavesdropper", 0, 0),
        ({}, "eavesdropper", 0, 0),
        ({Unit.LABEL: 1.0}, "eavesdropper", 0, 0),
    ],
)
def test_a_ciphertext_is_assumed_where_it_depends_on_the_unit_and_is_not_read(
    sensitivity: dict[Unit, float], view: str, assumed: int, unprotected: int
) -> None:
    sealed = release(sensitivity, kind="sealed", noise=SEALED)
    found = of(sealed, release({Unit.FEATURES: 1.0}), unit=Unit.FEATURES, view=view)
    assert (len(found.assumed), len(found.unprotected)) == (assumed, unprotected)


def test_nothing_is_assumed_for_whoever_holds_what_is_protected() -> None:
    sealed = release({Unit.LABEL: 0.5}, kind="sealed", noise=Opaque("CKKS"))
    assert of(sealed, view="server").assumed == ()
    assert len(of(sealed, view="eavesdropper").assumed) == 1


def notes_of(found: Exposure) -> str:
    return " | ".join(found.assumptions)


def test_notes_say_what_counts_for_whom() -> None:
    carried = release({Unit.LABEL: 1.0, Unit.CLIENT: 1.0}, carried=True, unstated=("as given",))
    assert "depend on models that all rounds changed" in notes_of(of(carried, view="device(0)"))
    assert "models that all rounds changed" not in notes_of(of(carried))
    assert "models that all rounds changed" not in notes_of(of(release({Unit.LABEL: 1.0}), view="device(0)"))
    assert of(carried).assumed == ("as given",)
    assert not of(carried, unit=Unit.CLIENT).assumed


@pytest.mark.parametrize(
    ("unit", "view", "sensitivity", "fitted", "said"),
    [
        (Unit.RECORD, "server", {Unit.RECORD: 1.0}, ("means",), True),
        (Unit.LABEL, "eavesdropper", {Unit.LABEL: 1.0}, ("means",), False),
        (Unit.LABEL, "server", {Unit.LABEL: 1.0}, ("means",), False),
        (Unit.RECORD, "server", {Unit.LABEL: 1.0}, ("means",), False),
        (Unit.RECORD, "server", {Unit.RECORD: 1.0}, (), False),
    ],
)
def test_what_was_fitted_to_all_records_is_said_where_features_are_protected(
    unit: Unit, view: str, sensitivity: dict[Unit, float], fitted: tuple[str, ...], said: bool
) -> None:
    found = of(release(sensitivity), unit=unit, view=view, fitted=fitted)
    assert ("are public: all records decided them" in notes_of(found)) == said


def test_tuning_runs_multiply_what_is_drawn_anew() -> None:
    fresh, kept = release({Unit.LABEL: 1.0}), release({Unit.LABEL: 1.0}, kind="b", redrawn=False)
    found = of(fresh, kept, tuning_runs=2)
    once = of(fresh, kept)
    assert [(e.kind, e.count) for e in found.events] == [
        (e.kind, e.count * (3 if e.kind == "a" else 1)) for e in once.events
    ]
    assert found.counts.tolist() == (3 * once.counts).tolist()  # type: ignore[union-attr]
    assert "2 tuning runs on the same data counted" in notes_of(found)
    assert "; but b counts once" in notes_of(found)
    assert "1 tuning run on the same data counted" in notes_of(of(fresh, tuning_runs=1))
    assert "no training on the same data came before" in notes_of(of(fresh, tuning_runs=0))
    assert "tuning" not in notes_of(once)


IDENTITY = CorrelatedGaussian(3.0, tuple(tuple(float(i == j) for j in range(7)) for i in range(7)))


def test_noise_that_is_one_release_of_the_whole_run_is_counted_once_at_the_larger_distance() -> None:
    """Its first round and those behind it do not add up as two releases: one count, at what a leak moves."""
    leak = StateLeak(carrier="the model", sensitivity={Unit.LABEL: 2.1})
    found = of(release({Unit.LABEL: 0.3}, noise=IDENTITY, leak=leak))
    assert [(e.sensitivity, e.count) for e in found.events] == [(2.1, 6)]
    assert [(e.sensitivity, e.count) for e in of(release({Unit.LABEL: 0.3}, noise=IDENTITY)).events] == [(0.3, 4)]


def test_noise_that_is_one_release_of_the_whole_run_takes_amplification_from_all() -> None:
    mine, joint = release(SECRET, additive=True, fresh=True), release(SECRET, kind="b", noise=IDENTITY, additive=True)
    for releases in ((mine, joint), (joint, mine), (joint,)):
        found = of(*releases, schedule=small(Batching.POISSON), view="outsider")
        assert all(e.sampling is None for e in found.events)
    assert of(mine, schedule=small(Batching.POISSON), view="outsider").events[0].sampling is not None
    early, late = np.arange(7) < 3, np.arange(7) >= 3
    apart = (replace(mine, rounds=early), replace(joint, rounds=late))
    found = of(*apart, schedule=small(Batching.POISSON), view="outsider")
    assert [e.sampling for e in found.events] == [None, None], "one release of the whole run, in other rounds, too"


# Secret batches ---------------------------------------------------------------------------------------------------


SECRET = {Unit.LABEL: 1.0, Unit.ADD_REMOVE: 0.5, Unit.RECORD: 0.9, Unit.FEATURES: 0.8}


@pytest.mark.parametrize(
    ("batching", "view", "batches", "scheme", "said"),
    [
        (Batching.POISSON, "outsider", "secret", "poisson", "secret and Poisson with rate 0.4"),
        (Batching.FIXED, "outsider", "secret", "without-replacement", "drawn without replacement, not Poisson: 2 of 5"),
        (Batching.SHUFFLE, "outsider", "secret", None, "not Poisson: counted as known"),
        (Batching.FULL, "outsider", "secret", None, "every record is in every round"),
        (Batching.FULL, "model", "known", None, "every record is in every round"),
        (Batching.FULL, "eavesdropper", "known", None, "every record is in every round"),
        (Batching.POISSON, "model", "secret", "poisson", "secret and Poisson with rate 0.4"),
        (Batching.POISSON, "eavesdropper", "known", None, "eavesdropper knows which records were in each batch"),
        (Batching.POISSON, "server", "known", None, "server knows which records were in each batch"),
    ],
)
def test_who_can_tell_the_batches(batching: Batching, view: str, batches: str, scheme: str | None, said: str) -> None:
    mine = release(SECRET, additive=True, fresh=True)
    found = of(mine, schedule=small(batching), view=view, unit=Unit.RECORD)
    assert found.batches == batches
    assert [e.sampling and e.sampling.scheme for e in found.events] == [scheme]
    assert [e.sampling and e.sampling.rate for e in found.events] == [0.4 if scheme else None]
    assert said in notes_of(found)


def test_state_that_leaks_keeps_batches_secret_but_counts_them_as_known() -> None:
    leak = StateLeak(carrier="the model", sensitivity={Unit.LABEL: 1.0})
    found = of(release(SECRET, additive=True, leak=leak), schedule=small(Batching.POISSON), view="outsider")
    assert found.batches == "secret"
    assert all(e.sampling is None for e in found.events)
    assert "state that changes without noise may show who took part" in notes_of(found)


@pytest.mark.parametrize("unit", [Unit.LABEL, Unit.CLIENT])
def test_secrecy_amplifies_for_records_alone(unit: Unit) -> None:
    mine = release({**SECRET, Unit.CLIENT: 1.0}, additive=True, fresh=True)
    found = of(mine, schedule=small(Batching.POISSON), view="outsider", unit=unit)
    assert [e.sampling is not None for e in found.events] == [unit.per_record]


def test_what_is_released_once_is_counted_as_known_beside_secret_batches() -> None:
    once = release({Unit.LABEL: 0.7}, kind="once", once=True, noise=Laplace(2.0))
    found = of(release(SECRET, additive=True, fresh=True), once, schedule=small(Batching.POISSON), view="outsider")
    assert {e.kind: (e.count, e.sampling is None) for e in found.events} == {"a": (6, False), "once": (1, True)}
    trained_again = of(
        release(SECRET, additive=True, fresh=True),
        once,
        schedule=small(Batching.POISSON),
        view="outsider",
        tuning_runs=1,
    )
    assert {e.kind: e.count for e in trained_again.events} == {"a": 12, "once": 2}


@pytest.mark.parametrize(
    ("unit", "fixed_size", "changes", "sensitivity", "hidden"),
    [
        (Unit.LABEL, False, {}, 1.0, 1.0),
        (Unit.RECORD, False, {}, 0.9, 1.0),
        (Unit.ADD_REMOVE, False, {}, 0.5, 0.5),
        (Unit.LABEL, True, {}, 1.0, 1.0),
        (Unit.ADD_REMOVE, True, {}, 0.9, 0.9),
        (Unit.LABEL, True, {"fresh": False}, 1.0, math.inf),
        (Unit.LABEL, False, {"fresh": False}, 1.0, 1.0),
        (Unit.LABEL, False, {"additive": False}, 1.0, math.inf),
        (Unit.CLIENT_ZERO, False, {}, 0.0, 1.0),
        (Unit.FEATURES, True, {"sensitivity": {Unit.FEATURES: 0.1, Unit.ADD_REMOVE: 0.4}}, 0.1, 0.8),
        (Unit.FEATURES, True, {"sensitivity": {Unit.FEATURES: 0.1, Unit.ADD_REMOVE: 0.4, Unit.RECORD: 0.3}}, 0.1, 0.3),
        (Unit.FEATURES, True, {"sensitivity": {Unit.FEATURES: 0.1}}, 0.1, math.inf),
        (Unit.ADD_REMOVE, True, {"sensitivity": {Unit.ADD_REMOVE: 0.4}}, 0.8, 0.8),
        (Unit.ADD_REMOVE, True, {"sensitivity": {Unit.LABEL: 0.4}}, 0.0, math.inf),
        (Unit.LABEL, False, {"noise": Exact()}, 0.0, 1.0),
    ],
)
def test_how_far_a_release_of_a_secret_batch_moves(
    unit: Unit, fixed_size: bool, changes: dict[str, object], sensitivity: float, hidden: float
) -> None:
    mine = replace(release(SECRET, additive=True, fresh=True), **changes)  # type: ignore[arg-type]
    found = SampledRelease.of(mine, MASK, unit, fixed_size=fixed_size)
    assert (found.sensitivity, found.hidden) == (pytest.approx(sensitivity), pytest.approx(hidden))


@pytest.mark.parametrize(
    ("sensitivity", "hidden", "one_sided", "scheme", "counted"),
    [
        (1.0, 1.5, False, "poisson", 1.5),
        (1.0, 2.5, False, "poisson-seen", 1.0),
        (1.0, 2.0, False, "poisson", 2.0),
        (1.0, math.inf, False, "poisson-seen", 1.0),
        (1.0, 2.5, True, "poisson", 2.5),
        (1.0, math.inf, True, None, None),
        (0.0, 1.0, False, None, None),
    ],
)
def test_hiding_who_took_part_is_counted_where_it_costs_less(
    sensitivity: float, hidden: float, one_sided: bool, scheme: str | None, counted: float | None
) -> None:
    """At rate 1/4, hiding a distance of h costs about as much as showing one of h/2."""
    mine = SampledRelease(kind="a", noise=Gaussian(1.0), sensitivity=sensitivity, hidden=hidden, rounds=MASK)
    joined = join([mine], "poisson", 0.25, 4, one_sided=one_sided)
    assert [(t.sampling.scheme, t.sensitivity, t.counts.tolist()) for t, _ in joined.terms if t.sampling] == (
        [(scheme, counted, [6] * 4)] if scheme else []
    )
    assert [note is None for _, note in joined.terms] == ([scheme == "poisson"] if scheme else [])
    assert len(joined.as_known) == (sensitivity > 0 and scheme is None)


def test_releases_that_share_a_round_are_joined_by_their_strengths() -> None:
    """Std 2 and std 4: in units of their noise they move by 0.5 and 0.75, together by the root of the squares."""
    early = np.arange(7) < 5
    first = SampledRelease(kind="a", noise=Gaussian(2.0), sensitivity=1.0, hidden=1.2, rounds=MASK)
    second = SampledRelease(kind="b", noise=Gaussian(4.0), sensitivity=3.0, hidden=3.2, rounds=early)
    joined = join([first, second], "poisson", 0.9, 1)
    found = {t.kind: (t.noise, t.sensitivity, int(t.counts[0])) for t, _ in joined.terms}
    assert found == {
        "a": (Gaussian(2.0), 1.2, 2) if 1.2 * math.sqrt(0.9) <= 1.0 else (Gaussian(2.0), 1.0, 2),
        "b": (Gaussian(4.0), 3.0, 1),
        "a + b": (Gaussian(1.0), pytest.approx(math.hypot(0.5, 0.75)), 4),
    }
