"""Batches of a fixed size, drawn without replacement: a pair of its own, conservative and said to be."""

from __future__ import annotations

import math
from dataclasses import replace

import mpmath
import numpy as np
import pytest

from tests.accountants.exposures import event, expose
from vflpriv.accountants._composition import compose
from vflpriv.accountants._lattice import pessimistic
from vflpriv.accountants.auto import AutoAccountant
from vflpriv.accountants.rdp import RdpAccountant
from vflpriv.common.registry import find
from vflpriv.core.ledger import Reading, Sampling
from vflpriv.core.units import Unit
from vflpriv.core.views import Adversary
from vflpriv.laws import Gaussian, Laplace
from vflpriv.laws.laplace import LaplacePair
from vflpriv.laws.pairs import Diluted
from vflpriv.laws.sampled import SampledGaussianPair, WithoutReplacementPair

DELTA = 1e-5


def sampled(noise, sensitivity, count, rate, scheme="without-replacement"):
    return replace(event(noise, sensitivity, count), sampling=Sampling(scheme, rate))


@pytest.mark.parametrize(
    ("q", "nu", "T", "least", "conservative"),
    [(0.01, 1, 1_000, 13.36, 14.82), (0.001, 1, 10_000, 5.23, 5.68), (0.01, 2, 10_000, 6.19, 8.08)],
)
def test_published_numbers(q, nu, T, least, conservative):
    exposure = expose(sampled(Gaussian(nu), 2.0, T, q), unit=Unit.RECORD)
    budget = AutoAccountant().budget(exposure, DELTA)
    assert budget.lower == pytest.approx(least, abs=0.01)
    assert budget.upper == pytest.approx(conservative, abs=0.01)
    assert any("conservative" in note for note in budget.assumptions)
    assert budget.upper <= RdpAccountant().budget(exposure, DELTA).upper


@pytest.mark.parametrize("pair", [WithoutReplacementPair(2.0, 0.05), WithoutReplacementPair(0.3, 0.6)], ids=str)
def test_the_profile_is_the_larger_of_two_at_every_epsilon(pair):
    edges = np.concatenate([[-math.inf], np.linspace(-3, 3, 6001), [math.inf]])
    both = [p.masses(edges) for p in (pair, pair.removal, pair.removal.reversed())]
    for upper, lower in both:
        assert upper.sum() == pytest.approx(1, abs=1e-12)
        assert lower.sum() == pytest.approx(1, abs=1e-12)
    for epsilon in (-1.0, -0.2, 0.0, 0.001, 0.2, 1.0):
        whole, first, second = (np.maximum(0, upper - math.exp(epsilon) * lower).sum() for upper, lower in both)
        assert whole == pytest.approx(max(first, second), rel=1e-3, abs=1e-9)


@pytest.mark.parametrize("pair", [WithoutReplacementPair(2.0, 0.05), WithoutReplacementPair(0.3, 0.6)], ids=str)
@pytest.mark.parametrize("order", [1.3, 2.0, 6.5])
def test_moments_against_multi_precision(pair, order):
    q, mu, a = mpmath.mpf(pair.rate), mpmath.mpf(pair.mu), mpmath.mpf(order)

    def ratio(x):
        return 1 - q + q * mpmath.e ** (mu * x - mu * mu / 2)

    with mpmath.workdps(30):
        nodes = mpmath.linspace(mu / 2, (order + 1) * mu + 15, 30)
        positive = mpmath.quad(lambda x: mpmath.npdf(x) * ratio(x) ** a, nodes)
        negative = mpmath.quad(lambda x: mpmath.npdf(x) * ratio(x) ** (1 - a), nodes)
        exact = float(mpmath.log(positive + negative + (1 - q) * mpmath.erf(mu / mpmath.sqrt(8))))
    assert exact * (1 - 1e-9) <= float(pair.log_moments((order,))[0]) <= exact * (1 + 1e-5)
    assert float(pair.log_moments((order,), fast=True)[0]) >= exact


def test_it_bounds_every_batch_of_a_small_set():
    """All ways in which the rest of the batch may lie, in one dimension: none is easier to tell than the pair."""
    rate, clip = 0.4, 0.7
    pair = WithoutReplacementPair(2 * clip, rate)
    x = np.linspace(-12, 12, 20_001)
    normal = lambda center: np.exp(-((x - center) ** 2) / 2) / math.sqrt(2 * math.pi)  # noqa: E731
    worst = {e: compose([(pessimistic(pair, 0.002, 1e-16), 1)], 0.0).delta(e)[1] for e in (0.0, 0.3, 1.0)}
    places = np.linspace(-clip, clip, 5)
    for v in places:
        for w in places:
            for rest in places:
                P, Q = ((1 - rate) * normal(rest) + rate * normal(center) for center in (v, w))
                for epsilon, delta in worst.items():
                    assert np.trapezoid(np.maximum(P - math.exp(epsilon) * Q, 0), x) <= delta + 1e-6


def test_what_is_attained():
    assert WithoutReplacementPair(1.0, 0.1).attained() == SampledGaussianPair(1.0, 0.1)
    assert Diluted(LaplacePair(1.0), 0.1, hidden=True).attained() is None
    assert SampledGaussianPair(1.0, 0.1).attained() == SampledGaussianPair(1.0, 0.1)


def test_rows_and_other_noises_are_counted_by_convexity():
    for one in (sampled(Gaussian(1.0), 2.0, 5, 0.1, "without-replacement-seen"), sampled(Laplace(2.0), 2.0, 5, 0.1)):
        budget = AutoAccountant().budget(expose(one, unit=Unit.RECORD), DELTA)
        plain = AutoAccountant().budget(expose(replace(one, sampling=None), unit=Unit.RECORD), DELTA)
        assert 0 < budget.upper < plain.upper
        assert any("joint convexity" in note for note in budget.assumptions)


def dpzv_ledger(devices):
    engine = find("engine", "dpzv")
    settings = engine.settings_type.model_validate(
        {
            "rounds": 50,
            "batch_size": 64,
            "schedule": "fixed",
            "server_update": "joint",
            "noise_std": 1.0,
            "noise": "given",
        }
    )
    return engine.ledger(settings, engine.draw_schedule(settings, records=1437, devices=devices, seed=0))


@pytest.mark.parametrize(("unit", "sensitivity"), [(Unit.LABEL, 20 / 64), (Unit.ADD_REMOVE, 20 / 64)])
def test_the_ledger_of_secret_batches_of_a_fixed_size(unit, sensitivity):
    """A record makes way for another one: of an absent record too the sum moves by twice the clip."""
    ledger = dpzv_ledger(devices=1)
    (found,) = ledger.exposure(Adversary.parse("model"), unit, reading=Reading.RIGOROUS).events
    assert (found.sensitivity, found.count) == (pytest.approx(sensitivity), 50)
    assert found.sampling == Sampling("without-replacement", 64 / 1437)
    known = ledger.exposure(Adversary.parse("devices(all)"), unit).events
    assert [e.sampling for e in known] == [None]


def test_a_table_of_old_embeddings_undoes_the_proof_for_batches_of_a_fixed_size():
    """Then what others add depends on secret earlier batches too: all batches are taken to be shown."""
    ledger, model = dpzv_ledger(devices=4), Adversary.parse("model")
    replaced = ledger.exposure(model, Unit.LABEL)
    assert [(e.sensitivity, e.sampling) for e in replaced.events] == [
        (pytest.approx(20 / 64), Sampling("without-replacement-seen", 64 / 1437))
    ]
    assert any("may depend on who was in earlier batches" in note for note in replaced.assumptions)
    (absent,) = ledger.exposure(model, Unit.ADD_REMOVE).events
    assert (absent.sensitivity, absent.sampling) == (pytest.approx(20 / 64), None)
