"""One variant of the attack matrix is a task of its own: it can be sent away, and no other variant changes it."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest

from tests.rendered import markdown_of
from vflpriv.attacks.label.trained.batch import LabelBatch
from vflpriv.config.loading import load_config
from vflpriv.core.systems import System
from vflpriv.run.attack import AttackPlan, attack_config, attack_variant, variants_of
from vflpriv.run.systems import load_data

SMALL = {
    "data": {"name": "digits", "devices": 4, "keep_shape": True, "train": 200},
    "attack": {
        "attacks": ["label_direct", "label_batch"],
        "seeds": 2,
        "views": ["device(0)", "eavesdropper"],
        "defences": {"noise": {"protection": "embedding", "noise_std": 1.0}},
        "features": {"known_records": 40, "attacks": ["feature_inversion", "feature_esa", "feature_membership"]},
    },
    "system": [
        {"key": "split", "engine": {"name": "split", "rounds": 8, "batch_size": 25}},
        {"key": "sum", "engine": {"name": "split", "aggregation": "sum", "rounds": 8, "batch_size": 25}},
    ],
}


@pytest.fixture(scope="module")
def matrix():
    """The plan of a small configuration, its variants, and the report of all of them."""
    config = load_config(SMALL)
    data = load_data(config)
    variants = [v for place in range(2) for v in variants_of(config, place, data)]
    return AttackPlan.of(config, data), variants, attack_config(config, only=(), quiet=True)


def test_a_variant_by_itself_in_any_order_gives_what_the_matrix_has(matrix):
    plan, variants, report = matrix
    for row, system in reversed(variants):
        results = attack_variant(row, system, plan)
        here = (row.system, row.defence)
        assert results.cells == tuple(c for c in report.cells if (c.system, c.defence) == here)
        assert results.features == tuple(c for c in report.features if (c.system, c.defence) == here)
        assert [results.accuracy] == [t.accuracy for t in report.trained if (t.system, t.defence) == here]


def test_another_process_gives_the_same(matrix):
    plan, variants, _ = matrix
    row, system = variants[-1]
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        elsewhere = pool.submit(attack_variant, row, system, plan)
        assert elsewhere.result() == attack_variant(row, system, plan)


def test_attacks_on_labels_and_features_read_one_training(matrix, monkeypatch):
    plan, variants, _ = matrix
    trained = []
    train = System.train
    monkeypatch.setattr(System, "train", lambda s, r, **k: trained.append(s.data.records) or train(s, r, **k))
    attack_variant(*variants[0], plan)
    # The second one is of the membership attack, on one record of each pair and all others.
    assert len(trained) == 2
    assert trained[1] < trained[0]


def test_a_report_says_how_many_records_were_drawn(monkeypatch):
    monkeypatch.setattr(LabelBatch, "most", 80)
    config = load_config(SMALL, {"attack.features": None, "attack.defences": {}})
    report = attack_config(config, only=("split",), quiet=True)
    cell = next(c for c in report.cells if c.attack == "label_batch")
    assert (cell.guesses, cell.population) == (40, 160)
    note = "random samples of the records were attacked by label_batch (40 of 160 records)"
    assert report.sample_note == note
    assert "(40 of 160 records)." in markdown_of(report)
    assert all(c.population is None for c in report.cells if c.attack == "label_direct")
