"""The decoder and the Gaussian models that attacks fit to known records."""

from __future__ import annotations

import pytest
import torch

from vflpriv.attacks._estimators import conditional_gaussian, decode, gaussian


def test_a_decoder_finds_a_curve_and_admits_when_there_is_none():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(300, 2, generator=generator)
    y = torch.stack((x[:, 0] ** 2, x[:, 0] - x[:, 1]), dim=1)
    left = decode(x[:200], y[:200], x[200:], bounded=False) - y[200:]
    assert float(left.square().mean() / y.var()) < 0.02
    bounded = decode(x[:200], y[:200], 100 * x[200:])
    assert bool((bounded.amax(0) <= y[:200].amax(0)).all())
    noise = torch.randn(300, 2, generator=generator)
    assert float(decode(x[:200], noise[:200], x[200:]).square().mean()) < 0.1


def test_gaussians_of_known_records():
    generator = torch.Generator().manual_seed(0)
    given = torch.randn(5000, 1, generator=generator).double()
    block = 2 * given + 0.5 * torch.randn(5000, 1, generator=generator).double() + 1
    mean, root = gaussian(block)
    assert float(mean) == pytest.approx(1, abs=0.1)
    assert float(root.square()) == pytest.approx(4.25, rel=0.1)
    means, left = conditional_gaussian(block, given, torch.tensor([[1.0]]))
    assert float(means) == pytest.approx(3, abs=0.1)
    assert float(left.square()) == pytest.approx(0.25, rel=0.1)
