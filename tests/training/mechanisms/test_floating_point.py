"""No noised release, and no noised label, tells its world by its last digits; noise that is added in them does."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import numpy as np
import pytest
import torch

from tests.adversary import certain, certain_of_twins
from tests.support import ENGINES, make_system, toy_data
from vflpriv.accountants.auto import AutoAccountant
from vflpriv.audits.statistics.reachability import reachable
from vflpriv.common.random import Stream
from vflpriv.common.registry import available, find
from vflpriv.core.canaries import Canary, CanaryKind
from vflpriv.core.systems import System
from vflpriv.core.units import Unit
from vflpriv.laws import Alibi
from vflpriv.laws.labels.law import LabelLaw
from vflpriv.run.noise.search import with_noise
from vflpriv.training.mechanisms.base import Mechanism
from vflpriv.training.settings import EngineSettings, LabelProtection

WORST = Canary(kind=CanaryKind.WORST_CASE, record=3, world=torch.zeros(1, dtype=torch.int64), labels=(0, 1))
NOISED = [name for name in ENGINES if any(r.noise.white for r in make_system(name).ledger.releases)]


def calibrated() -> System:
    """DPZV with noise that is calibrated to ε = 1 at δ = 1e-3, in 92 rounds."""
    system = make_system(
        "dpzv-joint", rounds=92, data=toy_data(200), noise="calibrated", epsilon=1.0, delta=1e-3, noise_std=None
    )
    return replace(system, settings=with_noise(system, AutoAccountant()))


def noisy(variant: str) -> System:
    """An engine with noise as large as what it hides, so that the digits are all that tells.

    Under far larger values the noise is finer than their digits: any sum is then reached, and size alone tells.
    """
    own: dict[str, float] = {"server_noise_std": 1.0} if variant.startswith("dpzv-dp") else {}
    # In twelve rounds of one number each a wrong arithmetic may happen to explain all that left.
    return make_system(variant, noise_std=2.0, rounds=150 if variant.startswith("dpzv") else 12, **own)


def in_single_precision(self: Mechanism, noiseless: torch.Tensor, draws: torch.Tensor) -> torch.Tensor:
    return noiseless + self.noise.deviation * draws.to(torch.float32)


@pytest.mark.parametrize("kind", [CanaryKind.WORST_CASE, CanaryKind.NATURAL])
@pytest.mark.parametrize("unit", [Unit.LABEL, Unit.RECORD])
def test_calibrated_noise_tells_nothing_by_its_digits(
    kind: CanaryKind, unit: Unit, monkeypatch: pytest.MonkeyPatch
) -> None:
    canary = replace(WORST, kind=kind, unit=unit)
    assert certain(calibrated(), canary, 20) == 0
    # Margin: 9 to 13 of 20 were told on the machines tried, of natural canaries 11 of 60.
    monkeypatch.setattr(Mechanism, "release", in_single_precision)
    assert certain(calibrated(), canary, 20 if kind is CanaryKind.WORST_CASE else 60) >= 2


@pytest.mark.parametrize("variant", NOISED)
def test_no_engine_tells_its_world_by_the_digits_of_a_release(variant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    system = noisy(variant)
    noised = {release.kind for release in system.ledger.releases if release.noise.white}
    assert certain_of_twins(system, 10) == (0, noised)
    # Margin: 6 to 10 of 10 were told on the machines tried.
    monkeypatch.setattr(Mechanism, "release", in_single_precision)
    assert certain_of_twins(system, 10)[0] >= 1


def test_every_engine_that_adds_noise_is_tried() -> None:
    settings = {name: find("engine", name).settings_type.model_fields for name in available("engine")}
    assert {ENGINES[variant][0] for variant in NOISED} == {name for name in settings if "noise_std" in settings[name]}


@pytest.mark.slow  # Two hundred trainings of every engine that adds noise.
@pytest.mark.parametrize("variant", NOISED)
def test_none_of_200_trainings_tells_its_world(variant: str) -> None:
    assert certain_of_twins(noisy(variant), 200)[0] == 0


@pytest.mark.slow  # Two hundred trainings.
def test_none_of_200_calibrated_trainings_tells_its_world() -> None:
    assert certain(calibrated(), WORST, 200) == 0


def told_labels(observed: torch.Tensor, truth: torch.Tensor, law: Alibi) -> int:
    """How many labels are the only one that noise in single precision can have made the observation of."""
    classes = observed.shape[-1]
    onehot = np.eye(classes, dtype=np.float32)
    fits = reachable(observed[0, :, None].numpy(), onehot[None], law.laplace.scale).all(-1)
    # An adversary whose arithmetic does not explain the true labels is certain of nothing.
    explained = fits[np.arange(len(fits)), truth[0].numpy()].all()
    return int((fits.sum(1) == 1).sum()) if explained else 0


def test_every_label_mechanism_that_adds_noise_to_numbers_is_tried() -> None:
    """The others answer with labels: numbers that have no last digits."""
    laws, in_numbers = set(), set()
    for protection in set(get_args(LabelProtection)) - {"none"}:
        mechanism = EngineSettings(rounds=1, batch_size=1, label_protection=protection).label_mechanism
        assert mechanism is not None
        stream = Stream.of(0, "labels", [0], torch.device("cpu"))
        observed = mechanism.law.observe(torch.arange(40).remainder(4).unsqueeze(0), 4, stream)
        laws.add(type(mechanism.law))
        in_numbers |= set() if set(observed.unique().tolist()) <= {0.0, 1.0} else {type(mechanism.law)}
    assert laws == {law for name in available("law") if issubclass(law := find("law", name), LabelLaw)}
    assert in_numbers == {Alibi}


@pytest.mark.parametrize("trainings", [5, pytest.param(200, marks=pytest.mark.slow)])
@pytest.mark.parametrize("std", [1.0, 2.8])
def test_noised_labels_tell_nothing_by_their_digits(trainings: int, std: float) -> None:
    law, labels = Alibi(std), torch.arange(300).remainder(4).unsqueeze(0)
    for training in range(trainings):
        stream = Stream.of(training, "labels", [0], torch.device("cpu"))
        assert told_labels(law.observe(labels, 4, stream), labels, law) == 0
    noise = law.laplace.unit(stream, 1200)[0].reshape(1, 300, 4).to(torch.float32) * law.laplace.scale
    assert told_labels(torch.nn.functional.one_hot(labels, 4) + noise, labels, law) > 2
