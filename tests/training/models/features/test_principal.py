"""Coordinates along principal axes: centred, half whitened, of size one, and every replica has its own."""

from __future__ import annotations

import pytest
import torch

from vflpriv.training.models.features.principal import fitted, in_coordinates


def seen(given: torch.Tensor, components: int) -> torch.Tensor:
    return in_coordinates(given, fitted(given, components), components)


def rows(number: int, width: int = 6, seed: int = 0) -> torch.Tensor:
    normals = torch.randn(1, number, width, generator=torch.Generator().manual_seed(seed))
    return normals * torch.tensor([8.0, 4.0, 2.0, 1.0, 0.5, 0.25])[:width] + 3.0


@pytest.mark.parametrize("number", [4, 400])
def test_variances_are_brought_half_way_together(number: int) -> None:
    given = rows(number)
    found = seen(given, 3)
    assert found.shape == (1, number, 3)
    torch.testing.assert_close(found.mean(1), torch.zeros(1, 3), atol=1e-4, rtol=0)
    assert float(found.square().mean()) == pytest.approx(1.0, rel=1e-4)
    kept = torch.linalg.eigvalsh(torch.cov(given[0].T, correction=0))[-3:]
    spread = found[0].square().mean(0)
    torch.testing.assert_close(spread / spread[-1], (kept / kept[-1]).sqrt(), rtol=1e-2, atol=1e-3)


def test_without_components_rows_are_centred_and_scaled_alone() -> None:
    given = rows(50)
    found, moved = seen(given, 0), given - given.mean(1, keepdim=True)
    torch.testing.assert_close(found, moved / moved.square().mean().sqrt())


def test_replicas_have_coordinates_of_their_own() -> None:
    both = torch.cat((rows(50), rows(50, seed=1)))
    found = seen(both, 2)
    for replica in (0, 1):
        own = both[replica : replica + 1]
        torch.testing.assert_close(found[replica : replica + 1], seen(own, 2))
