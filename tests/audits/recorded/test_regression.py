"""Slopes in the coins of canaries: a label that moves a number too far is found, one that does not is not."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from vflpriv.audits.recorded.regression import slopes
from vflpriv.core.canaries import draw_canaries
from vflpriv.core.releases import Release
from vflpriv.core.units import Unit
from vflpriv.core.wire import SERVER, Message, device
from vflpriv.laws import Exact, Gaussian

RECORDS, BATCH, ROUNDS = 200, 20, 240


def release(noise=None, sensitivity=0.05):
    return Release(
        kind="answer",
        what="",
        noise=noise or Gaussian(1.0),
        sensitivity={Unit.LABEL: sensitivity},
        rounds=np.ones(ROUNDS, dtype=np.bool_),
        seen_by=frozenset({"device"}),
    )


def found(weight, *, seed=0, classes=2, releases=None, confounded=0.0, width=1):
    """Slopes where each label moves the first of so many numbers by its class times a weight."""
    generator = np.random.default_rng(seed)
    truth = torch.arange(RECORDS) % classes
    canaries = draw_canaries(truth, classes, canaries=100, seed=seed)
    labels = truth.clone()
    own = canaries.labels.gather(1, canaries.worlds.reshape(-1, 1))[:, 0]
    labels[list(canaries.records)] = own
    messages = []
    for t in range(ROUNDS):
        ids = torch.from_numpy(generator.permutation(RECORDS)[:BATCH])
        x = torch.from_numpy(generator.standard_normal((1, width)))
        x[0, 0] += weight * labels[ids].double().sum() + confounded * truth[ids].double().sum()
        messages.append(
            Message(round=t, sender=SERVER, receiver=device(0), kind="answer", tensors={"x": x}, records=ids)
        )
    return slopes(messages, canaries, labels.numpy(), [release()] if releases is None else releases)


@pytest.mark.parametrize("classes", [2, 3])
def test_a_sensitivity_that_is_ten_times_too_large_is_noticed(classes):
    """Margin: seeds 0 to 7 have p below 1e-13."""
    (slope,) = found(0.5, classes=classes, width=5)
    assert slope.declared == 0.05
    assert slope.declared < slope.least < slope.estimate
    assert slope.least < 0.5 * (classes - 1)
    assert slope.p_value < 1e-3


def test_labels_in_values_that_no_release_protects_are_noticed():
    (slope,) = found(0.5, releases=[])
    assert "depends on no label" in slope.sentence


@pytest.mark.parametrize("seed", range(10))
def test_what_is_declared_is_not_accused_nor_is_what_features_explain(seed):
    """Labels that are no canaries' follow from features: a number may move with those, and with no coin."""
    assert found(0.05, seed=seed) == []
    assert found(0.0, seed=seed, releases=[], confounded=1.0) == []


def test_values_that_leave_as_they_are_have_no_limit():
    assert found(5.0, releases=[release(noise=Exact(), sensitivity=float("inf"))]) == []
