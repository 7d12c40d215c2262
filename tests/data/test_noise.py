"""Data of some devices, and noisy devices: whose features have noise, how much, and in which records."""

from __future__ import annotations

import pytest
import torch

from vflpriv.config.loading import load_config
from vflpriv.core.data import VerticalData
from vflpriv.data.loading import load
from vflpriv.data.noise import with_noisy_devices
from vflpriv.errors import InputError
from vflpriv.run.systems import load_data, read_data

_CONFIG = {
    "data": {"name": "digits", "devices": 3, "noisy_devices": [1], "feature_noise": 2.0, "standardise": True},
    "engine": {"name": "split", "rounds": 1, "batch_size": 8},
}


@pytest.fixture(scope="module")
def clean() -> VerticalData:
    return load("digits", devices=3, validation=0.2)


def differences(noisy: VerticalData, clean: VerticalData) -> list[list[float]]:
    """The std of what was added to each device's training, test and validation records."""
    parts = ("blocks", "test_blocks", "validation_blocks")
    pairs = [zip(getattr(noisy, part), getattr(clean, part), strict=True) for part in parts]
    return [[float((a - b).std()) for a, b in pair] for pair in pairs]


def test_noise_of_the_given_std_is_added_to_these_devices_alone(clean: VerticalData) -> None:
    noisy = with_noisy_devices(clean, (1,), std=3.0, records="all", seed=0)
    for part in differences(noisy, clean):
        assert part == pytest.approx([0, 3.0, 0], abs=0.05)
    again = with_noisy_devices(clean, (1,), std=3.0, records="all", seed=0)
    assert torch.equal(again.blocks[1], noisy.blocks[1])
    other = with_noisy_devices(clean, (1,), std=3.0, records="all", seed=1)
    assert not torch.equal(other.blocks[1], noisy.blocks[1])
    count = len(noisy.test_labels)
    added = [(noisy.blocks[1] - clean.blocks[1])[:count], noisy.test_blocks[1] - clean.test_blocks[1]]
    assert abs(float(torch.corrcoef(torch.stack([a.flatten() for a in added]))[0, 1])) < 0.05


def test_noise_of_test_records_leaves_the_others(clean: VerticalData) -> None:
    noisy = with_noisy_devices(clean, (0, 2), std=1.0, records="test", seed=0)
    trained, tested, validated = differences(noisy, clean)
    assert (trained, validated) == ([0, 0, 0], [0, 0, 0])
    assert tested == pytest.approx([1, 0, 1], abs=0.05)


def test_a_configuration_adds_noise_to_standardised_features() -> None:
    data = load_data(load_config(_CONFIG))
    quiet = load_data(load_config(_CONFIG, {"data.noisy_devices": []}))
    assert [float((a - b).std()) for a, b in zip(data.blocks, quiet.blocks, strict=True)] == pytest.approx(
        [0, 2.0, 0], abs=0.05
    )


@pytest.mark.parametrize("device", [3, 30])
def test_a_device_that_is_not_there_is_named_before_anything_is_trained(device: int) -> None:
    config = load_config(_CONFIG, {"data.noisy_devices": [0, device]})
    for reader in (read_data, load_data):
        with pytest.raises(InputError, match=rf"^data.noisy_devices = {device}: expected devices 0 to 2$"):
            reader(config)


def test_kept_devices_are_numbered_anew_before_noise_is_added() -> None:
    whole = load_data(load_config(_CONFIG, {"data.noisy_devices": [], "data.standardise": False}))
    kept = load_data(
        load_config(_CONFIG, {"data.kept_devices": [2, 0], "data.noisy_devices": [0], "data.standardise": False})
    )
    assert [tuple(block.shape) for block in kept.test_blocks] == [
        tuple(block.shape) for block in (whole.test_blocks[2], whole.test_blocks[0])
    ]
    assert float((kept.blocks[0] - whole.blocks[2]).std()) == pytest.approx(2.0, abs=0.05)
    assert torch.equal(kept.blocks[1], whole.blocks[0])
