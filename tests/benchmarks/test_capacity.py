"""No guess from noised scalars gains more than their capacity allows, and the ceiling falls with the noise."""

from __future__ import annotations

import importlib.util
import math

import pytest
import torch

from tests.tree import ROOT
from vflpriv.errors import InputError

# Benchmarks are scripts, not a package.
_SPEC = importlib.util.spec_from_file_location("capacity", ROOT / "benchmarks" / "_capacity.py")
assert _SPEC is not None
assert _SPEC.loader is not None
capacity = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(capacity)
gain_ceiling = capacity.gain_ceiling


def one_label_a_scalar(noise_std: float, rounds: int, coins: torch.Generator) -> tuple[torch.Tensor, float]:
    """Scalars ±1 plus noise, and what the best guess (their sign) gains over a coin: Φ(1/σ) - ½."""
    signs = 2.0 * torch.randint(2, (rounds,), generator=coins) - 1
    gain = math.erf(1 / noise_std / math.sqrt(2)) / 2
    return signs + noise_std * torch.randn(rounds, generator=coins), gain


@pytest.mark.parametrize("noise_std", [0.3, 1.0, 3.0, 10.0])
def test_the_best_guess_stays_below_the_ceiling(noise_std):
    coins = torch.Generator().manual_seed(0)
    trials = [one_label_a_scalar(noise_std, 400, coins) for _ in range(200)]
    below = [gain <= gain_ceiling(seen, noise_std, len(seen), confidence=0.95) for seen, gain in trials]
    assert sum(below) >= 0.95 * len(below)


def test_the_ceiling_is_near_what_is_reached_and_falls_with_noise_and_with_people():
    coins = torch.Generator().manual_seed(1)
    found = []
    for noise_std in (1.0, 3.0, 10.0):
        seen, gain = one_label_a_scalar(noise_std, 100_000, coins)
        found.append(gain_ceiling(seen, noise_std, len(seen), confidence=0.95))
        assert found[-1] < 2 * gain + 0.02
    assert found == sorted(found, reverse=True)
    assert gain_ceiling(seen, 10.0, 100 * len(seen), confidence=0.95) == pytest.approx(found[-1] / 10)


def test_without_noise_there_is_no_ceiling():
    with pytest.raises(InputError, match="noise_std"):
        gain_ceiling(torch.ones(3), 0.0, 3, confidence=0.95)
