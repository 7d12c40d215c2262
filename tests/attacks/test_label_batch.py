"""Inversion of a batch's gradients by embeddings, which have no entry per class."""

from __future__ import annotations

import pytest

from tests.support import make_system
from vflpriv.attacks.label_batch import LabelBatch
from vflpriv.data import loading as datasets

TRAINING = {"rounds": 23, "batch_size": 64, "embedding": 16, "device_rate": 0.1, "server_rate": 0.1}


@pytest.mark.parametrize("hidden", [(), (32,)])
def test_labels_come_out_of_the_gradients_of_embeddings(hidden, watch, rate):
    data = datasets.load("digits", devices=4)
    view = watch(make_system("split-concat", data=data, top_hidden=hidden, **TRAINING), "device(0)")
    assert rate(LabelBatch(), view, data, few=4) > 0.6


def test_label_noise_is_not_seen_through(watch, rate):
    data = datasets.load("digits", devices=4)
    noised = {"label_protection": "rr", "label_noise": 1.0}
    system = make_system("split-concat", data=data, top_hidden=(), **TRAINING, **noised)
    assert rate(LabelBatch(), watch(system, "devices(all)"), data, few=4) < 0.35
