"""Noise on a grid at its edges: which memory sums lie in, single bits of draws, and steps of a deviation."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from vflpriv.common import philox
from vflpriv.common.random import listening
from vflpriv.laws import DiscreteGaussian, DiscreteLaplace
from vflpriv.laws.grid import placed

BASE = torch.arange(24, dtype=torch.float32).reshape(2, 3, 4) - 7.3
LAYOUTS = {
    "vector": BASE.flatten(),
    "matrix": BASE[0],
    "replicas": BASE,
    "turned matrix": BASE[0].t(),
    "turned replicas": BASE.transpose(-1, -2),
    "every other": BASE.flatten()[::2],
    "columns": BASE[0][:, ::2],
}
WITHOUT_GAPS = ("vector", "matrix", "replicas", "turned matrix", "turned replicas")


@pytest.mark.parametrize("layout", LAYOUTS)
def test_sums_lie_in_memory_as_the_values_do(layout: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The C extension adds what lies in memory without gaps, in either order of the last two axes, and nothing else."""
    values = LAYOUTS[layout]
    draws = torch.arange(values.numel(), dtype=torch.float64).reshape(values.shape) * 0.75 - 3
    calls: list[int] = []
    if philox.compiled():
        own = philox.extension.placed
        spy = SimpleNamespace(placed=lambda *arguments: (calls.append(1), own(*arguments)))
        monkeypatch.setattr(philox, "extension", spy)
    sums = placed(values, draws, 0.5, 4.0)
    expected = 0.5 * ((values.double() / 0.5).round() + (draws * 4).round())
    assert torch.equal(sums.double(), expected)
    assert sums.dtype == torch.float32
    assert len(calls) == (philox.compiled() and layout in WITHOUT_GAPS)
    if layout in WITHOUT_GAPS:
        assert sums.stride() == values.stride()


def test_values_of_another_shape_and_those_with_a_gradient_are_added_by_torch() -> None:
    draws = torch.tensor([[1.0, -2.0, 3.0, 0.0]], dtype=torch.float64)
    expected = (BASE[0].double() / 0.5).round() * 0.5 + 0.5 * draws
    assert torch.equal(placed(BASE[0], draws, 0.5).double(), expected)
    followed = placed(BASE[0].clone().requires_grad_(), draws.expand(3, 4).contiguous(), 0.5)
    assert followed.requires_grad
    assert torch.equal(followed.detach().double(), expected)


def test_what_follows_operations_sees_the_sum() -> None:
    from torch.utils._python_dispatch import TorchDispatchMode

    seen: list[str] = []

    class Follows(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    draws = torch.ones(3, 4, dtype=torch.float64)
    with Follows():
        placed(BASE[0], draws, 0.5)
    assert any("round" in name for name in seen)


class _Bits:
    """Bits that are given, in place of a stream's."""

    secret = True

    def __init__(self, sizes: list[int], signs: list[int]) -> None:
        self.given = sizes + signs

    def bits(self, count: int, *path: int) -> torch.Tensor:
        assert count == len(self.given)
        return torch.tensor([self.given])


def test_a_draw_is_the_place_of_its_first_bits_with_the_sign_of_the_last_of_the_others() -> None:
    """The uniform number of the bits b is (b + ½) / 2⁶³: of the rarest noise, at b = 0, 2⁻⁶⁴."""
    for scale in (2.0, 10.0, 37.0):  # of the large ones there is a size for every factor of two
        law = DiscreteLaplace(scale)
        beyond = 2 * np.cumsum(law.probabilities[::-1])[::-1]  # P[|noise| >= j] for j > 0
        places = [0, 1, 2**40, 2**62, 2**63 - 1]
        sizes = [int(np.sum(beyond[1:] >= (place + 0.5) * 2.0**-63)) for place in places]
        steps = law.draw(_Bits(places, [1, 2, 3, 0, 2**62 + 1]), 5)  # type: ignore[arg-type]
        assert steps.tolist() == [[sizes[0], -sizes[1], sizes[2], -sizes[3], sizes[4]]]
        assert sizes[0] > sizes[1] > sizes[2] > sizes[3] > sizes[4] == 0


def test_a_draw_is_announced_in_steps_of_one() -> None:
    heard: list[Any] = []
    law = DiscreteGaussian(3.0)
    with listening(heard.append):
        law.draw(_Bits([5], [1]), 1, 4)  # type: ignore[arg-type]
    assert [(drawn.step, drawn.noise) for drawn in heard] == [(1.0, law)]


@pytest.mark.parametrize("kind", [DiscreteGaussian, DiscreteLaplace])
@pytest.mark.parametrize("std", [3.0, 0.02, 8.0])
def test_a_deviation_has_from_4096_to_8192_steps(kind: Any, std: float) -> None:
    law = kind.of_deviation(std)
    assert law.deviation == pytest.approx(std, rel=1e-9)
    assert 4096 <= std / law.step < 8192
    assert math.frexp(law.step)[0] == 0.5


def test_values_are_on_the_grid_up_to_a_thousandth_of_a_step() -> None:
    law, random = DiscreteGaussian(3.0), np.random.default_rng(0)
    scores = law.scores(np.array([1.0009, 1.0015, -2.0015]), np.zeros(3), random)
    assert (scores == 40.0).tolist() == [False, True, True]
    assert law.bounds_size
    assert law.grid == 1.0
