"""The ledger through each view: known and secret batches, participation counts, state that leaks."""

from __future__ import annotations

import math

import numpy as np
import pytest

from vflpriv.common.registry import find
from vflpriv.core.budgets import epsilon_of
from vflpriv.core.ledger import Reading
from vflpriv.core.units import Unit
from vflpriv.core.views import Adversary

D, B, M, T = 1437, 64, 4, 1122


def dpzv(**changes):
    engine = find("engine", "dpzv")
    base = {"rounds": T, "batch_size": B, "activation": "round-robin", "epsilon": 1.0, "delta": 1e-3}
    settings = engine.settings_type.model_validate({**base, **changes})
    schedule = engine.draw_schedule(settings, records=D, devices=M, seed=0)
    if settings.noise_std is None:
        settings = settings.model_copy(update={"noise_std": engine.published_noise(settings, schedule)})
    return engine.ledger(settings, schedule), settings, schedule


def exposure(view: str, unit: Unit = Unit.RECORD, reading: Reading = Reading.PAPER, **changes):
    return dpzv(**changes)[0].exposure(Adversary.parse(view), unit, reading=reading)


@pytest.mark.parametrize(("view", "count", "epsilon"), [("device", 13, 2.90), ("devices(all)", 49, 6.71)])
def test_known_batches_count_the_worst_record_of_the_actual_schedule(view, count, epsilon):
    found = exposure(view)
    assert found.batches == "known"
    assert [(e.count, e.sampling) for e in found.events] == [(count, None)]
    assert found.counts is not None
    assert found.counts[found.worst] == found.counts.max() == count
    assert epsilon_of(found.mu, 1e-3) == pytest.approx(epsilon, abs=0.01)
    assert any("no amplification" in note for note in found.assumptions)


def test_the_paper_reading_says_what_it_leaves_out():
    found = exposure("device")
    note = "the server's model w0 is taken not to depend on the protected data, although it does"
    assert note in found.assumptions


@pytest.mark.parametrize("update", ["sgd", "zo"])
def test_a_server_that_learns_without_noise_leaks_into_every_later_round(update):
    found = exposure("devices(all)", reading=Reading.RIGOROUS, server_update=update)
    assert [(e.sensitivity, e.count) for e in found.events] == [(20 / B, 1), (20.0, T - 1)]
    assert epsilon_of(found.mu, 1e-3) > 1e5
    assert any("every release may differ by 20" in note for note in found.assumptions)


def test_after_first_counts_only_visible_rounds_behind_the_records_first():
    ledger, _, schedule = dpzv()
    found = ledger.exposure(Adversary.parse("device(2)"), Unit.LABEL, reading=Reading.RIGOROUS)
    first = schedule.first_rounds()[found.worst]
    mine = np.flatnonzero(schedule.active[:, 2])
    later = next(e.count for e in found.events if e.sensitivity == 20.0)
    assert later == np.count_nonzero(mine > first)


@pytest.mark.parametrize("reading", list(Reading))
def test_the_joint_update_has_nothing_to_leave_out(reading):
    found = exposure("devices(all)", reading=reading, server_update="joint")
    assert [(e.sensitivity, e.count) for e in found.events] == [(20 / B, 49)]


@pytest.mark.parametrize("update", ["dp-sgd", "dp-zo"])
def test_a_noised_server_update_is_an_entry_of_its_own_that_reaches_all(update):
    found = exposure("device(1)", reading=Reading.RIGOROUS, server_update=update, server_noise_std=0.5)
    assert {e.kind for e in found.events} == {"zo-scalar", "server-update"}
    own = next(e for e in found.events if e.kind == "server-update")
    assert own.sensitivity == 2 / B
    assert own.count >= 48, "all devices' rounds move the server, not only the onlooker's"


def test_the_final_model_is_unprotected_unless_the_server_is_sound():
    published = exposure("model", reading=Reading.RIGOROUS)
    assert published.unprotected == ("server-model (the trained w0, moved by exact labels) carries no noise",)
    assert exposure("model", reading=Reading.RIGOROUS, server_update="joint").unprotected == ()


def test_uplinks_show_features_to_whoever_sees_them_but_not_labels():
    for view in ("server", "eavesdropper", "outsider"):
        assert "embedding-pair" in exposure(view, Unit.FEATURES).unprotected[0]
    assert exposure("eavesdropper", Unit.LABEL).unprotected == ()
    assert exposure("device", Unit.FEATURES).unprotected == ()


def test_the_server_holds_the_labels():
    assert exposure("server", Unit.LABEL).not_applicable == "the server holds the labels"


def test_secret_poisson_batches_are_sampled_and_secret_shuffled_ones_are_not():
    hidden = {"server_update": "joint", "encrypted_uplink": True}
    poisson = exposure("outsider", Unit.LABEL, schedule="poisson", **hidden)
    (event,) = poisson.events
    assert poisson.batches == "secret"
    assert event.count == T
    assert event.sampling is not None
    assert event.sampling.rate == B / D
    shuffled = exposure("outsider", Unit.LABEL, **hidden)
    assert [(e.count, e.sampling) for e in shuffled.events] == [(49, None)]
    assert any("not Poisson" in note for note in shuffled.assumptions)


def test_releases_that_share_a_secret_batch_are_one_release():
    found = exposure("model", Unit.LABEL, server_update="dp-sgd", server_noise_std=0.5, schedule="poisson")
    (event,) = found.events
    assert event.kind == "zo-scalar + server-update"
    assert event.sampling is not None
    assert event.count == T
    _, settings, _ = dpzv(server_update="dp-sgd", server_noise_std=0.5, schedule="poisson")
    assert event.sensitivity == pytest.approx(math.hypot(20 / B / settings.noise_std, 2 / B / 0.5))


def test_noises_that_cannot_be_joined_are_counted_as_known():
    from vflpriv.core.ledger import SampledRelease, join
    from vflpriv.laws import Gaussian, Laplace

    early, late = np.arange(6) < 4, np.arange(6) >= 2
    one = SampledRelease(kind="a", noise=Gaussian(1.0), sensitivity=1.0, hidden=1.0, rounds=early)
    two = SampledRelease(kind="b", noise=Laplace(1.0), sensitivity=1.0, hidden=1.0, rounds=late)
    joined = join([one, two], "poisson", 0.1, 3)
    assert sorted((t.kind, int(t.counts[0])) for t, _ in joined.terms) == [("a", 2), ("b", 2)]
    assert sorted((r.kind, rounds.tolist()) for r, rounds in joined.as_known) == [
        ("a", (early & late).tolist()),
        ("b", (early & late).tolist()),
    ]
    seen = SampledRelease(kind="c", noise=Gaussian(1.0), sensitivity=1.0, hidden=math.inf, rounds=early)
    both = join([one, seen], "poisson", 0.1, 3)
    assert both.as_known == []
    ((joint, note),) = both.terms
    assert note is not None
    assert joint.sampling is not None
    assert joint.sampling.scheme == "poisson-seen"


def test_state_that_leaks_undoes_the_secrecy_of_batches():
    settings = {"schedule": "poisson", "encrypted_uplink": True}
    found = exposure("outsider", Unit.LABEL, reading=Reading.RIGOROUS, **settings)
    assert all(e.sampling is None for e in found.events)
    assert any("may show who took part" in note for note in found.assumptions)


def test_full_batches_make_the_published_noise_exactly_right_for_all_devices():
    found = exposure("devices(all)", schedule="full", server_update="joint")
    assert [e.count for e in found.events] == [T]
    # Rounding to the grid adds at most 2⁻²⁶ of the sensitivity.
    assert epsilon_of(found.mu, 1e-3) == pytest.approx(1.0, abs=1e-7)


def test_the_published_clip_protects_nothing():
    found = exposure("device", clip_rule="paper")
    assert found.unprotected == (
        "zo-scalar (clipped mean loss difference, server to device) has no bounded sensitivity for the record unit",
    )


def test_no_noise_is_unprotected():
    found = exposure("device", noise="given", noise_std=0.0)
    assert "carries no noise" in found.unprotected[0]


@pytest.mark.parametrize(
    ("unit", "sensitivity", "count"),
    [(Unit.ADD_REMOVE, 10 / B, 13), (Unit.LABEL, 20 / B, 13), (Unit.CLIENT, 20.0, 281), (Unit.CLIENT_ZERO, 20.0, 281)],
)
def test_units_decide_sensitivity_and_count(unit, sensitivity, count):
    found = exposure("device(0)", unit, server_update="joint")
    assert [(e.sensitivity, e.count) for e in found.events] == [(sensitivity, count)]


def test_published_noise_gives_back_the_claim():
    _, settings, schedule = dpzv()
    engine = find("engine", "dpzv")
    claims = {c.key: c for c in engine.claims(settings, schedule)}
    assert set(claims) == {"dpzv-device", "dpzv-devices", "dpzv-model", "dpzv-embeddings"}
    for claim in claims.values():
        assert claim.epsilon == pytest.approx(1.0, abs=1e-9)
        assert claim.mu == pytest.approx(0.388401, abs=1e-6)
        assert claim.unit is (Unit.LABEL if claim.key == "dpzv-embeddings" else Unit.RECORD)
    assert str(claims["dpzv-embeddings"].adversary) == "eavesdropper"
    assert settings.noise_std == pytest.approx(2 * 10 * math.sqrt(T) / (D * 0.388401), rel=1e-5)


@pytest.mark.parametrize(
    ("rounds", "sigma", "epsilon"), [(53, 5, 7.33), (265, 10, 8.36), (530, 30, 3.50), (530, 70, 1.37)]
)
@pytest.mark.parametrize(("name", "factor"), [("linear-admm", 1.0), ("split", math.sqrt(2))])
def test_the_client_level_claim_is_the_papers_formula_and_holds_without_biases(rounds, sigma, epsilon, name, factor):
    """A model that makes zeros of zeros is at most C away from them (Lemma 6); behind a bias and a ReLU it is √2·C."""
    engine = find("engine", name)
    settings = engine.settings_type.model_validate(
        {"rounds": rounds, "batch_size": B, "protection": "client", "clip": 2.0, "noise_std": 2.0 * sigma}
    )
    schedule = engine.draw_schedule(settings, records=D, devices=M, seed=0)
    (claim,) = engine.claims(settings, schedule)
    found = engine.ledger(settings, schedule).exposure(claim.adversary, claim.unit)
    assert claim.epsilon == pytest.approx(epsilon, abs=0.005)
    assert found.mu == pytest.approx(factor * math.sqrt(rounds) / sigma)
    assert (epsilon_of(found.mu, 1e-5) < claim.epsilon) == (name == "linear-admm")


def test_split_learning_shows_labels_to_devices_and_features_to_the_server():
    engine = find("engine", "split")
    settings = engine.settings_type.model_validate({"rounds": 5, "batch_size": B})
    schedule = engine.draw_schedule(settings, records=D, devices=M, seed=0)
    ledger = engine.ledger(settings, schedule)
    assert "embedding-gradient" in ledger.exposure(Adversary.parse("device"), Unit.LABEL).unprotected[0]
    assert "embeddings" in ledger.exposure(Adversary.parse("server"), Unit.FEATURES).unprotected[0]


def test_the_worst_device_is_found_under_any_noise():
    from vflpriv.core.ledger import Ledger
    from vflpriv.core.releases import Release
    from vflpriv.laws import Laplace, RandomizedResponse

    _, _, schedule = dpzv(activation="clocks", rates=(1.0, 1.0, 1.0, 9.0))
    rounds = np.ones(T, dtype=bool)
    for noise in (Laplace(3.0), RandomizedResponse(0.5)):
        release = Release(
            kind="x", what="x", noise=noise, sensitivity={Unit.LABEL: 1.0}, rounds=rounds, seen_by=frozenset({"device"})
        )
        ledger = Ledger(schedule=schedule, releases=(release,))
        assert str(ledger.exposure(Adversary.parse("device"), Unit.LABEL).adversary) == "device(3)"


def test_a_device_reads_what_rounds_without_it_moved():
    """One device alone has no smaller proven budget than all of them; the papers count its own rounds."""
    ledger = dpzv(server_update="joint")[0]
    one, everyone = (Adversary.parse(text) for text in ("device(0)", "devices(all)"))
    assert ledger.exposure(one, Unit.RECORD).mu == ledger.exposure(everyone, Unit.RECORD).mu
    papers = ledger.exposure(one, Unit.RECORD, reading=Reading.PAPER)
    assert papers.mu < ledger.exposure(one, Unit.RECORD).mu
    note = "only rounds of device(0) count, although they depend on models that other rounds changed"
    assert note in papers.assumptions
    assert note not in ledger.exposure(one, Unit.RECORD).assumptions
