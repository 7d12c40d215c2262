"""The two-world audit: an exact score where the engine is sound, honest about where it is not, and resumable."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
import torch
from scipy import stats

from tests.support import make_system
from vflpriv.audits.statistics.bounds import mu_error_rate, p_value_gdp
from vflpriv.audits.two_world import shards
from vflpriv.audits.two_world.audit import TwoWorldAudit
from vflpriv.audits.two_world.canaries import plan
from vflpriv.common.store import Entry, Store, TensorForm
from vflpriv.core.canaries import CanaryKind, most_exposed
from vflpriv.core.ledger import Reading
from vflpriv.core.systems import System
from vflpriv.core.units import Unit
from vflpriv.core.views import Adversary
from vflpriv.errors import StoreWarning

DEVICE, ALL = Adversary.parse("device"), Adversary.parse("devices(all)")


def system(variant: str = "dpzv-joint", **changes) -> System:
    base = {"noise_std": 5.0, "clip": 10.0, "rounds": 24, "activation": "round-robin"}
    return make_system(variant, **{**base, **changes})


def accounted(one: System, adversary: Adversary) -> float:
    return one.ledger.exposure(adversary, Unit.RECORD, reading=Reading.PAPER).mu


@pytest.mark.parametrize("update", ["joint", "sgd", "dp-zo"])
def test_worst_case_scores_are_normal_with_the_accounted_mu(update):
    """The log-likelihood ratio is N(±μ²/2, μ²); noise a sixth too small would show."""
    one = system(f"dpzv-{update}", **({"server_noise_std": 1.0} if update == "dp-zo" else {}))
    for adversary, trials in TwoWorldAudit().measure(one, [DEVICE, ALL], CanaryKind.WORST_CASE, trials=1500).items():
        scalar = [
            e
            for e in one.ledger.exposure(adversary, Unit.RECORD, reading=Reading.PAPER).events
            if e.kind == "zo-scalar"
        ]
        mu = math.sqrt(sum(e.count * (e.sensitivity / e.noise.std) ** 2 for e in scalar))
        for scores, sign in zip(trials.scores, (1, -1), strict=True):
            standard = (scores - sign * mu**2 / 2) / mu
            # Margin: of these seeds p is 0.17 and more, of wrong scales below 4e-8; rounding hardly moves them.
            assert stats.kstest(standard, "norm").pvalue > 1e-4
            assert stats.kstest(1.2 * standard + 0.15, "norm").pvalue < 1e-4


def test_the_measured_bound_stays_below_the_accounted_mu_and_comes_near_it():
    one = system()
    trials = TwoWorldAudit().measure(one, [ALL], CanaryKind.WORST_CASE, trials=2000)[ALL]
    lower, mu = mu_error_rate(trials.errors, 0.95), accounted(one, ALL)
    assert 0.85 * mu < lower < mu
    assert p_value_gdp(trials.errors, mu) > 0.01
    assert p_value_gdp(trials.errors, 0.7 * mu) < 1e-4


def test_canaries_go_from_mild_to_worst():
    """Mean squared distance between the worlds, in units of the noise."""
    one = system()
    strength = {}
    for kind in CanaryKind:
        trials = TwoWorldAudit().measure(one, [ALL], kind, trials=300)[ALL]
        strength[kind] = trials.scores[0].mean() - trials.scores[1].mean()
    assert strength[CanaryKind.NATURAL] < strength[CanaryKind.CRAFTED] < strength[CanaryKind.WORST_CASE]


def test_the_canary_is_the_record_seen_most_often():
    one = system(rounds=25)
    exposures = [one.ledger.exposure(a, Unit.RECORD, reading=Reading.PAPER) for a in (DEVICE, ALL)]
    record = most_exposed(exposures, one.schedule)
    for exposure in exposures:
        assert exposure.counts is not None
        assert exposure.counts[record] == exposure.counts.max()
    canary = plan(one, CanaryKind.NATURAL, record, Store())
    assert canary.labels[0] == int(one.data.labels[record])
    assert canary.labels[1] != canary.labels[0]


def test_shards_make_no_difference(monkeypatch):
    one = system()
    whole = TwoWorldAudit().measure(one, [ALL], CanaryKind.NATURAL, trials=30)[ALL]
    monkeypatch.setattr(shards, "REPLICAS", 8)
    split = TwoWorldAudit().measure(one, [ALL], CanaryKind.NATURAL, trials=30)[ALL]
    for a, b in zip(whole.scores, split.scores, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-3)


def test_a_killed_audit_goes_on_where_it_stopped(tmp_path, monkeypatch):
    monkeypatch.setattr(shards, "REPLICAS", 8)
    one, store = system(), Store(tmp_path / "trials")
    expected = TwoWorldAudit().measure(one, [ALL], CanaryKind.NATURAL, trials=16)[ALL]
    started = []

    def dying(self, replicas, **options):
        started.append(replicas)
        if len(started) > 2:
            raise KeyboardInterrupt
        return train(self, replicas, **options)

    train = System.train
    monkeypatch.setattr(System, "train", dying)
    with pytest.raises(KeyboardInterrupt):
        TwoWorldAudit(store=store).measure(one, [ALL], CanaryKind.NATURAL, trials=16)
    kept = len(list((tmp_path / "trials").iterdir()))
    assert kept == 2

    started.clear()
    monkeypatch.setattr(System, "train", lambda *a, **k: started.append(1) or train(*a, **k))
    advanced = []
    again = TwoWorldAudit(store=store).measure(one, [ALL], CanaryKind.NATURAL, trials=16, advance=advanced.append)[ALL]
    assert len(started) == 2, "two of four shards were finished"
    assert sum(advanced) == 32 * one.schedule.rounds
    for a, b in zip(expected.scores, again.scores, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


def test_crafted_features_are_found_once(tmp_path, monkeypatch):
    one, store = system(), Store(tmp_path)
    first = plan(one, CanaryKind.CRAFTED, 3, store)
    monkeypatch.setattr(System, "train", None)
    again = plan(one, CanaryKind.CRAFTED, 3, store)
    assert set(first.blocks) == set(range(one.data.devices))
    assert all(torch.equal(first.blocks[m], again.blocks[m]) for m in first.blocks)


def test_a_damaged_shard_is_computed_again(tmp_path):
    store, entry = Store(tmp_path), Entry(key="key", form=TensorForm())
    store.save(entry, {"a": torch.ones(3)})
    (path,) = tmp_path.iterdir()
    path.write_bytes(b"half of a fi")
    with pytest.warns(StoreWarning, match=path.name):
        assert store.load(entry) is None
    store.save(entry, {"a": torch.ones(3)})
    assert torch.equal(store.load(entry)["a"], torch.ones(3))


def test_other_settings_never_reuse_a_shard():
    one = system()
    prints = {
        s.fingerprint() for s in (one, system(noise_std=5.1), system(rounds=25), dataclasses.replace(one, seed=1))
    }
    assert len(prints) == 4


@pytest.mark.parametrize(
    ("variant", "view", "reason"),
    [
        ("split-sum", "device", "needs a noised release in the view of device, and there is none"),
        ("dpzv-joint", "model", "needs a view that knows the batches, and model does not"),
        ("dpzv-joint", "devices(all)", None),
    ],
)
def test_it_says_why_it_does_not_apply(variant, view, reason):
    one = make_system(variant)
    found = TwoWorldAudit().view_refusal(one, Adversary.parse(view))
    assert (found is None) if reason is None else found.endswith(reason)


def test_the_curve_runs_from_corner_to_corner():
    trials = TwoWorldAudit().measure(system(), [ALL], CanaryKind.WORST_CASE, trials=200)[ALL]
    curve = np.array(trials.curve())
    assert (np.diff(curve[:, 0]) <= 0).all()
    assert (np.diff(curve[:, 1]) >= 0).all()
    assert curve[-1, 0] == 0.0
    assert curve[-1, 1] == 1.0
