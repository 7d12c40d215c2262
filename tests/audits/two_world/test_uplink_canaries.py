"""Canaries of every unit on every noised uplink: the accounted mu is measured, and never more than it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats

from tests.support import make_system
from vflpriv.audits.learned.discriminants import discriminant
from vflpriv.audits.statistics.bounds import Errors, epsilon_rectangle, mu_error_rate, p_value_rectangle
from vflpriv.audits.twins.probes import extremes
from vflpriv.audits.two_world.audit import TwoWorldAudit
from vflpriv.core.canaries import Canary, CanaryKind
from vflpriv.core.claims import Claim
from vflpriv.core.ledger import Reading
from vflpriv.core.units import Unit
from vflpriv.core.views import Adversary
from vflpriv.errors import VflprivError
from vflpriv.training.mechanisms.uplink import ClientClip, EmbeddingClip, Emptied

SERVER, DEVICE = Adversary.parse("server"), Adversary.parse("device")
CLIENT = {"clip": 1.0, "noise_std": 4.0}
EMBEDDING = {"protection": "embedding", "clip": 1.0, "noise_std": 2.0}
CASES = {
    "vimadmm, client": ("vimadmm-client", Unit.CLIENT_ZERO, CLIENT),
    "vimadmm-j, client": ("vimadmm-j-client", Unit.CLIENT, CLIENT),
    "fdml, client": ("fdml-client", Unit.CLIENT_ZERO, CLIENT),
    "split, client": ("split-client", Unit.FEATURES, CLIENT),
    "vafl, embedding": ("vafl-noise", Unit.FEATURES, EMBEDDING),
    "split, embedding": ("split-embedding", Unit.RECORD, EMBEDDING),
    "fedbcd, embedding": ("fedbcd", Unit.FEATURES, EMBEDDING),
    "vafl-tsync, asked": ("vafl-tsync-noise", Unit.FEATURES, EMBEDDING),
    "zoo-vfl, pairs": ("zoo-vfl-embedding", Unit.FEATURES, EMBEDDING),
    "czofo, embedding": ("czofo-embedding", Unit.CLIENT, EMBEDDING),
}
FAST = ("vimadmm, client", "split, client", "vafl, embedding", "zoo-vfl, pairs")


def measured(variant, unit, changes, *, trials):
    one = make_system(variant, **changes)
    found = TwoWorldAudit().measure(one, [SERVER], CanaryKind.WORST_CASE, trials=trials, unit=unit)[SERVER]
    return found, one.ledger.exposure(SERVER, unit, reading=Reading.PAPER).mu


@pytest.mark.parametrize("case", [c if c in FAST else pytest.param(c, marks=pytest.mark.slow) for c in CASES])
def test_scores_at_the_clip_are_normal_with_the_accounted_mu(case):
    """Margin: of these seeds p is 0.03 and more, of wrong scales 0.005 and less; rounding hardly moves them."""
    found, mu = measured(*CASES[case], trials=400)
    assert found.exact
    for scores, sign in zip(found.scores, (1, -1), strict=True):
        assert stats.kstest((scores - sign * mu**2 / 2) / mu, "norm").pvalue > 1e-4
        assert stats.kstest((scores - sign * (1.2 * mu) ** 2 / 2) / (1.2 * mu), "norm").pvalue < 0.05
    assert mu_error_rate(found.errors, 0.95) < 1.1 * mu


@pytest.mark.slow
@pytest.mark.parametrize("case", ["vimadmm, client", "split, embedding", "vafl, embedding"])
def test_two_thousand_trials_measure_nine_tenths_of_the_accounted_mu(case):
    found, mu = measured(*CASES[case], trials=2000)
    assert 0.9 * mu < found.mu_known_sigma(0.95) < 1.05 * mu


@pytest.mark.parametrize("unit", [Unit.RECORD, Unit.FEATURES, Unit.CLIENT, Unit.CLIENT_ZERO])
@pytest.mark.parametrize("kind", [ClientClip, EmbeddingClip])
@pytest.mark.parametrize("emptied", list(Emptied))
def test_the_extremes_are_as_far_apart_as_the_bound_and_inside_the_clip(kind, unit, emptied):
    mechanism = kind(noise_std=1.0, clip=3.0, emptied=emptied, **({"batch_size": 5} if kind is EmbeddingClip else {}))
    world = torch.zeros(2, dtype=torch.int64)
    canary = Canary(kind=CanaryKind.WORST_CASE, record=7, world=world, labels=(0, 1), unit=unit)
    clipped = mechanism.noiseless(torch.randn(2, 5, 4, generator=torch.Generator().manual_seed(0)))
    either = extremes(mechanism, canary, clipped, torch.tensor([3, 7, 1, 0, 9]))
    gaps = (either[:, 0] - either[:, 1]).flatten(1).norm(dim=1)
    assert gaps.tolist() == pytest.approx([mechanism.sensitivity[unit]] * 2)
    for side in either.unbind(1):
        assert torch.allclose(mechanism.noiseless(side), side, atol=1e-6)
    elsewhere = extremes(mechanism, canary, clipped, torch.tensor([3, 2, 1, 0, 9]))
    assert torch.equal(elsewhere[:, 0], elsewhere[:, 1]) == unit.per_record


@pytest.mark.parametrize("unit", [Unit.FEATURES, Unit.CLIENT])
def test_natural_and_crafted_canaries_stay_below_the_worst_case(unit):
    one, audit = make_system("split-embedding", noise_std=1.0), TwoWorldAudit()
    strength = {}
    for kind in CanaryKind:
        found = audit.measure(one, [SERVER], kind, trials=150, unit=unit)[SERVER]
        assert found.unit is unit
        assert found.method == ("likelihood ratio" if kind is CanaryKind.WORST_CASE else "twins")
        strength[kind] = float(found.scores[0].mean() - found.scores[1].mean())
    assert 0 < strength[CanaryKind.NATURAL] <= 1.05 * strength[CanaryKind.CRAFTED]
    assert strength[CanaryKind.CRAFTED] < strength[CanaryKind.WORST_CASE]


@pytest.mark.parametrize(
    ("variant", "epsilon"), [("split-rr", 3.0), ("vimadmm-j-rr", 3.0), ("split-alibi", 5.657), ("split-lp-mst", 3.0)]
)
def test_label_protection_is_measured_by_a_learned_score_and_holds(variant, epsilon):
    found = TwoWorldAudit().measure(make_system(variant), [DEVICE], CanaryKind.NATURAL, trials=300, unit=Unit.LABEL)[
        DEVICE
    ]
    assert found.method == "learned"
    assert 0.3 * epsilon < epsilon_rectangle(found.errors, 1e-5, 0.95) < epsilon


def test_exact_gradients_and_duals_give_labels_away():
    for variant in ("split-sum", "vimadmm-client"):
        one = make_system(variant)
        found = TwoWorldAudit().measure(one, [DEVICE], CanaryKind.NATURAL, trials=100, unit=Unit.LABEL)[DEVICE]
        assert found.errors.total <= 2


@pytest.mark.parametrize(("variant", "method"), [("split-rr", "learned"), ("split-embedding", "twins")])
def test_every_score_can_be_looked_at_and_stopped(variant, method):
    one, asked = make_system(variant), []
    view, unit = (DEVICE, Unit.LABEL) if method == "learned" else (SERVER, Unit.FEATURES)
    audit, natural = TwoWorldAudit(), CanaryKind.NATURAL

    def stop(found):
        asked.append(len(found[view].scores[0]))
        return len(asked) == 2

    some = audit.measure(one, [view], natural, trials=64, unit=unit, stop=stop)[view]
    every = audit.measure(one, [view], natural, trials=64, unit=unit)[view]
    assert (asked, some.looks, some.method) == ([32, 40], (32, 40), method)
    for early, late in zip(some.scores, every.scores, strict=True):
        np.testing.assert_allclose(early, late[:40], rtol=1e-3, atol=1e-4)
    claim = Claim.of_epsilon(0.1, 1e-5, key="x", source="x", where="x", statement="x", unit=unit, view=str(view))
    assert some.sequential is not None
    assert some.p_value(claim) == some.sequential.p_value_dp(0.1, 1e-5)
    assert some.p_value(replace(claim, stated="mu")) == some.sequential.p_value_gdp(claim.mu)
    assert some.mu_known_sigma(0.95) is None


def test_a_model_that_saw_no_noise_gives_the_label_away():
    one = make_system("dpzv-sgd", rounds=2, schedule="full", batch_size=60)
    model = Adversary.parse("model")
    found = TwoWorldAudit().measure(one, [model], CanaryKind.NATURAL, trials=60)[model]
    assert found.method == "shadow models"
    assert found.errors.total <= 2


def test_secret_batches_are_scored_as_mixtures_at_a_threshold_fixed_before():
    changes = {"noise_std": 0.2, "rounds": 4, "schedule": "poisson", "batch_size": 6, "encrypted_uplink": True}
    one, outsider = make_system("dpzv-joint", **changes), Adversary.parse("outsider")
    found = TwoWorldAudit().measure(one, [outsider], CanaryKind.WORST_CASE, trials=1000, unit=Unit.LABEL)[outsider]
    assert found.one_sided
    assert not found.exact
    # Who was in some batch is known by the sign of its score, nearly for certain: C/B is eight times the noise.
    rate = 1 - (1 - one.schedule.rate) ** 4
    right = [float((sign * s > 5).mean()) for s, sign in zip(found.scores, (1, -1), strict=True)]
    assert right == pytest.approx([rate, rate], abs=0.05)
    assert all((sign * s > -5).all() for s, sign in zip(found.scores, (1, -1), strict=True))
    assert p_value_rectangle(found.errors, 0.5) < 1e-6
    shown = make_system("dpzv-joint", **changes | {"encrypted_uplink": False})
    reason = TwoWorldAudit.view_refusal(shown, outsider, unit=Unit.LABEL)
    assert "needs a view that knows the batches" in reason, "embeddings show them, but no score reads them off"


def test_it_refuses_what_it_cannot_try():
    with pytest.raises(VflprivError, match="needs a noised release in the view of server"):
        TwoWorldAudit().measure(
            make_system("split-concat"), [SERVER], CanaryKind.WORST_CASE, trials=1, unit=Unit.FEATURES
        )
    reason = TwoWorldAudit.view_refusal(make_system("split-embedding"), SERVER, unit=Unit.LABEL)
    assert "holds the labels" in reason


def test_the_rectangle_p_value_is_valid():
    generator = np.random.default_rng(0)
    fpr, fnr = 0.02, float(stats.norm.cdf(-stats.norm.ppf(0.02) - 1.0))
    low = 0
    for _ in range(400):
        fp, fn = generator.binomial(300, fpr), generator.binomial(300, fnr)
        errors = Errors(false_positives=int(fp), negatives=300, false_negatives=int(fn), positives=300)
        low += p_value_rectangle(errors, 1.0) <= 0.05
    assert low / 400 <= 0.05 + 3 * 0.011


def test_a_discriminant_separates_what_can_be_and_nothing_else():
    generator = np.random.default_rng(0)
    inside, outside = generator.standard_normal((2, 200, 6))
    inside[:, 2] += 3
    constant = np.zeros((200, 1))
    weights, offset = discriminant(np.hstack((inside, constant)), np.hstack((outside, constant)))
    fresh = generator.standard_normal((400, 7))
    fresh[:200, 2] += 3
    right = (fresh @ weights + offset > 0) == (np.arange(400) < 200)
    assert right.mean() > 0.88
    assert weights[6] == 0
