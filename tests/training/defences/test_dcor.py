"""Distance correlation: its value, and that a step along the penalty lowers it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.spatial.distance import cdist

from vflpriv.common.random import Stream
from vflpriv.training.defence import Exchange
from vflpriv.training.defences.dcor import DistanceCorrelation, distance_correlation, distances

ROWS = torch.randn(2, 12, 3, generator=torch.Generator().manual_seed(0))
LABELS = (ROWS[..., 0] > 0).long()


def apart(labels: torch.Tensor) -> torch.Tensor:
    return (labels.unsqueeze(2) != labels.unsqueeze(1)).float()


def by_definition(rows: np.ndarray, labels: np.ndarray) -> float:
    def centred(d: np.ndarray) -> np.ndarray:
        return d - d.mean(0) - d.mean(1)[:, None] + d.mean()

    a, b = centred(cdist(rows, rows)), centred(cdist(labels[:, None], labels[:, None]))
    return float((a * b).mean() / np.sqrt((a * a).mean() * (b * b).mean()))


def test_it_is_the_distance_correlation():
    found = distance_correlation(distances(ROWS.double()), apart(LABELS).double())
    for r in range(2):
        assert float(found[r]) == pytest.approx(by_definition(ROWS[r].numpy(), LABELS[r].numpy()), rel=1e-6)
    assert float(distance_correlation(apart(LABELS), apart(LABELS))[0]) == pytest.approx(1.0, rel=1e-5)


def test_devices_that_descend_it_tell_less():
    guard = DistanceCorrelation(weight=1.0).guard(Stream.of(0, "defence", [0, 1], torch.device("cpu")))
    rows = ROWS.clone()
    before = distance_correlation(distances(rows), apart(LABELS))
    for _ in range(50):
        exchange = Exchange(round=0, party=1, labels=LABELS, received={0: 2 * rows, 1: rows})
        rows = rows - 0.5 * guard.protect(torch.zeros_like(rows), exchange).values
    assert (distance_correlation(distances(rows), apart(LABELS)) < 0.5 * before).all()


def test_gradients_come_on_top():
    guard = DistanceCorrelation().guard(Stream.of(0, "defence", [0, 1], torch.device("cpu")))
    exchange = Exchange(round=0, party=0, labels=LABELS, received={0: ROWS})
    alone, added = (guard.protect(g, exchange).values for g in (torch.zeros_like(ROWS), torch.ones_like(ROWS)))
    torch.testing.assert_close(added, alone + 1)
