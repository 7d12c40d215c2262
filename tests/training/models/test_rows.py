"""Rows in factors are the rows that they stand for."""

from __future__ import annotations

import pytest
import torch

from vflpriv.training.mechanisms.base import OuterMean
from vflpriv.training.models.rows import CentredRows

REPLICAS, RECORDS, WIDTH, CLASSES = 3, 20, 6, 4


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def written_down(features: torch.Tensor, centre: torch.Tensor) -> torch.Tensor:
    moved = features - centre.unsqueeze(1)
    moved = moved / moved.norm(dim=2, keepdim=True)
    return torch.cat((torch.ones_like(moved[..., :1]), moved), dim=2) * 0.5**0.5


@pytest.mark.parametrize("replicas", [1, REPLICAS])
def test_products_and_norms_are_those_of_rows_written_down(replicas):
    features, centre = drawn(replicas, RECORDS, WIDTH), 0.3 * drawn(REPLICAS, WIDTH, seed=1)
    rows, expected = CentredRows.of(features, centre), written_down(features, centre)
    weight, slopes = drawn(REPLICAS, 1 + WIDTH, CLASSES, seed=2), drawn(REPLICAS, RECORDS, CLASSES, seed=3)
    torch.testing.assert_close(rows.times(weight), expected @ weight)
    torch.testing.assert_close(rows.outer(slopes), (expected.transpose(1, 2) @ slopes).flatten(1))
    torch.testing.assert_close(rows.lengths, torch.ones(REPLICAS, RECORDS, 1, dtype=torch.float64))
    torch.testing.assert_close(rows.first().outer(slopes[:1]), rows.outer(slopes)[:1])


@pytest.mark.parametrize("replicas", [1, REPLICAS])
def test_the_clipped_mean_of_rows_in_factors_is_that_of_rows_written_down(replicas):
    features, centre = drawn(replicas, RECORDS, WIDTH), 0.3 * drawn(REPLICAS, WIDTH, seed=1)
    slopes = drawn(REPLICAS, RECORDS, CLASSES, seed=3)
    mechanism = OuterMean(noise_std=1.0, clip=1.5, batch_size=RECORDS, slopes=CLASSES)
    norms = slopes.norm(dim=2)
    assert (norms > 1.5).any()
    assert (norms < 1.5).any()
    values = torch.cat((written_down(features, centre), slopes), dim=2)
    torch.testing.assert_close(mechanism.of_rows(CentredRows.of(features, centre), slopes), mechanism.noiseless(values))


def test_no_row_is_longer_than_one_even_at_the_centre():
    centre = drawn(1, WIDTH).float()
    features = torch.stack((centre, centre + 1e-5, centre + 1e-2, torch.zeros_like(centre)), dim=1)
    rows = CentredRows.of(features, centre)
    alone = torch.eye(4).unsqueeze(2)
    norms = torch.stack([rows.outer(one.unsqueeze(0))[0].norm() for one in alone])
    torch.testing.assert_close(norms, rows.lengths[0, :, 0], rtol=1e-3, atol=1e-3)
    assert rows.lengths.max() <= 1
    assert rows.lengths[0, 0, 0] == pytest.approx(0.5**0.5)
