"""RMIA: it follows its formula, finds the members of a system that memorises, and those of none with noise at ε = 1."""

from __future__ import annotations

import pytest
import torch

from tests.attacks.membership.test_lira import drawn
from tests.audits.scoring.test_membership import SERVER, memorising, noisy_labels
from tests.support import make_system
from vflpriv.accountants.auto import AutoAccountant
from vflpriv.attacks.membership.rmia import FeatureRmia
from vflpriv.audits.scoring.membership import membership_score
from vflpriv.audits.scoring.trials import Trials
from vflpriv.core.units import Unit
from vflpriv.core.views import Adversary

ATTACK = FeatureRmia()


def test_the_score_is_the_share_of_others_whose_likelihood_ratio_is_smaller():
    data = drawn(1.0, models=6, candidates=40)
    data.pop("inside")
    scores = ATTACK.scores(**data)
    own, theirs = torch.sigmoid(data["odds"]), torch.sigmoid(data["shadows"])
    for x in range(40):
        ratios = []
        for z in range(40):
            trained_on = theirs[data["members"][:, z], z].mean()
            left_out = theirs[~data["members"][:, z], z].mean()
            ratios.append(float(own[z] / ((trained_on + left_out) / 2)))
        smaller = sum(ratios[x] / ratio > 1 for z, ratio in enumerate(ratios) if z != x)
        assert float(scores[x]) == pytest.approx(smaller / 39 - 0.5)


def test_two_models_are_enough_where_a_likelihood_ratio_of_gaussians_needs_four():
    data = drawn(2.0, models=2)
    inside = data.pop("inside")
    found = membership_score(ATTACK.scores(**data), inside, confidence=0.99)
    # Margin: 0.83 here; the log-odds themselves have an AUC of 0.66.
    assert found.low > 0.75


def test_scores_tell_nothing_where_shadow_models_do_not_differ():
    data = drawn(0.0)
    inside = data.pop("inside")
    found = membership_score(ATTACK.scores(**data), inside, confidence=0.99)
    assert found.low < 0.5 < found.high


def test_it_finds_the_members_of_a_system_that_memorises():
    (tried,) = memorising(seeds=3, shadow_models=6).run([ATTACK], [SERVER])
    assert tried.mean.guesses == 220
    # Margin: an AUC of 0.91 and an advantage of 0.64, with standard errors of 0.02 and 0.05 between the seeds.
    assert tried.mean.value > 0.8
    assert tried.mean.low > 0.7
    assert tried.mean.figures["advantage"].value > 0.4


def test_noise_at_epsilon_one_leaves_it_at_chance():
    """Whoever holds the model learns at most ε = 1 of a record, so that no advantage is above tanh(1/2) = 0.46 + δ; an
    attack that compares predictions, after 200 steps on noise, gets nothing of it."""
    system = make_system("dpzv-joint", data=noisy_labels(), batch_size=20, rounds=200, noise_std=30.0, embedding=8)
    trials = Trials(system=system, seeds=6, confidence=0.99, pairs=120, known=20, shadow_models=8)
    exposure = trials.membership.trained.ledger.exposure(Adversary.parse("model"), Unit.RECORD)
    assert 0.5 < AutoAccountant().budget(exposure, 1e-5).upper < 1.0
    (tried,) = trials.run([ATTACK], [SERVER])
    assert tried.mean.low < 0.5 < tried.mean.high
    # Margin: 1,320 guesses, whose AUC has a standard error of 0.016.
    assert abs(tried.mean.value - 0.5) < 0.07
    assert tried.mean.figures["advantage"].low < 0 < tried.mean.figures["advantage"].high


@pytest.mark.parametrize(
    ("models", "reason"),
    [
        (1, "needs at least 2 shadow models, not 1"),
        (None, "needs shadow models: its adversary trains the same system again, with other candidates left out"),
    ],
)
def test_it_says_why_it_does_not_apply(models, reason):
    class NotGiven(FeatureRmia):
        knows = frozenset({"labels"}) if models is None else FeatureRmia.knows

    system = make_system("split-concat", rounds=2)
    trials = Trials(system=system, seeds=1, confidence=0.95, pairs=20, known=8, shadow_models=models or 4)
    (tried,) = trials.run([NotGiven()], [SERVER])
    assert tried.refusal == reason
