"""Scattering: what an image's features depend on."""

from __future__ import annotations

import math

import torch

from vflpriv.training.models.features.scattering import Scattering


def images(count: int = 6, height: int = 9, width: int = 12) -> torch.Tensor:
    return torch.rand(count, height, width, generator=torch.Generator().manual_seed(0))


def test_features_are_of_their_own_image_alone():
    scattering, batch = Scattering(9, 12, angles=4, grid=3), images()
    together = scattering(batch)
    assert together.shape == (6, scattering.size)
    changed = batch.clone()
    changed[1:] = 0.0
    torch.testing.assert_close(scattering(changed)[0], together[0])
    torch.testing.assert_close(scattering(batch[:1])[0], together[0])


def test_brightness_and_contrast_change_nothing():
    scattering, batch = Scattering(9, 12, angles=4, grid=3), images()
    torch.testing.assert_close(scattering(3 * batch + 2), scattering(batch), atol=1e-4, rtol=1e-4)


def test_every_group_of_channels_has_norm_one_and_an_empty_image_is_zeros():
    scattering = Scattering(8, 8, angles=4, grid=2)
    found = scattering(images(3, 8, 8))
    together, channels = found.chunk(2, dim=1)
    sizes = [count * scattering.cells for count in (1, 4, 4, 16)]
    for group in together.split(sizes, dim=1):
        torch.testing.assert_close(group.norm(dim=1), torch.full((3,), 0.5))
    for channel in channels.split(scattering.cells, dim=1):
        torch.testing.assert_close(channel.norm(dim=1), torch.full((3,), 0.2))
    assert not scattering(torch.zeros(1, 8, 8)).any()


def test_wavelets_answer_to_stripes_of_their_direction():
    """Stripes along x are seen by the wavelet of angle 0, and least by that of 90 degrees."""
    scattering = Scattering(16, 16, angles=4, grid=1)
    stripes = torch.cos(3 * math.pi / 4 * torch.arange(16.0)).expand(1, 16, 16)
    fine = scattering(stripes)[0, 1:5]
    assert fine.argmax() == 0
    assert fine.argmin() == 2
