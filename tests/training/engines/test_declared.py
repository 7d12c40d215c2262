"""What engines declare, on odd numbers: claims by their formulas, and who sees which release with which sensitivity."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from vflpriv.common.registry import find
from vflpriv.core.budgets import epsilon_of, mu_of
from vflpriv.core.releases import Release
from vflpriv.core.schedules import Schedule
from vflpriv.core.units import FEATURE_UNITS, Unit
from vflpriv.training.engines.send_once import _CENTRE
from vflpriv.training.engines.vafl import senders, stale_positions
from vflpriv.training.mechanisms.base import ScalarMean, VectorMean

RECORDS, BATCH, ROUNDS = 41, 7, 37
NEAR = 2e-3
"""Sensitivities may hold a rounding term, which is at most a thousandth."""


def declared(name: str, devices: int = 3, **changes: object) -> tuple[Any, Any, Schedule]:
    """An engine with settings and a schedule of odd sizes."""
    engine = find("engine", name)
    settings = engine.settings_type.model_validate({"rounds": ROUNDS, "batch_size": BATCH, **changes})
    return engine, settings, engine.draw_schedule(settings, records=RECORDS, devices=devices, seed=2)


def releases(name: str, devices: int = 3, **changes: object) -> dict[str, list[Release]]:
    engine, settings, schedule = declared(name, devices, **changes)
    by_kind: dict[str, list[Release]] = {}
    for release in engine.releases(settings, schedule):
        by_kind.setdefault(release.kind, []).append(release)
    return by_kind


# DPZV ---------------------------------------------------------------------------------------------------------------

DPZV = {"activation": "round-robin", "clip": 1.7, "noise": "given", "noise_std": 0.3, "delta": 1e-4}


def test_the_claims_of_dpzv_are_theorem_vi_5() -> None:
    engine, settings, schedule = declared("dpzv", **DPZV)
    mu = 2 * 1.7 * math.sqrt(37) / (41 * 0.3)
    claims = engine.claims(settings, schedule)
    assert {(c.key, c.unit, str(c.adversary)) for c in claims} == {
        ("dpzv-device", Unit.RECORD, "device"),
        ("dpzv-devices", Unit.RECORD, "devices(all)"),
        ("dpzv-model", Unit.RECORD, "model"),
        ("dpzv-embeddings", Unit.LABEL, "eavesdropper"),
    }
    for claim in claims:
        assert claim.delta == 1e-4
        assert claim.epsilon == pytest.approx(epsilon_of(mu, 1e-4))
        assert claim.mu == pytest.approx(mu)
        assert claim.stated == ("epsilon" if claim.key == "dpzv-model" else "mu")
    silent = settings.model_copy(update={"noise_std": 0.0})
    assert engine.claims(silent, schedule) == ()


def test_the_published_noise_of_dpzv_gives_its_claim() -> None:
    engine, settings, schedule = declared("dpzv", **DPZV | {"noise": "paper", "noise_std": None, "epsilon": 1.3})
    expected = 2 * 1.7 * math.sqrt(37) / (41 * mu_of(1.3, 1e-4))
    assert engine.published_noise(settings, schedule) == pytest.approx(expected)


@pytest.mark.parametrize("devices", [1, 2, 3])
@pytest.mark.parametrize("update", ["sgd", "zo", "joint", "dp-sgd", "dp-zo"])
def test_what_dpzv_releases(update: str, devices: int) -> None:
    own = {"server_noise_std": 0.5, "server_clip": 0.9} if update.startswith("dp-") else {}
    by_kind = releases("dpzv", devices, **DPZV, server_update=update, **own)
    (scalar,) = by_kind.pop("zo-scalar")
    exact = update in ("sgd", "zo")
    assert scalar.sensitivity[Unit.LABEL] == pytest.approx(2 * 1.7 / 7, rel=NEAR)
    assert (scalar.carried, scalar.fresh, scalar.leak is None) == (not exact, devices == 1, not exact)
    if scalar.leak is not None:
        assert scalar.leak.sensitivity[Unit.LABEL] == pytest.approx(2 * 1.7, rel=NEAR)
        assert set(scalar.leak.sensitivity) == set(Unit)
    (pair,) = by_kind.pop("embedding-pair")
    assert pair.seen_by == {"server", "eavesdropper", "outsider"}
    assert set(pair.sensitivity) == FEATURE_UNITS
    assert set(by_kind) == ({"server-model"} if exact else {"server-update"} if own else set())
    for step in by_kind.get("server-update", []):
        assert step.sensitivity[Unit.LABEL] == pytest.approx(2 * 0.9 / 7, rel=NEAR)
        assert (step.reaches_all, step.fresh, step.rounds.all()) == (True, devices == 1, True)
        assert step.noise.std == 0.5  # type: ignore[attr-defined]
    for model in by_kind.get("server-model", []):
        assert np.flatnonzero(model.rounds).tolist() == [36]
        assert model.seen_by == {"model"}


def test_a_short_last_batch_is_divided_by_the_full_one_and_poisson_batches_by_theirs() -> None:
    """One record of a larger Poisson batch still moves the sum by its clip alone."""
    for schedule in ("shuffle", "poisson"):
        (scalar,) = releases("dpzv", **DPZV, schedule=schedule)["zo-scalar"]
        assert scalar.sensitivity[Unit.RECORD] == pytest.approx(2 * 1.7 / 7, rel=NEAR)


@pytest.mark.parametrize("update", ["joint", "dp-sgd", "dp-zo"])
def test_a_device_moves_as_many_terms_as_the_largest_poisson_batch_has(update: str) -> None:
    own = {"server_noise_std": 0.5, "server_clip": 0.9} if update.startswith("dp-") else {}
    changes: dict[str, Any] = {**DPZV, "schedule": "poisson", "server_update": update, **own}
    engine, settings, schedule = declared("dpzv", **changes)
    largest = max(len(schedule.batch(t)) for t in range(ROUNDS))
    assert largest > BATCH
    mechanisms = engine.mechanisms(settings, schedule)
    assert mechanisms["zo-scalar"].sensitivity[Unit.CLIENT] == pytest.approx(2 * 1.7 * largest / 7)
    kinds = {"dp-sgd": VectorMean, "dp-zo": ScalarMean}
    assert set(mechanisms) == ({"zo-scalar", "server-update"} if own else {"zo-scalar"})
    for step in [mechanisms["server-update"]] if own else []:
        assert type(step) is kinds[update]
        assert step.sensitivity[Unit.CLIENT] == pytest.approx(2 * 0.9 * largest / 7)
        assert step.noise_std == 0.5


def test_encrypted_embeddings_are_the_servers_alone() -> None:
    (pair,) = releases("dpzv", **DPZV, encrypted_uplink=True)["embedding-pair"]
    assert pair.seen_by == {"server"}


@pytest.mark.parametrize(("update", "own", "expected"), [("sgd", 0.0, 0.0), ("dp-zo", 0.0, 2.0), ("dp-sgd", 0.4, 0.4)])
def test_calibrated_noise_is_shared_in_proportion_to_the_clips(update: str, own: float, expected: float) -> None:
    changes = DPZV | {
        "clip": 0.5,
        "noise": "calibrated",
        "noise_std": None,
        "server_clip": 2.5,
        "server_noise_std": own,
    }
    _, settings, _ = declared("dpzv", **changes, server_update=update)
    chosen = settings.with_std(0.4)
    assert (chosen.noise_std, chosen.server_noise_std) == (0.4, expected)


# VAFL ---------------------------------------------------------------------------------------------------------------

VAFL = {"activation": "round-robin", "protection": "embedding", "clip": 1.3, "noise_std": 0.4, "delta": 1e-4}


@pytest.mark.parametrize("protection", ["embedding", "unclipped"])
def test_the_claims_of_vafl_are_theorem_6_in_both_readings(protection: str) -> None:
    """37 rounds of three devices in turn: the first takes 13 steps of 7 samples."""
    engine, settings, schedule = declared("vafl", **VAFL | {"protection": protection})
    claims = engine.claims(settings, schedule)
    for claim, count in zip(claims, (13, 13 * 7), strict=True):
        assert claim.mu == pytest.approx(2 * 1.3 * 7 * math.sqrt(count) / (0.4 * 41))
        assert (claim.unit, str(claim.adversary), claim.delta) == (Unit.FEATURES, "server", 1e-4)
        assert ("within a radius of 1.3" in claim.statement) == (protection == "unclipped")
    assert [claim.key for claim in claims] == ["vafl-steps", "vafl-samples"]


def test_the_noise_that_is_published_for_vafl_is_theorem_6_in_its_text_and_theorem_2_of_vimadmm() -> None:
    paper = {name: value for name, value in VAFL.items() if name != "noise_std"} | {"noise": "paper", "epsilon": 1.3}
    engine, settings, schedule = declared("vafl", **paper)
    expected = 2 * 1.3 * 7 * math.sqrt(13 * 7) / (mu_of(1.3, 1e-4) * 41)
    assert engine.published_noise(settings, schedule) == pytest.approx(expected)
    engine, settings, schedule = declared("vafl", **paper | {"protection": "client"})
    sigma = engine.published_noise(settings, schedule) / 1.3
    told = [
        37 * a / (2 * sigma**2) + math.log((a - 1) / a) - (math.log(1e-4) + math.log(a)) / (a - 1)
        for a in np.geomspace(1e-3, 1e3, 4001) + 1
    ]
    assert min(told) == pytest.approx(1.3, rel=1e-5)
    noised = settings.model_copy(update={"noise_std": sigma * 1.3})
    assert [(c.key, c.epsilon) for c in engine.claims(noised, schedule)] == [("vimadmm-client", pytest.approx(1.3))]


def test_what_is_noised_inside_an_activation_is_sent_as_what_that_makes_of_it() -> None:
    inside = VAFL | {"noise_place": "activation"}
    by_kind = releases("vafl", **inside)
    assert set(by_kind) == {"pre-activations", "embeddings", "embedding-gradient", "models"}
    assert all(release.sent_as == "embeddings" for release in by_kind["pre-activations"])
    assert all(release.sent_as != "embeddings" for release in by_kind["embedding-gradient"] + by_kind["models"])
    (activated,) = by_kind["embeddings"]
    _, _, schedule = declared("vafl", **inside)
    assert (activated.sensitivity, activated.rounds.tolist()) == ({}, senders(schedule, None).any(axis=1).tolist())
    assert activated.rounds.all()
    silent = releases("vafl", **inside | {"noise_std": 0.0})
    assert set(silent) == {"embeddings", "embedding-gradient", "models"}
    summed = releases("vafl", **VAFL, aggregation="sum")
    assert set(summed) == {"logits", "logit-gradient", "models"}


@pytest.mark.parametrize(("together", "expected"), [(None, 5), (2, 2)])
def test_all_devices_are_together_unless_it_is_said_how_many(together: int | None, expected: int) -> None:
    engine, settings, _ = declared("vafl-tsync", **({} if together is None else {"together": together}))
    assert engine.devices_together(settings, 5) == expected


@pytest.mark.parametrize("noise", [0.0, 0.4])
def test_what_split_learning_releases(noise: float) -> None:
    noised: dict[str, Any] = {"protection": "client", "clip": 1.3, "noise_std": noise} if noise else {}
    for aggregation, up, down in (
        ("concat", "embeddings", "embedding-gradient"), ("sum", "logits", "logit-gradient")
    ):  # fmt: skip
        by_kind = releases("split", aggregation=aggregation, **noised)
        assert set(by_kind) == {up, down, "models"}
        assert all(release.rounds.all() for release in by_kind[up])
        assert (Unit.FEATURES in by_kind[down][0].sensitivity) == (not noise)


def test_without_noise_vafl_claims_nothing() -> None:
    engine, settings, schedule = declared("vafl", activation="round-robin", protection="none")
    assert engine.claims(settings, schedule) == ()


@pytest.mark.parametrize("max_delay", [0, 1, 3, 5, 100])
def test_embeddings_that_are_too_old_are_asked_for(max_delay: int) -> None:
    """An oracle that follows every record at every device by itself."""
    _, _, schedule = declared("vafl", activation="clocks")
    sent_at: dict[tuple[int, int], int] = {}
    for t, positions in enumerate(stale_positions(schedule, max_delay)):
        expected: dict[int, list[int]] = {}
        for place, record in enumerate(schedule.batch(t).tolist()):
            for m in range(3):
                age = t - sent_at[record, m] if (record, m) in sent_at else None
                old = age is None or age > max_delay
                if schedule.active[t, m] or old:
                    sent_at[record, m] = t
                if old and not schedule.active[t, m]:
                    expected.setdefault(m, []).append(place)
        assert {m: places.tolist() for m, places in positions.items()} == expected
        assert senders(schedule, max_delay)[t].tolist() == [
            bool(schedule.active[t, m]) or m in expected for m in range(3)
        ]
    assert stale_positions(schedule, None) == [{}] * ROUNDS
    assert (senders(schedule, None) == schedule.active).all()


def test_what_vafl_releases() -> None:
    by_kind = releases("vafl", **VAFL)
    assert set(by_kind) == {"embeddings", "embedding-gradient", "models"}
    assert set(by_kind["embedding-gradient"][0].sensitivity) == {Unit.LABEL, Unit.RECORD, Unit.ADD_REMOVE}
    exact = releases("vafl", activation="round-robin", protection="none")
    assert set(exact["embedding-gradient"][0].sensitivity) == set(Unit)
    asked = releases("vafl", **VAFL, max_delay=1)
    assert (asked["refresh-request"][0].sensitivity, "refresh-request" in by_kind) == ({}, False)
    _, _, schedule = declared("vafl", **VAFL, max_delay=1)
    requested = (senders(schedule, 1) & ~schedule.active).any(axis=1)
    assert (asked["refresh-request"][0].rounds == requested).all()
    assert 0 < requested.sum() <= ROUNDS


# Engines that send or noise once ------------------------------------------------------------------------------------


@pytest.mark.parametrize("centre", [True, False])
@pytest.mark.parametrize("share", [True, False])
@pytest.mark.parametrize("encrypted", [True, False])
def test_what_send_once_releases(centre: bool, share: bool, encrypted: bool) -> None:
    changes = {"noise": "given", "noise_std": 0.6, "clip": 0.3, "centre": centre, "share_model": share}
    engine, settings, schedule = declared("send-once", **changes, encrypted_uplink=encrypted)
    by_kind = {release.kind: release for release in engine.releases(settings, schedule)}
    first = [True] + [False] * (ROUNDS - 1)
    assert by_kind["embeddings"].rounds.tolist() == first
    assert by_kind["embeddings"].seen_by == ({"server"} if encrypted else {"server", "eavesdropper", "outsider"})
    step = by_kind["model-step"]
    assert step.rounds.tolist() == ([not begin for begin in first] if centre else [True] * ROUNDS)
    assert step.fresh
    assert ("device" in step.seen_by) == share
    assert "model" in step.seen_by
    size = schedule.batch_size
    assert step.sensitivity[Unit.LABEL] == pytest.approx(2 * 0.3 / size, rel=NEAR)
    assert ("model-centre" in by_kind) == centre
    if centre:
        mean = by_kind["model-centre"]
        assert mean.rounds.tolist() == first
        assert mean.fresh
        assert Unit.LABEL not in mean.sensitivity
        assert mean.sensitivity[Unit.RECORD] == pytest.approx(2 / size, rel=NEAR)
        assert mean.noise.std == pytest.approx(0.6 / 0.3 / math.sqrt(_CENTRE))  # type: ignore[attr-defined]
    assert engine.claims(settings, schedule) == ()


@pytest.mark.parametrize("noise", [0.0, 0.7])
@pytest.mark.parametrize("share", [True, False])
def test_what_noise_once_releases(noise: float, share: bool) -> None:
    protected = {"protection": "embedding", "clip": 1.3, "noise_std": noise} if noise else {}
    by_kind = releases("noise-once", share_model=share, **protected)
    rows = by_kind["embeddings"][0]
    assert rows.rounds.tolist() == [True] + [False] * (ROUNDS - 1)
    assert rows.senders is None or rows.senders.sum() == 3
    assert rows.leak is None
    assert ("model" in rows.seen_by) == bool(noise)
    (step,) = by_kind["model-step" if share else "models"]
    assert ("device" in step.seen_by) == share
    assert (Unit.FEATURES in step.sensitivity) == (not noise)
    assert Unit.LABEL in step.sensitivity
    assert step.rounds.all()


# Zeroth-order engines and FDML --------------------------------------------------------------------------------------


def test_the_success_claims_are_table_i() -> None:
    engine, settings, schedule = declared("zoo-vfl")
    claims = engine.success_claims(settings, schedule)
    assert {(str(c.adversary), c.rate, c.classes) for c in claims} == {("device", 0.117, 10), ("eavesdropper", 0.1, 10)}
    assert engine.claims(settings, schedule) == ()


def test_two_embeddings_of_one_record_move_by_the_root_of_two_times_one() -> None:
    changes = {"activation": "round-robin", "protection": "embedding", "clip": 1.3, "noise_std": 0.4}
    pairs = releases("zoo-vfl", **changes)["embedding-pair"]
    bounds = {unit: bound for pair in pairs for unit, bound in pair.sensitivity.items()}
    assert bounds[Unit.FEATURES] == pytest.approx(math.sqrt(2) * 2 * 1.3, rel=NEAR)
    assert bounds[Unit.ADD_REMOVE] == pytest.approx(math.sqrt(2) * 1.3, rel=NEAR)
    assert bounds[Unit.CLIENT] == pytest.approx(math.sqrt(2) * 2 * 1.3 * math.sqrt(7), rel=NEAR)
    assert all("model" in pair.seen_by and pair.leak is None for pair in pairs)
    losses = releases("zoo-vfl", **changes)
    exact = releases("zoo-vfl", activation="round-robin")
    assert "model" not in exact["embedding-pair"][0].seen_by
    for kind in set(losses) - {"embedding-pair"}:
        assert Unit.FEATURES not in losses[kind][0].sensitivity
        assert Unit.FEATURES in exact[kind][0].sensitivity


@pytest.mark.parametrize("devices", [1, 3])
def test_labels_move_all_logits_of_fdml_at_once(devices: int) -> None:
    by_kind = releases("fdml", devices, protection="client", clip=1.3, noise_std=0.4)
    labels = next(release for release in by_kind["logits"] if set(release.sensitivity) == {Unit.LABEL})
    assert labels.sensitivity[Unit.LABEL] == pytest.approx(math.sqrt(devices) * 2 * 1.3, rel=NEAR)
    assert labels.leak is not None
    assert labels.leak.sensitivity == labels.sensitivity
    assert by_kind["summed-logits"][0].sensitivity == {}
    exact = releases("fdml", devices)
    silent = next(release for release in exact["logits"] if set(release.sensitivity) == {Unit.LABEL})
    assert (silent.sensitivity, silent.leak) == ({Unit.LABEL: math.inf}, None)
    assert Unit.FEATURES in exact["summed-logits"][0].sensitivity


def test_perturbations_of_noised_embeddings_tell_nothing_more() -> None:
    noised = releases("czofo", activation="round-robin", protection="embedding", clip=1.3, noise_std=0.4)
    *rows, perturbed = noised["embeddings"]
    assert (perturbed.tensors, perturbed.sensitivity) == ({"perturbed"}, {})
    assert [row.tensors for row in rows] == [{"embedding"}] * 2
    assert Unit.FEATURES not in noised["loss-differences"][0].sensitivity
    exact = releases("czofo", activation="round-robin")
    assert len(exact["embeddings"]) == 1
    assert exact["embeddings"][0].tensors is None
    assert Unit.FEATURES in exact["loss-differences"][0].sensitivity
