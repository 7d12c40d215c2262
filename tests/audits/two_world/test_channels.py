"""Claims about records and about absence: every channel through which an adversary may see the record is tried."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats

from tests.support import make_system, toy_data
from vflpriv.audits.statistics.bounds import epsilon_error_rate, mu_error_rate, p_value_gdp, p_value_rectangle
from vflpriv.audits.two_world.audit import TwoWorldAudit
from vflpriv.audits.two_world.canaries import plan, strongest_unit
from vflpriv.audits.two_world.methods import METHODS, canary_unit, canary_units, choose
from vflpriv.audits.two_world.scores import likeness_key
from vflpriv.audits.two_world.trials import Trials
from vflpriv.audits.two_world.whole_view import Likeness
from vflpriv.common.store import Store
from vflpriv.core.audit import AuditContext, Finding
from vflpriv.core.canaries import Canary, CanaryKind, TwoWorldSettings
from vflpriv.core.claims import Claim, Verdict
from vflpriv.core.ledger import Reading
from vflpriv.core.systems import System
from vflpriv.core.units import Unit
from vflpriv.core.views import Adversary

NATURAL, CRAFTED, WORST = CanaryKind
ALL, SERVER, DEVICE = (Adversary.parse(view) for view in ("devices(all)", "server", "device"))
NOISED = {"noise_std": 5.0, "clip": 10.0, "rounds": 24}


def claim(unit: Unit, view: str, epsilon: float = 1.0, delta: float = 1e-3) -> Claim:
    texts = {"key": "it", "source": "a test", "where": "here", "statement": "it is private"}
    return Claim.of_epsilon(epsilon, delta, unit=unit, view=view, **texts)


def audited(system: System, tested: Claim, *, trials: int = 64, kind: CanaryKind = NATURAL) -> list[Finding]:
    context = AuditContext(claims=(tested,), settings=TwoWorldSettings(trials={kind: trials}, whole_view=0))
    return TwoWorldAudit().run(system, context)


def accounted(system: System, view: Adversary, unit: Unit) -> float:
    return system.ledger.exposure(view, unit, reading=Reading.PAPER).mu


# Records


@pytest.mark.parametrize(
    ("variant", "view", "changed"),
    [
        ("dpzv-joint", "server", Unit.FEATURES),
        ("dpzv-joint", "eavesdropper", Unit.FEATURES),
        ("dpzv-joint", "devices(all)", Unit.LABEL),
        ("split-embedding", "server", Unit.FEATURES),
        ("split-rr", "server", Unit.FEATURES),
    ],
)
def test_the_canary_changes_what_the_adversary_sees_and_does_not_hold(variant, view, changed):
    ledger, adversary = make_system(variant).ledger, Adversary.parse(view)
    for kind in (NATURAL, CRAFTED):
        assert canary_unit(ledger, adversary, Unit.RECORD, kind) is changed
    assert canary_unit(ledger, adversary, Unit.RECORD, WORST) is Unit.RECORD


@pytest.mark.parametrize(
    ("variant", "changes"), [("dpzv-joint", NOISED), ("split-concat", {}), ("zoo-vfl", {"rounds": 24})]
)
def test_exact_embeddings_refute_a_claim_about_records_before_the_server(variant, changes):
    """The server holds the labels, and gets a row of each record's embedding with its id."""
    (finding,) = audited(make_system(variant, **changes), claim(Unit.RECORD, "server"))
    assert finding.verdict is Verdict.VIOLATED, finding.sentence
    assert finding.unit is Unit.FEATURES
    # Margin: p is 4e-10 and less: hardly a trial of 60 errs.
    assert finding.p_value < 1e-6


@pytest.mark.parametrize(
    ("variant", "unit", "view", "epsilon", "changes"),
    [
        # Noise under the activation, which no likelihood ratio is read off.
        ("vafl-inside", Unit.RECORD, "server", 1.0, {"noise_std": 60.0, "clip": 1.0}),
        # Noised rows of embeddings, and the labels at the server.
        ("split-embedding", Unit.RECORD, "server", 1.0, {"noise_std": 40.0, "clip": 1.0}),
        # Labels drawn by randomised response, before gradients that are exact.
        ("split-rr", Unit.LABEL, "device", 1.0, {"label_noise": 1.0}),
        # One noised scalar for the whole batch.
        ("dpzv-joint", Unit.RECORD, "devices(all)", 1.0, {"clip": 1.0, "noise_std": 2.0}),
        ("dpzv-joint", Unit.ADD_REMOVE, "devices(all)", 1.0, {"clip": 1.0, "noise_std": 1.0}),
    ],
)
def test_sound_systems_are_not_accused(variant, unit, view, epsilon, changes):
    """Margin: p is 1 for every variant: their noise is far more than the claims need."""
    for seed in range(2):
        system = make_system(variant, data=toy_data(records=24, classes=2), seed=seed, rounds=6, **changes)
        for kind in (NATURAL, CRAFTED):
            (finding,) = audited(system, claim(unit, view, epsilon), trials=60, kind=kind)
            assert finding.verdict is Verdict.CONSISTENT, finding.sentence
            assert finding.p_value > 1e-3


@pytest.mark.parametrize(("width", "batch"), [(4, 30), (40, 30)])
def test_least_squares_on_the_other_records_name_the_right_one(width, batch):
    """The map of each trial is another one; with more features than records it is fitted in part."""
    generator = torch.Generator().manual_seed(0)
    block = torch.randn(batch, width, generator=generator)
    pair = torch.stack((block[7], torch.randn(width, generator=generator))).unsqueeze(0)
    canary = Canary(
        kind=NATURAL, record=7, world=torch.zeros(1), labels=(0, 0), unit=Unit.FEATURES, pairs={0: pair}, devices=(0,)
    )
    likeness, records = Likeness(canary, torch.zeros(batch, dtype=torch.int64), [block]), torch.randperm(batch)
    places, right = (records == 7).nonzero().flatten(), []
    for trial in range(200):
        features = block.clone()
        features[7] = pair[0, trial % 2]
        rows = torch.tanh(features @ torch.randn(width, 8, generator=generator) / width**0.5)[records].unsqueeze(0)
        cosine, product = likeness(rows, records, places)[0]
        assert (cosine > 0) == (product > 0)
        right.append(bool(cosine > 0) == (trial % 2 == 0))
    assert np.mean(right) > (0.97 if width < batch else 0.7)


def test_token_ids_are_not_fitted():
    pair = torch.zeros(1, 2, 3, dtype=torch.int64)
    canary = Canary(kind=NATURAL, record=0, world=torch.zeros(1), labels=(1, 1), unit=Unit.FEATURES, pairs={0: pair})
    assert not Likeness(canary, torch.zeros(5), [torch.zeros(5, 3, dtype=torch.int64)]).known


def test_the_choice_between_two_scores_costs_no_validity():
    """What chooses is never tested: at the true μ, p-values below a level are as rare as the level."""
    generator, mu, low = np.random.default_rng(0), 1.0, 0
    for _ in range(400):

        def shard(trials: int) -> dict[str, torch.Tensor]:
            sides = np.where(np.arange(2 * trials) % 2 == 0, 0.5, -0.5)[:, None]
            tables = {}
            for key, width in (("view", 12), (likeness_key("view"), 2)):
                tables[key] = generator.standard_normal((2 * trials, width))
                tables[key][:, :1] += mu * sides
            return {key: torch.from_numpy(table) for key, table in tables.items()}

        # Each table has the whole distance: a score that reads one of them has errors of Φ(-μ/2) at best.
        scores = METHODS["learned"].scored([shard(60)], [shard(60)], "view")
        canary = Canary(kind=NATURAL, record=0, world=torch.zeros(1), labels=(0, 1))
        trials = Trials(
            adversary=SERVER,
            canary=canary,
            scores=(scores[0::2], scores[1::2]),
            strengths=np.zeros(0),
            method="learned",
        )
        low += p_value_gdp(trials.errors, mu) <= 0.05
    assert low / 400 <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / 400)


# Crafted canaries


@pytest.mark.parametrize(
    ("variant", "unit", "view"),
    [
        ("split-sum", Unit.LABEL, DEVICE),
        ("split-concat", Unit.LABEL, DEVICE),
        ("split-concat", Unit.FEATURES, SERVER),
        ("zoo-vfl", Unit.FEATURES, SERVER),
    ],
)
def test_crafted_canaries_are_not_weaker_than_natural_ones(variant, unit, view):
    system, audit = make_system(variant), TwoWorldAudit()
    natural, crafted = (audit.measure(system, [view], kind, trials=100, unit=unit)[view] for kind in (NATURAL, CRAFTED))
    # Both have errors of their own: two standard deviations of a difference of counts.
    assert crafted.errors.total <= natural.errors.total + 2 * math.sqrt(2 * max(1, natural.errors.total))
    assert mu_error_rate(crafted.errors, 0.95) > 1.0


# A record that is absent in one world


@pytest.mark.parametrize("update", ["joint", "dp-zo"])
def test_scores_of_an_absent_record_are_normal_with_the_accounted_mu(update):
    """Half the μ of a replaced one."""
    changes = {"server_noise_std": 1.0} if update == "dp-zo" else {}
    system = make_system(f"dpzv-{update}", activation="round-robin", **NOISED, **changes)
    trials = TwoWorldAudit().measure(system, [ALL], WORST, trials=1500, unit=Unit.ADD_REMOVE)[ALL]
    exposure = system.ledger.exposure(ALL, Unit.ADD_REMOVE, reading=Reading.PAPER)
    scalar = [e for e in exposure.events if e.kind == "zo-scalar"]
    mu = math.sqrt(sum(e.count * (e.sensitivity / e.noise.std) ** 2 for e in scalar))
    for scores, sign in zip(trials.scores, (1, -1), strict=True):
        standard = (scores - sign * mu**2 / 2) / mu
        # Margin: of these seeds p is 0.5 and more, of wrong scales below 4e-8; rounding hardly moves them.
        assert stats.kstest(standard, "norm").pvalue > 1e-4
        assert stats.kstest(1.2 * standard + 0.15, "norm").pvalue < 1e-4
    assert trials.replayed > 0


@pytest.mark.parametrize(("variant", "changes"), [("send-once", {}), ("dpzv-joint", NOISED)])
def test_absence_is_measured_below_what_is_accounted_by_every_canary(variant, changes):
    """Margin: a bound from 300 trials at 99 % lies 0.4 or more below μ, and moves by 0.02 between CPUs."""
    system, audit = make_system(variant, **changes), TwoWorldAudit()
    view = next(v for v in (ALL, SERVER, DEVICE) if choose(system, v, Unit.ADD_REMOVE, WORST).method is not None)
    mu = accounted(system, view, Unit.ADD_REMOVE)
    apart = {}
    for kind in CanaryKind:
        if choose(system, view, Unit.ADD_REMOVE, kind).method is not None:
            trials = audit.measure(system, [view], kind, trials=300, unit=Unit.ADD_REMOVE)[view]
            assert trials.unit is Unit.ADD_REMOVE
            assert mu_error_rate(trials.errors, 0.99) <= mu
            apart[kind] = float(trials.strengths.mean())
    assert apart[WORST] == pytest.approx(mu**2, rel=1e-3)
    assert all(0 < strength <= 1.01 * mu**2 for strength in apart.values())


def test_a_claim_about_absence_with_half_the_noise_is_refuted():
    system = make_system("dpzv-joint", noise_std=1.25, clip=10.0, rounds=24)
    mu = accounted(system, ALL, Unit.ADD_REMOVE)
    texts = {"key": "it", "source": "a test", "where": "here", "statement": "it is private"}
    for stated, verdict in ((mu, Verdict.CONSISTENT), (mu / 2, Verdict.VIOLATED)):
        tested = Claim.of_mu(stated, 1e-5, unit=Unit.ADD_REMOVE, view="devices(all)", **texts)
        (finding,) = audited(system, tested, trials=400, kind=WORST)
        assert finding.verdict is verdict, finding.sentence


def test_absence_is_tested_where_batches_are_secret():
    """Poisson batches, a noised sum: the adjacency and the sampling of DP-SGD."""
    changes = {"noise_std": 0.2, "rounds": 4, "schedule": "poisson", "batch_size": 6, "encrypted_uplink": True}
    system, outsider = make_system("dpzv-joint", **changes), Adversary.parse("outsider")
    trials = TwoWorldAudit().measure(system, [outsider], WORST, trials=1000, unit=Unit.ADD_REMOVE)[outsider]
    assert trials.method == "secret batches"
    assert trials.one_sided
    # In world 1 nothing is ever added; in world 0 the record is in some batch, and then there is no doubt.
    rate = 1 - (1 - system.schedule.rate) ** 4
    assert float((trials.scores[0] > 2).mean()) == pytest.approx(rate, abs=0.06)
    assert float((trials.scores[1] > 2).mean()) < 0.02
    assert p_value_rectangle(trials.errors, 0.3) < 1e-6


@pytest.mark.parametrize(
    ("variant", "view", "changed"), [("dpzv-sgd", ALL, Unit.LABEL), ("split-concat", SERVER, Unit.FEATURES)]
)
def test_where_more_than_noised_sums_depends_on_a_record_it_is_replaced(variant, view, changed):
    assert canary_unit(make_system(variant).ledger, view, Unit.ADD_REMOVE, NATURAL) is changed


def test_exact_embeddings_refute_a_claim_about_absence_before_the_server():
    """A record replaced is two steps: half of what is measured counts, and still refutes it."""
    system, texts = make_system("dpzv-joint", **NOISED), {"source": "a test", "where": "here", "statement": "private"}
    claims = [
        Claim.of_epsilon(1.0, 1e-3, key="absent", unit=Unit.ADD_REMOVE, view="server", **texts),
        Claim.of_epsilon(1.0, 1e-3, key="replaced", unit=Unit.RECORD, view="server", **texts),
        Claim.of_mu(1.0, 1e-3, key="absent-curve", unit=Unit.ADD_REMOVE, view="server", **texts),
        Claim.of_epsilon(2.5, 1e-3, key="weak", unit=Unit.ADD_REMOVE, view="server", **texts),
    ]
    context = AuditContext(claims=tuple(claims), settings=TwoWorldSettings(trials={NATURAL: 64}, whole_view=0))
    by_claim = {finding.claim: finding for finding in TwoWorldAudit().run(system, context)}
    assert [by_claim[key].verdict for key in ("absent", "replaced", "absent-curve")] == [Verdict.VIOLATED] * 3
    assert by_claim["weak"].verdict is Verdict.CONSISTENT
    errors = by_claim["absent"].measurement.errors
    whole = epsilon_error_rate(errors, claims[0].of_replacement().delta, context.confidence)
    assert by_claim["absent"].figure == pytest.approx(whole / 2)
    # Margin: p is 2e-6 against 8e-12.
    assert by_claim["absent"].p_value > by_claim["replaced"].p_value


def test_two_steps_of_a_claim_are_never_refuted_by_what_keeps_it():
    """Randomised response of ε each for two steps: at the doubled claim, p-values are as rare as they say."""
    generator, epsilon, low = np.random.default_rng(1), 0.5, 0
    canary = Canary(kind=NATURAL, record=0, world=torch.zeros(1), labels=(0, 1), unit=Unit.FEATURES)
    tested, right = claim(Unit.ADD_REMOVE, "server", epsilon, 0.0), 1 / (1 + math.exp(-2 * epsilon))
    for _ in range(400):
        scores = tuple(np.where(generator.random(80) < right, side, -side) for side in (1.0, -1.0))
        trials = Trials(adversary=SERVER, canary=canary, scores=scores, strengths=np.zeros(0), method="learned")
        assert trials.steps(tested) == 2
        low += trials.p_value(tested) <= 0.05
    assert low / 400 <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / 400)


# Which channel


@pytest.mark.parametrize(
    ("variant", "view", "units"),
    [
        ("split-concat", "device", (Unit.FEATURES, Unit.LABEL, Unit.RECORD)),
        ("dpzv-joint", "eavesdropper", (Unit.FEATURES, Unit.LABEL, Unit.RECORD)),
        ("dpzv-joint", "server", (Unit.FEATURES,)),
        ("dpzv-joint", "devices(all)", (Unit.LABEL,)),
    ],
)
def test_every_part_that_a_view_sees_and_does_not_hold_may_change(variant, view, units):
    assert canary_units(make_system(variant).ledger, Adversary.parse(view), Unit.RECORD, NATURAL) == units
    assert canary_units(make_system(variant).ledger, Adversary.parse(view), Unit.RECORD, WORST) == (Unit.RECORD,)


@pytest.mark.parametrize("law", ["gaussian", "laplace"])
def test_an_only_device_holds_all_features_whatever_the_law_of_the_noise(law):
    """Scores of Laplace noise are learned from rows, among them those that the device sends itself."""
    system = make_system("dpzv-joint", data=toy_data(devices=1), noise="given", noise_std=1.0, noise_law=law)
    for view in ("device", "device(0)", "devices(all)"):
        assert canary_units(system.ledger, Adversary.parse(view), Unit.RECORD, NATURAL) == (Unit.LABEL,)


def test_the_channel_that_tells_most_is_chosen_before_the_trials():
    """Exact gradients tell a device the label; of what it holds itself nothing changes, and would prove nothing."""
    system, device = make_system("split-concat"), Adversary.parse("device(0)")
    (finding,) = audited(system, claim(Unit.RECORD, "device(0)"))
    assert finding.verdict is Verdict.VIOLATED, finding.sentence
    assert finding.unit in (Unit.LABEL, Unit.RECORD)
    record = 3
    units = (Unit.FEATURES, Unit.LABEL, Unit.RECORD)
    assert strongest_unit(system, record, units, [device], {0}) is not Unit.FEATURES
    canary = plan(system, NATURAL, record, Store(), unit=Unit.RECORD, holders={0})
    assert set(canary.pairs) == {1}
    assert canary.labels[0] != canary.labels[1]
    first, second = canary.into(system.data), replace(canary, world=torch.ones(1)).into(system.data)
    assert torch.equal(first.blocks[0], system.data.blocks[0])
    assert not torch.equal(first.labels_of(torch.tensor([record])), second.labels_of(torch.tensor([record])))
