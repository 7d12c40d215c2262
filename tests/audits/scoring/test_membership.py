"""Membership: a memorising model gives it away, another model does not, and intervals hold as often as they say."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
import torch
from scipy.stats import norm

from tests.contracts.test_attacks import reachable
from tests.contracts.test_feature_attacks import VARIANTS
from tests.support import make_system, toy_data
from vflpriv.attacks.membership.confidence import FeatureMembership
from vflpriv.attacks.membership.lira import FeatureLira, FeatureLiraOffline
from vflpriv.audits.scoring.candidates import Candidates, predictions
from vflpriv.audits.scoring.membership import (
    found_at_few_errors,
    membership_score,
)
from vflpriv.audits.scoring.score import mean_score
from vflpriv.audits.scoring.trials import Trials
from vflpriv.common.registry import find
from vflpriv.core.attack import MembershipAuxiliary
from vflpriv.core.data import VerticalData
from vflpriv.core.units import Unit
from vflpriv.core.views import Adversary, View
from vflpriv.core.wire import Wire
from vflpriv.training.engine import Engine

SERVER = Adversary.parse("server")
ATTACKS = (FeatureMembership(), FeatureLira(), FeatureLiraOffline())


def noisy_labels(records: int = 240, seed: int = 0) -> VerticalData:
    """Wide noise with labels that mean nothing: what a model gets right of it, it remembers."""
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(records + 20, 60, generator=generator)
    labels = torch.randint(0, 3, (records + 20,), generator=generator)
    blocks = rows.split(30, dim=1)
    return VerticalData(
        name="noise",
        classes=3,
        blocks=tuple(b[:records].clone() for b in blocks),
        labels=labels[:records],
        test_blocks=tuple(b[records:].clone() for b in blocks),
        test_labels=labels[records:],
    )


def memorising(**changes) -> Trials:
    words = {"embedding": 32, "top_hidden": (32,), "device_rate": 0.3, "server_rate": 0.3, "rounds": 400}
    system = make_system("split-concat", data=noisy_labels(), batch_size=20, **words)
    return dataclasses.replace(Trials(system=system, seeds=2, confidence=0.95, pairs=120, known=20), **changes)


def test_one_record_of_each_pair_is_trained_on():
    data = toy_data(records=30)
    found = Candidates.draw(30, 8, replicas=range(3), seed=5)
    assert len(found.records.unique()) == 16
    inside = found.into(data)
    assert inside.records == 30 - 8
    everyone = torch.arange(inside.records)
    for r in range(3):
        members, labels = found.members(r), inside.labels_of(everyone)[r]
        assert int(members.sum()) == 8
        for m, block in enumerate(data.blocks):
            rows = inside.features(m, everyone)[r]
            there = (block.unsqueeze(1) == rows.unsqueeze(0)).all(-1).any(1)
            expected = torch.ones(30, dtype=torch.bool)
            expected[found.records[~members]] = False
            assert torch.equal(there, expected)
        assert sorted(labels[:8].tolist()) == sorted(data.labels[found.records[members]].tolist())
    assert not torch.equal(found.coins[0], found.coins[1])


def test_a_memorising_model_gives_its_records_away_to_whoever_is_told_its_predictions():
    """Margin: the lower end is 0.69, for a model that knows its records by heart."""
    who = [Adversary.parse(text) for text in ("server", "device(1)", "eavesdropper", "model")]
    found = memorising(seeds=1).run([FeatureMembership()], who)
    for leak in (tried.mean for tried in found):
        assert leak.guesses == 220
        assert leak.low > 0.8
        assert leak.figures["advantage"].low > 0.4
        assert 0 <= leak.figures["found"].low <= leak.figures["found"].value <= leak.figures["found"].high


@pytest.mark.parametrize(
    ("adversary", "known", "reason"),
    [
        ("outsider", 20, "needs predictions of candidates, and which candidate each belongs to"),
        ("server", 0, "needs known candidates that were trained on and that were not"),
    ],
)
def test_it_says_why_it_does_not_apply(adversary, known, reason):
    system = make_system("split-concat", rounds=2)
    trials = Trials(system=system, seeds=1, confidence=0.95, pairs=20, known=known)
    (tried,) = trials.run([FeatureMembership()], [Adversary.parse(adversary)])
    assert tried.refusal == reason


def test_a_model_trained_on_other_data_shows_chance():
    """The same attack on the same candidates and coins; the model has seen neither record of any pair."""
    trials = memorising()
    candidates, data = trials.membership.candidates, trials.system.data
    other = dataclasses.replace(trials.system, data=noisy_labels(120, seed=9))
    schedule = other.engine.draw_schedule(other.settings, records=120, devices=2, seed=0)
    engine = dataclasses.replace(other, schedule=schedule).train([0])
    engine.run(Wire())
    view = View.of(predictions(engine, data, candidates.records), SERVER, devices=2, classes=3)
    inside, told = candidates.members(0), torch.cat((torch.arange(10), 120 + torch.arange(10)))
    labels = data.labels[candidates.records]
    auxiliary = MembershipAuxiliary(labels=labels, records=told, members=inside[told].long())
    guess = FeatureMembership().run(view, auxiliary)
    rows = ~torch.isin(guess.records, told)
    found = membership_score(guess.values[0][rows], inside[rows], confidence=0.99)
    assert found.low < 0.5 < found.high
    # Margin: the interval of 99 % reaches 0.19 to either side of what it measures.
    assert found.figures["advantage"].low < 0 < found.figures["advantage"].high
    assert found.figures["found"].value < 0.1


def test_what_is_accounted_for_bounds_what_predictions_say():
    """dpzv-joint's model is post-processing of noised scalars. Two candidates that swap their places are two records:
    with μ for one, a member scores higher than another with a chance of at most Φ(μ)."""
    words = {"noise_std": 8.0, "clip": 1.0, "device_rate": 0.01, "server_rate": 0.01}
    system = make_system("dpzv-joint", data=noisy_labels(), rounds=60, batch_size=20, **words)
    trials = Trials(system=system, seeds=4, confidence=0.95, pairs=120, known=20)
    exposure = trials.membership.trained.ledger.exposure(Adversary.parse("model"), Unit.RECORD)
    mu = find("accountant", "gdp")().budget(exposure, 1e-5).mu
    assert 0 < mu < 0.2
    for tried in trials.run(ATTACKS, [SERVER]):
        assert tried.mean.low < norm.cdf(mu)


@pytest.mark.parametrize("attack", [FeatureMembership, FeatureLira])
def test_nothing_an_attack_is_given_leads_to_the_coins(attack):
    given = []

    class Spy(attack):
        def run(self, view, auxiliary):
            given.append((view, auxiliary))
            return super().run(view, auxiliary)

    system = make_system("split-concat", rounds=2)
    trials = Trials(system=system, seeds=1, confidence=0.95, pairs=20, known=8, shadow_models=4)
    trials.run([Spy()], [SERVER])
    assert given
    coins = trials.membership.candidates.members(0)
    for item in reachable(given):
        assert not isinstance(item, Engine | VerticalData | Candidates)
        assert not (isinstance(item, torch.Tensor) and item.shape == coins.shape and torch.equal(item.bool(), coins))


@pytest.mark.parametrize("engine", list(VARIANTS))
def test_every_engine_can_be_asked(engine):
    system = make_system(VARIANTS[engine], rounds=8, data=toy_data())
    trials = Trials(system=system, seeds=2, confidence=0.95, pairs=20, known=8, shadow_models=4)
    first, again = (trials.run(ATTACKS, [SERVER]) for _ in range(2))
    assert first == again
    for leak in (tried.mean for tried in first):
        assert 0 <= leak.low <= leak.value <= leak.high <= 1
        assert leak.guesses == 32
        assert set(leak.figures) == {"advantage"}


def test_advantage_and_rates_are_counts():
    scores = torch.tensor([2.0, 1.0, -1.0, -2.0, 3.0, -1.0])
    inside = torch.tensor([True, True, True, False, False, False])
    found = membership_score(scores, inside, confidence=0.95)
    assert found.figures["advantage"].value == pytest.approx(2 / 3 - 1 / 3)
    assert "found" not in found.figures
    others, members = np.arange(199.0), np.array([196.5, 197.5, 250.0, 0.0])
    # 199 others: the second highest, 197, is exceeded at a rate of 2/200.
    assert found_at_few_errors(members, others, confidence=0.95).value == pytest.approx(0.5)
    assert found_at_few_errors(members, others, confidence=0.95, rate=0.001) is None
    many, members = np.arange(1999.0), np.array([1996.5, 1997.5, 2500.0, 0.0])
    assert found_at_few_errors(members, many, confidence=0.95, rate=0.001).value == pytest.approx(0.5)


def test_seeds_give_students_interval():
    generator = torch.Generator().manual_seed(0)
    inside = torch.arange(400) % 2 == 0
    scores = [membership_score(torch.randn(400, generator=generator), inside, confidence=0.95) for _ in range(4)]
    leak = mean_score(scores, confidence=0.95)
    assert leak.low < leak.value < leak.high
    assert "found" in leak.figures
    same = mean_score([scores[0]] * 3, confidence=0.95)
    assert same.low == pytest.approx(scores[0].low)
    assert same.figures["found"].high == pytest.approx(scores[0].figures["found"].high)
    alone = mean_score(scores[:1], confidence=0.95)
    assert (alone.value, alone.low, alone.high) == (scores[0].value, scores[0].low, scores[0].high)


@pytest.mark.parametrize("count", [120, 600])
def test_the_rate_at_few_errors_and_the_advantage_are_covered(count):
    """Others N(0, 1), members N(1.5, 1): the rate at 1 % is Φ(1.5 - z), the advantage at 0 is Φ(1.5) - ½."""
    generator = torch.Generator().manual_seed(2)
    inside = torch.arange(2 * count) % 2 == 0
    truth = (norm.cdf(1.5 - norm.ppf(0.99)), norm.cdf(1.5) - 0.5)
    hits, total, repeats = [0, 0], 0.0, 300
    for _ in range(repeats):
        scores = torch.randn(2 * count, generator=generator) + 1.5 * inside
        found = membership_score(scores, inside, confidence=0.9)
        for k, (figure, true) in enumerate(
            zip((found.figures["found"], found.figures["advantage"]), truth, strict=True)
        ):
            hits[k] += figure.low <= true <= figure.high
        total += found.figures["found"].value
    # Margin: the scores are drawn from a seed, and sorted; six standard errors are allowed.
    assert min(hits) / repeats > 0.9 - 6 * math.sqrt(0.09 / repeats)
    # The threshold's rate of errors is 1 % on average, so the rate of hits is right up to the curve's bend.
    assert total / repeats == pytest.approx(truth[0], abs=0.05)
