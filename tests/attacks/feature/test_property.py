"""A share of an attribute in one device's data: told by what it sends, hidden by noise for the whole device."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.attacks.support import split_rows
from tests.support import make_system, toy_data
from vflpriv.accountants.auto import AutoAccountant
from vflpriv.attacks.feature.property import FeatureProperty
from vflpriv.audits.scoring.attempts import Attempt
from vflpriv.audits.scoring.properties import SHARES, PropertyTraining
from vflpriv.audits.scoring.trials import Trials
from vflpriv.core.data import VerticalData
from vflpriv.core.systems import System
from vflpriv.core.units import Unit
from vflpriv.core.views import Adversary

SERVER = Adversary.parse("server")


def data(records: int = 600) -> VerticalData:
    """Device 1's first column is 0 or 1, and moves its others; the label depends on device 0 alone."""
    generator = torch.Generator().manual_seed(0)
    own, block = (torch.randn(records + 40, width, generator=generator) for width in (4, 5))
    block[:, 0] = (torch.rand(records + 40, generator=generator) < 0.5).float()
    block[:, 1:] += block[:, :1]
    return split_rows("attribute", 2, (own, block), (own[:, 0] > 0).long(), test=40)


def system(variant: str, **changes: Any) -> System:
    return make_system(variant, **({"data": data(), "rounds": 16, "batch_size": 20} | changes))


def tried(on: System, who: Adversary = SERVER, models: int = 16, column: int | None = 0) -> Attempt:
    trials = Trials(system=on, seeds=1, confidence=0.95, victim=1, attribute=column, shadow_models=models)
    (attempt,) = trials.run([FeatureProperty()], [who])
    return attempt


@pytest.mark.parametrize("variant", ["split-concat", "cascaded"])
def test_the_share_is_told_by_what_is_sent(variant: str) -> None:
    score = tried(system(variant)).mean
    assert score is not None
    # Margin: an AUC of 1.
    assert score.value > 0.9
    assert score.low > 0.5
    assert (score.chance, score.guesses) == (0.5, 16)


def test_noise_at_epsilon_one_for_the_device_leaves_nothing() -> None:
    noised = system("split-client", clip=1.0, noise_std=40.0)
    assert 0.3 < AutoAccountant().budget(noised.ledger.exposure(SERVER, Unit.CLIENT), 1e-5).upper < 1.0
    score = tried(noised, models=32).mean
    assert score is not None
    assert score.low < 0.5
    # Margin: μ is about 0.2 for all messages together, an AUC of at most 0.57; a standard error of 0.1 over 32 coins.
    assert score.value < 0.8


def test_draws_differ_in_the_share_alone() -> None:
    on = system("split-concat")
    attribute = on.data.blocks[1][:, 0].long()
    training = PropertyTraining(system=on, victim=1, attribute=attribute, models=6, confidence=0.95)
    shares = attribute[training.records].double().mean(1)
    assert shares.tolist() == pytest.approx([SHARES[coin] for coin in training.coins.tolist()], abs=0.02)
    labels = on.data.labels[training.records].double().mean(1)
    assert bool((labels == labels[0]).all())
    assert all(len(row.unique()) == len(row) for row in training.records)
    halves = training.coins.split(6)
    assert [int(half.sum()) for half in halves] == [3, 3]


@pytest.mark.parametrize(
    ("on", "who", "column", "reason"),
    [
        (system("split-concat"), "device(0)", 0, "needs what the victim sends of each record"),
        (system("split-concat"), "server", None, "needs a sensitive column; none is named"),
        (system("split-concat", data=toy_data()), "server", 0, "needs more records with and without the sensitive"),
    ],
)
def test_it_says_why_it_does_not_apply(on: System, who: str, column: int | None, reason: str) -> None:
    assert (tried(on, Adversary.parse(who), 4, column).refusal or "").startswith(reason)
