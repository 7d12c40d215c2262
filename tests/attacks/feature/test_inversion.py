"""Inversion of embeddings: digits are reconstructed, the worse the more noise; without embeddings it is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.attacks.support import attack, two_blocks
from vflpriv.audits.scoring.trials import Trials
from vflpriv.data import loading as datasets

BOTH = ["feature_inversion", "feature_inversion_white"]


@pytest.fixture(scope="module")
def digits():
    return datasets.load("digits", devices=2, keep_shape=True, train=400)


@pytest.mark.parametrize("name", BOTH)
def test_pictures_come_back_without_noise_and_fade_as_it_grows(name, digits):
    def run(std: float):
        settings = {"protection": "embedding", "clip": 2.0, "noise_std": std} if std else {}
        leak = attack(name, "split-concat", digits, "server", embedding=32, rounds=24, known=150, **settings).mean
        return leak.value, leak.figures["ssim"].value

    scores = [run(std) for std in (0.0, 0.3, 2.0)]
    values, similarities = zip(*scores, strict=True)
    assert similarities[0] > 0.75
    assert values[0] > 0.75
    assert list(values) == sorted(values, reverse=True)
    assert list(similarities) == sorted(similarities, reverse=True)
    assert values[-1] < 0.1


def test_originals_stand_beside_reconstructions(digits):
    tried = attack("feature_inversion", "split-concat", digits, "server", embedding=32)
    assert tried.pictures.shape == (2, 8, 1, 4, 8)
    assert 0 <= float(tried.pictures.min()) <= float(tried.pictures.max()) <= 1
    first, second = tried.pictures.flatten(2).unbind(0)
    assert float((first - second).square().mean()) < 0.06


@pytest.mark.parametrize("name", BOTH)
@pytest.mark.parametrize("adversary", ["device(0)", "model"])
def test_who_sees_no_embeddings_is_refused(name, adversary, digits):
    assert attack(name, "split-concat", digits, adversary).refusal.startswith("needs ")


def test_a_clip_of_the_whole_batch_is_undone(digits):
    """The white box knows that rows were scaled together; the noise is small."""
    settings = {"protection": "client", "clip": 2.0, "noise_std": 0.001}
    leak = attack("feature_inversion_white", "split-concat", digits, "server", embedding=32, known=150, **settings).mean
    assert leak.value > 0.7


def test_seeds_give_an_interval(digits):
    leak = attack("feature_inversion", "split-concat", digits, "server", seeds=2).mean
    assert leak.low < leak.value < leak.high <= 1
    assert leak.leakage.low < leak.leakage.value < leak.leakage.high


def test_with_little_memory_the_last_models_are_known(monkeypatch, digits):
    """Room for four rounds of two devices: only the records of these four batches are reconstructed."""
    monkeypatch.setattr("vflpriv.audits.scoring.trainings._MEMORY", 4 * 2 * 4 * (32 + 1) * 16)
    leak = attack("feature_inversion_white", "split-concat", digits, "server", embedding=16, rounds=8).mean
    assert leak.guesses <= 200
    assert leak.value > 0.3


@pytest.mark.parametrize("defence", [{"name": "top-k", "kept": 0.5}, {"name": "quantised", "bits": 1}])
def test_the_white_box_knows_how_outputs_are_compressed(monkeypatch, defence):
    data = two_blocks(4, 4)
    knows = attack("feature_inversion_white", "split-concat", data, "server", defence=defence)
    assert knows.adaptive
    monkeypatch.setattr(Trials, "_secrets", _untold(Trials._secrets))
    ignores = attack("feature_inversion_white", "split-concat", data, "server", defence=defence)
    assert not ignores.adaptive
    assert knows.mean.value > ignores.mean.value


def _untold(secrets):
    return lambda trials, *told: {
        target: replace(secret, defences={}) for target, secret in secrets(trials, *told).items()
    }
