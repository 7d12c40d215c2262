"""Labels without a known one, by clusters that the server's first model names; noise and secret starts hide them."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
import torch

from tests.support import make_system, toy_data
from vflpriv.attacks.label.enumeration import LabelEnumeration
from vflpriv.audits.scoring.attempts import Attempt
from vflpriv.audits.scoring.labels import NO_START, Labels
from vflpriv.audits.scoring.trials import Trials
from vflpriv.core.attack import Auxiliary
from vflpriv.core.systems import System
from vflpriv.core.views import Adversary


def system(variant: str = "split-concat", **changes: Any) -> System:
    sizes = {"data": toy_data(records=300), "rounds": 40, "batch_size": 20, "top_hidden": ()}
    return make_system(variant, **(sizes | changes))


def tried(on: System, who: str = "device(0)", seeds: int = 3) -> Attempt:
    (attempt,) = Trials(system=on, seeds=seeds, confidence=0.95).run([LabelEnumeration()], [Adversary.parse(who)])
    return attempt


@pytest.mark.parametrize(
    ("variant", "who", "changes"),
    [
        ("split-concat", "device(0)", {}),
        ("fedbcd", "devices(0, 2)", {}),
        ("split-concat", "eavesdropper", {"top_hidden": (6,)}),
    ],
)
def test_every_label_is_found_and_none_was_told(variant: str, who: str, changes: dict[str, Any]) -> None:
    score = tried(system(variant, **changes), who).mean
    assert score is not None
    # Margin: 0.96 or more; chance is a third.
    assert score.value > 0.85
    assert score.guesses == 300


def test_labels_at_epsilon_one_bound_what_it_gains() -> None:
    coins = torch.randint(2, (600,), generator=torch.Generator().manual_seed(4))
    data = dataclasses.replace(toy_data(records=600, classes=2), labels=coins)
    noised = system(data=data, batch_size=40, label_protection="rr", label_noise=1.0)
    score = tried(noised, "devices(all)").mean
    assert score is not None
    # A fair coin that is told at ε = 1 is guessed with e/(1 + e) at most; three standard errors of 1800 guesses.
    assert score.value < math.e / (1 + math.e) + 3 * (0.25 / 1800) ** 0.5


def test_without_the_servers_first_model_it_is_refused() -> None:
    """Margin: all labels are named with the right start, and none with the turned one."""
    on = system()
    training = Trials(system=on, seeds=1, confidence=0.95).training(
        [LabelEnumeration()], [Adversary.parse("device(0)")]
    )
    view = training.views([Adversary.parse("device(0)")])[Adversary.parse("device(0)")]
    secret = Labels(seed=0, confidence=0.95, truth=on.data.labels, classes=3)
    assert secret.attempt(LabelEnumeration(), view).refusal == NO_START
    # Another start, as one of a secret seed would be: the clusters are right, their names are not.
    known = dataclasses.replace(secret, start=training.start).attempt(LabelEnumeration(), view)
    assert known.success is not None
    assert known.success.value > 0.85
    assert training.start is not None
    turned = {name: value.roll(1, -1) for name, value in training.start.parameters.items()}
    wrong = dataclasses.replace(secret, start=dataclasses.replace(training.start, parameters=turned))
    assert (wrong.attempt(LabelEnumeration(), view).success or known.success).value < 0.1


def test_nothing_but_the_start_is_told() -> None:
    auxiliary = Labels(seed=0, confidence=0.95, truth=torch.arange(9) % 3, classes=3).auxiliary(LabelEnumeration(), 0)
    assert isinstance(auxiliary, Auxiliary)
    assert len(auxiliary.records) == 0


@pytest.mark.parametrize(
    ("variant", "who", "reason"),
    [
        ("dpzv-joint", "device(0)", "needs gradients of each record's embedding"),
        ("split-concat", "outsider", "needs to know which record a message belongs to"),
    ],
)
def test_it_says_why_it_does_not_apply(variant: str, who: str, reason: str) -> None:
    assert tried(system(variant, rounds=2), who, 1).refusal == reason
