"""Scores of worst-case canaries without training: those of the same replicas trained, or none at all."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.mutations.noise import QuietLater, TakenBack
from tests.support import ENGINES, make_system
from vflpriv.audits.statistics.bounds import mu_error_rate
from vflpriv.audits.two_world import replay
from vflpriv.audits.two_world.audit import TwoWorldAudit
from vflpriv.audits.two_world.canaries import plan
from vflpriv.audits.two_world.methods import Method, choose
from vflpriv.audits.two_world.replay import TOLERANCE, ReplayError, Replays, gap, replayed_scores
from vflpriv.audits.two_world.scores import Request
from vflpriv.common.store import Store
from vflpriv.core.canaries import CanaryKind, most_exposed
from vflpriv.core.ledger import Reading
from vflpriv.core.systems import System
from vflpriv.core.units import Unit
from vflpriv.core.views import Adversary

WORST, ALL = CanaryKind.WORST_CASE, Adversary.parse("devices(all)")
VIEWS = [Adversary.parse(view) for view in ("device(0)", "devices(all)", "server", "eavesdropper", "outsider")]
REPLICAS = range(40, 46)


def requests(system: System, replicas: range = REPLICAS) -> list[tuple[Method, Request]]:
    """What the two-world audit asks with worst-case canaries, for every unit and method that this system has."""
    asked = []
    for unit in Unit:
        methods = {view: choose(system, view, unit, WORST).method for view in VIEWS}
        for method in dict.fromkeys(method for method in methods.values() if method):
            views = [view for view in VIEWS if methods[view] is method]
            record = most_exposed([], system.schedule)
            canary = plan(system, WORST, record, Store(), unit=unit, rate=method.rate(system))
            request = Request(system=system, canary=canary, adversaries=views, replicas=replicas)
            asked.append((method, request))
    return asked


def noised(variant: str) -> bool:
    system = make_system(variant)
    return any(choose(system, view, unit, WORST).method for unit in Unit for view in VIEWS)


@pytest.mark.parametrize("variant", [variant for variant in ENGINES if noised(variant)])
def test_replayed_replicas_have_the_scores_that_they_have_when_trained(variant):
    """Margin: scores agree to 1.6e-6 in single precision, a few units in the last place, and 1e-5 is allowed."""
    for method, request in requests(make_system(variant, rounds=6)):
        assert method.replay_refusal(request.system) is None
        trained, replayed = method.scores(request), replayed_scores(request)
        assert trained.keys() == replayed.keys()
        assert max(float(scores.abs().max()) for scores in trained.values()) > 0
        assert gap(trained, replayed) < 1e-5


def test_secret_batches_can_be_replayed():
    system = make_system("dpzv-joint", schedule="poisson", encrypted_uplink=True)
    asked = [(method, request) for method, request in requests(system) if method.name == "secret batches"]
    assert asked
    for method, request in asked:
        trained, replayed = method.scores(request), replayed_scores(request)
        assert float(trained["outsider"].std()) > 0
        assert gap(trained, replayed) < 1e-5


@settings(max_examples=15, deadline=None)
@given(
    seed=st.integers(0, 2**20),
    clip=st.floats(0.05, 20),
    noise_std=st.floats(0.05, 20),
    rate=st.floats(1e-3, 3),
    first=st.integers(0, 1 << 40),
    batch_size=st.integers(1, 30),
    update=st.sampled_from(("joint", "sgd", "zo")),
)
def test_scores_agree_whatever_the_settings(seed, clip, noise_std, rate, first, batch_size, update):
    system = make_system(
        f"dpzv-{update}",
        seed=seed,
        clip=clip,
        noise_std=noise_std,
        device_rate=rate,
        server_rate=rate,
        batch_size=batch_size,
    )
    method, request = next(asked for asked in requests(system, range(2 * first, 2 * first + 6)))
    assert gap(method.scores(request), replayed_scores(request)) < TOLERANCE


def test_more_replicas_than_are_replayed_together_have_the_same_scores(monkeypatch):
    _, request = next(asked for asked in requests(make_system("dpzv-joint")))
    together = replayed_scores(request)
    monkeypatch.setattr(replay, "_TOGETHER", 4)
    assert gap(together, replayed_scores(request)) < 1e-6


def test_a_score_that_is_no_number_is_a_difference():
    same = {"view": torch.tensor([1.0, -2.0])}
    assert gap(same, same) == 0
    assert not gap(same, {"view": torch.tensor([1.0, torch.nan])}) <= TOLERANCE
    assert not gap({"view": torch.tensor([torch.inf, 1.0])}, {"view": torch.tensor([torch.inf, 1.0])}) <= TOLERANCE


# Systems whose trainings release less noise than their release points do -------------------------------------------


BROKEN = {engine.name: engine for engine in (TakenBack, QuietLater)}


def broken(name: str) -> System:
    system = make_system("dpzv-joint", clip=10.0, noise_std=5.0, rounds=24, device_rate=0.3)
    return replace(system, engine=BROKEN[name])


def measured(system: System, full: int, trials: int = 600) -> tuple[Any, float]:
    found = TwoWorldAudit().measure(system, [ALL], WORST, trials=trials, full=full)[ALL]
    exposure = system.ledger.exposure(ALL, Unit.RECORD, reading=Reading.PAPER)
    return found, mu_error_rate(found.errors, 0.999) / exposure.mu


@pytest.mark.parametrize("name", BROKEN)
def test_a_system_that_blind_replays_would_clear_is_trained_and_caught(name, monkeypatch):
    """With the comparison it exceeds what is accounted for; without, the replays say that all is well."""
    found, ratio = measured(broken(name), full=16)
    assert found.replayed == 0
    assert "do not have the scores" in found.replay_refusal
    assert ratio > 1.2
    monkeypatch.setattr(replay, "TOLERANCE", float("inf"))
    blind, ratio = measured(broken(name), full=16)
    assert blind.replayed == 600 - 16
    assert ratio < 1


def test_a_sound_system_is_replayed_beyond_the_first_trials_and_measures_the_same():
    system = make_system("dpzv-joint", clip=10.0, noise_std=5.0, rounds=24)
    replayed, _ = measured(system, full=16, trials=60)
    trained, _ = measured(system, full=60, trials=60)
    assert (replayed.replayed, trained.replayed) == (44, 0)
    assert (replayed.replay_refusal, trained.replay_refusal) == (None, None)
    for one, other in zip(replayed.scores, trained.scores, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)


def test_noise_that_cannot_be_drawn_again_is_trained():
    system = make_system("dpzv-joint", secure_noise=True)
    found = TwoWorldAudit().measure(system, [ALL], WORST, trials=20, full=4)[ALL]
    assert found.replayed == 0
    assert "operating system" in found.replay_refusal
    assert TwoWorldAudit().measure(system, [ALL], WORST, trials=4, full=4)[ALL].replay_refusal is None


# When replays begin to differ ----------------------------------------------------------------------------------------


class _Bench:
    """Trials whose score is their replica number; replays from `wrong` on fail."""

    def __init__(self, wrong: int, shift: float = 0.0) -> None:
        self.wrong, self.shift = wrong, shift
        self.trained: list[tuple[int, int]] = []

    def train(self, done: int, until: int) -> list[dict[str, torch.Tensor]]:
        self.trained.append((done, until))
        return [{"view": torch.arange(2.0 * done, 2.0 * until)}]

    def replay(self, ranges: Any) -> list[dict[str, torch.Tensor]]:
        if any(piece.stop > self.wrong for piece in ranges):
            raise ReplayError("no longer")
        return [{"view": torch.arange(float(piece.start), float(piece.stop)) + self.shift} for piece in ranges]

    def replays(self, refusal: str | None = None) -> Replays:
        return Replays(first=0, full=10, refusal=refusal, train=self.train, replay=self.replay)


def scores(shards: Any) -> list[float]:
    return torch.cat([shard["view"] for shard in shards]).tolist()


def test_trials_come_in_the_order_fixed_in_advance_look_by_look():
    bench = _Bench(wrong=1000)
    made, trained = bench.replays(), bench.train(0, 10)
    assert made.until(8, trained) == []
    assert scores(made.until(15, trained)) == list(range(20, 30))
    assert scores(made.until(40, trained)) == list(range(20, 80))
    assert (made.replayed, made.reason, bench.trained) == (30, None, [(0, 10)])


def test_once_a_replay_fails_all_trials_are_trained_those_replayed_before_too():
    bench = _Bench(wrong=40)
    made, trained = bench.replays(), bench.train(0, 10)
    made.until(15, trained)
    assert scores(made.until(40, trained)) == list(range(20, 80))
    assert scores(made.until(50, trained)) == list(range(20, 100))
    assert (made.replayed, made.reason) == (0, "no longer")
    assert bench.trained == [(0, 10), (10, 40), (40, 50)]


def test_a_replay_with_other_scores_than_the_trained_ones_counts_for_nothing():
    bench = _Bench(wrong=1000, shift=1.0)
    made, trained = bench.replays(), bench.train(0, 10)
    assert scores(made.until(12, trained)) == list(range(20, 24))
    assert bench.trained == [(0, 10), (10, 12)]
    assert "do not have the scores" in made.reason


def test_what_is_refused_from_the_start_is_trained_and_said_only_where_it_matters():
    bench = _Bench(wrong=1000)
    made, trained = bench.replays(refusal="cannot"), bench.train(0, 10)
    made.until(10, trained)
    assert made.reason is None
    made.until(11, trained)
    assert (made.reason, bench.trained) == ("cannot", [(0, 10), (10, 11)])
