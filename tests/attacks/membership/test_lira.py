"""LiRA: as good as the known densities allow, better than a global threshold, and blind where there is nothing."""

from __future__ import annotations

import dataclasses
from functools import cached_property

import pytest
import torch
from scipy.stats import norm

from tests.audits.scoring.test_membership import SERVER, memorising, noisy_labels
from tests.support import make_system
from vflpriv.attacks.membership.confidence import FeatureMembership
from vflpriv.attacks.membership.lira import FeatureLira, FeatureLiraOffline
from vflpriv.audits.scoring.candidates import MembershipTraining
from vflpriv.audits.scoring.membership import membership_score
from vflpriv.audits.scoring.trials import Trials
from vflpriv.core.systems import System

ATTACKS = [FeatureMembership(), FeatureLira(), FeatureLiraOffline()]


def drawn(difference: float, *, models: int = 32, candidates: int = 2400) -> dict[str, torch.Tensor]:
    """Log-odds of easy and difficult candidates, higher by `difference` in the models that were trained on them."""
    generator = torch.Generator().manual_seed(0)
    usual = 4 * torch.randn(candidates, generator=generator, dtype=torch.float64)
    coins = torch.rand(models // 2, candidates, generator=generator) < 0.5
    members = torch.cat((coins, ~coins))
    noise = torch.randn(models + 1, candidates, generator=generator, dtype=torch.float64)
    inside = torch.rand(candidates, generator=generator) < 0.5
    both = torch.cat((inside.unsqueeze(0), members))
    odds = usual + difference * both + noise
    return {"odds": odds[0], "shadows": odds[1:], "members": members, "inside": inside}


@pytest.mark.parametrize("attack", [FeatureLira(), FeatureLiraOffline()])
def test_it_is_as_good_as_the_true_densities_but_for_the_shadow_models_errors(attack):
    """N(μ + d, 1) against N(μ, 1), μ known: an AUC of Φ(d/√2), and of the members Φ(d - z) are found at an error rate
    with quantile z. Without μ, which spreads by 4, the AUC is Φ(d/√34)."""
    data = drawn(1.5)
    inside = data.pop("inside")
    found = membership_score(attack.scores(**data), inside, confidence=0.99)
    best, without = norm.cdf(1.5 / 2**0.5), norm.cdf(1.5 / 34**0.5)
    assert without + 0.15 < found.value < found.high
    assert best - 0.03 < found.value < best + 0.03
    assert found.figures["found"].low < norm.cdf(1.5 - norm.ppf(0.99)) < found.figures["found"].high
    assert found.figures["rarely_found"].low < norm.cdf(1.5 - norm.ppf(0.999)) < found.figures["rarely_found"].high
    # Margin: the lower end is 0.37, and the densities are computed in closed form.
    assert found.figures["advantage"].low > 0.1


@pytest.mark.parametrize("attack", [FeatureLira(), FeatureLiraOffline()])
def test_scores_tell_nothing_where_shadow_models_do_not_differ(attack):
    data = drawn(0.0)
    inside = data.pop("inside")
    found = membership_score(attack.scores(**data), inside, confidence=0.99)
    assert found.low < 0.5 < found.high


def test_it_beats_a_global_threshold_on_a_model_that_memorises():
    """Margin: the lower end is 0.82, for a model that knows its records by heart."""
    threshold, online, offline = (tried.mean for tried in memorising(seeds=3, shadow_models=16).run(ATTACKS, [SERVER]))
    assert online.guesses == threshold.guesses == 220
    assert online.value > threshold.value + 0.02
    assert online.value > offline.value + 0.02
    assert online.figures["found"].value > threshold.figures["found"].value + 0.2
    assert offline.figures["found"].value > threshold.figures["found"].value + 0.2
    assert online.figures["advantage"].low > 0.7


class Unrelated(MembershipTraining):
    """Trainings whose attacked models are trained on other data, so that no candidate can leave a trace."""

    @cached_property
    def trained(self) -> System:
        other = dataclasses.replace(self.system, data=noisy_labels(120, seed=9))
        schedule = other.engine.draw_schedule(other.settings, records=120, devices=2, seed=0)
        return dataclasses.replace(other, schedule=schedule)


def test_a_training_that_ignores_the_candidates_shows_no_leak(monkeypatch):
    """Margin: intervals over twelve seeds reach 0.09 and more to either side."""
    trials = memorising(seeds=12, shadow_models=16)
    fields = {f.name: getattr(trials.membership, f.name) for f in dataclasses.fields(trials.membership)}
    monkeypatch.setitem(vars(trials), "membership", Unrelated(**fields))
    for tried in trials.run(ATTACKS, [SERVER]):
        assert tried.mean.low < 0.5 < tried.mean.high
        assert abs(tried.mean.value - 0.5) < 0.04
        assert tried.mean.figures["advantage"].low < 0 < tried.mean.figures["advantage"].high
        assert tried.mean.figures["found"].low < 0.01


def test_shadow_models_are_trainings_of_their_own():
    trials = memorising(shadow_models=6).membership
    thrown = trials.candidates.thrown_again(6, seed=1)
    assert torch.equal(thrown.pairs, trials.candidates.pairs)
    assert torch.equal(thrown.coins[0::2], 1 - thrown.coins[1::2])
    members = torch.stack([thrown.members(r) for r in range(6)])
    assert (members.sum(0) == 3).all()
    same = (thrown.coins.unsqueeze(1) == trials.candidates.coins.unsqueeze(0)).double().mean(2)
    assert 0.3 < same.min() < same.max() < 0.7


@pytest.mark.parametrize(
    ("models", "reason"),
    [
        (2, "needs at least 4 shadow models, not 2"),
        (None, "needs shadow models: its adversary trains the same system again, with other candidates left out"),
    ],
)
def test_it_says_why_it_does_not_apply(models, reason):
    class NotGiven(FeatureLira):
        knows = frozenset({"labels"}) if models is None else FeatureLira.knows

    system = make_system("split-concat", rounds=2)
    trials = Trials(system=system, seeds=1, confidence=0.95, pairs=20, known=8, shadow_models=models or 4)
    (tried,) = trials.run([NotGiven()], [SERVER])
    assert tried.refusal == reason
