"""Dishonest devices: a trigger that decides predictions, spoiled ones, replays; and where they get nothing by it."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
import torch

from tests.attacks.support import split_rows
from tests.support import make_system
from vflpriv.accountants.auto import AutoAccountant
from vflpriv.attacks.integrity.backdoor import Backdoor
from vflpriv.attacks.integrity.noisy_samples import NoisySamples
from vflpriv.attacks.integrity.replay import Replay
from vflpriv.audits.scoring.attempts import Attempt
from vflpriv.audits.scoring.integrity import IntegrityTrials
from vflpriv.audits.scoring.trainings import train
from vflpriv.core.attack import IntegrityAuxiliary
from vflpriv.core.data import VerticalData
from vflpriv.core.systems import System
from vflpriv.core.units import Unit
from vflpriv.core.views import Adversary

CLASSES, WIDTH = 4, 8


def data(*, heard: bool = True) -> VerticalData:
    """Two devices whose features overlap between classes; what device 0 has says nothing unless it is to be heard."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(600) % CLASSES
    means = torch.randn(2, CLASSES, WIDTH, generator=generator)
    means[0] *= heard
    blocks = [means[m][labels] + 2 * torch.randn(600, WIDTH, generator=generator) for m in range(2)]
    return split_rows("overlapping", CLASSES, blocks, labels, test=200)


@cache
def system(variant: str = "split-sum", heard: bool = True, **changes: Any) -> System:
    sizes = {"rounds": 200, "batch_size": 40, "device_rate": 0.3, "server_rate": 0.3, "hidden": (16,)}
    return make_system(variant, data=data(heard=heard), **(sizes | changes))


def tried(attack: Any, on: System, who: str = "device(0)", seeds: int = 4) -> Attempt:
    trials = IntegrityTrials(honest=train(on, seeds, frozenset()), confidence=0.95, known=4)
    (attempt,) = trials.run([attack], [Adversary.parse(who)])
    return attempt


def mean(attack: Any, on: System) -> Any:
    score = tried(attack, on).mean
    assert score is not None
    assert score.guesses == (200 if attack.goal == "wrong" else 150)
    return score


def test_a_trigger_decides_predictions_and_the_main_task_stays() -> None:
    score = mean(Backdoor(), system())
    # Margin: a share of 0.52 and a leakage of 0.27 to 0.63 over four trainings; without the attack 0.07 and 0.03.
    assert score.leakage.low > 0.1
    assert score.numbers["main"] > score.numbers["main_honest"] - 0.15


def test_replays_spoil_the_main_task() -> None:
    score = mean(Replay(), system())
    # Margin: 56 % wrong with it, 21 % without.
    assert score.leakage.low > 0.2
    assert score.value == pytest.approx(1 - score.numbers["main"])


def test_noise_spoils_predictions_also_of_a_model_that_never_saw_it() -> None:
    score = mean(NoisySamples(), system())
    # Margin: 45 % wrong with the noise, 21 % without; training with noise changes that by less than 0.02.
    assert score.value > score.chance + 0.15
    assert abs(score.leakage.value) < 0.1


@pytest.mark.parametrize("attack", [Backdoor(), Replay(), NoisySamples()])
def test_noise_at_epsilon_one_leaves_nothing_to_gain(attack: Any) -> None:
    noised = system("split-embedding", clip=1.0, noise_std=1200.0, rounds=40)
    exposure = noised.ledger.exposure(Adversary.parse("server"), Unit.FEATURES)
    assert 0.1 < AutoAccountant().budget(exposure, 1e-5).upper < 1.0
    assert mean(attack, noised).leakage.low < 0.05


def test_the_devices_messages_about_known_and_poisoned_rows_change_places() -> None:
    """Of the known record it sends the poisoned row's output; the poisoned row steps on γ times what came back."""
    blocks = {0: torch.arange(40.0).view(20, 2)}
    auxiliary = IntegrityAuxiliary(blocks=blocks, records=torch.tensor([7]), target=1, seed=3)
    changed = (Backdoor().poisoned(auxiliary)[0] != blocks[0]).any(1).nonzero().flatten()
    assert 7 not in changed
    assert len(changed) == 1
    conduct = Backdoor().conducts(auxiliary)[0]
    batch = torch.tensor([int(changed[0]), 7, next(i for i in range(20) if i != 7 and i not in changed)])
    assert conduct.forge is not None
    assert conduct.read is not None
    outputs = torch.tensor([[[1.0], [2.0], [3.0]]])
    assert conduct.forge(0, batch, {"embedding": outputs})["embedding"].flatten().tolist() == [1.0, 1.0, 3.0]
    assert conduct.read(0, batch, {"gradient": outputs})["gradient"].flatten().tolist() == [20.0, 0.0, 3.0]


def test_what_it_cannot_be_tried_on_is_said() -> None:
    assert tried(Replay(), system(), "server").refusal == "needs a device of its own, which departs from the protocol"
    scalars = make_system("dpzv-joint", data=data(), rounds=2)
    assert tried(Backdoor(), scalars, seeds=1).refusal == "needs gradients of each record, to replace them"
