"""Noise in whole steps is the same in C and in tensor operations, and as near to its law as budgets count."""

from __future__ import annotations

from collections.abc import Callable

import mpmath
import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from vflpriv.common import philox
from vflpriv.common.random import Randomness, SecretStream, Stream
from vflpriv.common.seeds import SecretKey
from vflpriv.laws.continuous import Standard, circle, logarithm, spread, stepped
from vflpriv.laws.grid import placed

NOT_BUILT = "vflpriv was installed where there was no C compiler; tensor operations draw its random numbers."
COMPILED = pytest.mark.skipif(not philox.compiled(), reason=NOT_BUILT)
CPU = torch.device("cpu")
ULP = 2.0**-52
SHAPES = [(1, 1), (1, 2), (3, 5), (70, 1), (2, 247), (1, 248), (2, 249), (1, 497), (3, 1000), (1, 4097)]


class Operations(TorchDispatchMode):
    """Counts the operations of tensors."""

    count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        self.count += 1
        return func(*args, **(kwargs or {}))


def streams(replicas: int) -> list[Stream | SecretStream]:
    keys = (None, SecretKey(bytes(range(32))))
    return [Randomness(seed=7, key=key).stream("noise", range(replicas), CPU) for key in keys]


@pytest.fixture
def by_tensors(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Tensor]:
    """Calls a function as where nothing was compiled."""

    def call(function: Callable[..., Tensor], *arguments: object) -> Tensor:
        with monkeypatch.context() as patch:
            patch.setattr(philox, "extension", None)
            return function(*arguments)

    return call


@COMPILED
@pytest.mark.parametrize(("replicas", "count"), SHAPES)
@pytest.mark.parametrize("law", list(Standard))
def test_c_and_tensor_operations_draw_the_same_bits(
    law: Standard, replicas: int, count: int, by_tensors: Callable[..., Tensor]
) -> None:
    for source in streams(replicas):
        # In steps of 2⁻⁶⁰ nothing is rounded but the draw itself.
        for in_one, width in ((2.0**8 * 1.3, 2), (2.0**30 / 3, 1 << 26), (2.0**48, 1 << 44), (2.0**60, 2)):
            arguments = law, source, count, in_one, width, 3, 1
            ours = stepped(*arguments)
            assert ours.dtype == torch.float64
            assert torch.equal(ours, by_tensors(stepped, *arguments))


@COMPILED
def test_bits_that_no_generator_gives_often_are_the_same_draws_too() -> None:
    """Ends of quarters, the nearest and the farthest uniform numbers, in all combinations."""
    turns = [0, 1, (1 << 63) - 1] + [(k << 60) + d for k in range(1, 8) for d in (-1, 0, 1)]
    sizes = [0, 1, 1 << 10, 1 << 52, (1 << 53) + 1, 1 << 62, (1 << 63) - 1]
    grid = torch.tensor([[c, f, t, 0, c] for c in sizes for f in sizes for t in turns], dtype=torch.int64)
    assert philox.native(grid)
    target = np.empty((len(grid), 2))
    philox.extension.noise(Standard.GAUSSIAN, 2.0**40, 1 << 30, len(grid), target, grid.numpy())
    expected = spread(*Standard.GAUSSIAN.unit(grid, 2), 2.0**40, 1 << 30)
    assert torch.equal(torch.from_numpy(target), expected)
    assert bool(expected.isfinite().all())
    assert float(expected.abs().max()) > 13


def test_logarithms_are_within_one_unit_in_the_last_place() -> None:
    generator = torch.Generator().manual_seed(0)
    spread_out = torch.rand(1500, generator=generator, dtype=torch.float64) * 2.0 ** -torch.arange(1500).remainder(126)
    near_one = 1 - torch.rand(500, generator=generator, dtype=torch.float64) * 2.0 ** -torch.arange(500).remainder(50)
    numbers = torch.cat([spread_out, near_one, torch.tensor([1.0, 2.0**-127, 0.5**0.5, 1 - 2.0**-53]).double()])
    with mpmath.workprec(200):
        for number, value in zip(numbers.tolist(), logarithm(numbers).tolist(), strict=True):
            exact = mpmath.log(mpmath.mpf(number))
            assert abs(value - exact) <= ULP * abs(exact)


def test_points_of_the_circle_are_within_a_unit_in_the_last_place_of_one() -> None:
    turns = torch.randint(1 << 62, (2000,), generator=torch.Generator().manual_seed(1)) * 2 + 1
    edges = [0, 1, (1 << 63) - 1] + [(k << 60) + d for k in range(1, 8) for d in (-1, 0, 1)]
    turns = torch.cat([turns, torch.tensor(edges)])
    with mpmath.workprec(200):
        for turn, cosine, sine in zip(turns.tolist(), *(part.tolist() for part in circle(turns)), strict=True):
            angle = mpmath.pi * (mpmath.mpf(turn) / 2**62 - 1)
            assert abs(cosine - mpmath.cos(angle)) <= ULP
            assert abs(sine - mpmath.sin(angle)) <= ULP


class Elsewhere(torch.Tensor):
    """A tensor that says that it is not on the CPU, where other operations are used."""

    is_cpu = False


def test_other_devices_compute_the_same_points_and_logarithms() -> None:
    """With their own sine, cosine and logarithm, which are as near as the CPU's to a few units in the last place."""
    turns = torch.randint(1 << 62, (2000,), generator=torch.Generator().manual_seed(2)) * 2 + 1
    for there, here in zip(circle(turns.as_subclass(Elsewhere)), circle(turns), strict=True):
        assert type(there) is Elsewhere
        assert (there.as_subclass(torch.Tensor) - here).abs().max() <= 8 * ULP
    numbers = (turns.double() * 2.0**-63).clamp(max=1 - 2.0**-53)
    there, here = logarithm(numbers.clone().as_subclass(Elsewhere)).as_subclass(torch.Tensor), logarithm(numbers)
    assert ((there - here).abs() <= 4 * ULP * here.abs()).all()


def test_normals_are_as_near_to_the_law_as_the_accountants_count() -> None:
    """What exact arithmetic makes of the same bits is within four units in the last place of the length r, and 2⁻⁵²/r.

    `accountants/_sampler.py` says what follows of it.
    """
    bits = streams(1)[0].bits(Standard.GAUSSIAN.size(2000), 5)
    bits[0, :200] >>= torch.arange(200).remainder(63)
    drawn, _ = Standard.GAUSSIAN.unit(bits, 2000)
    coarse, fine, turn = (part.tolist() for part in bits[0, :3000].unflatten(0, (3, 1000)))
    worst = 0.0
    with mpmath.workprec(300):
        for j in range(1000):
            uniform = (mpmath.mpf(coarse[j]) + (mpmath.mpf(fine[j]) + 0.5) / 2**63) / 2**63
            length, angle = mpmath.sqrt(-2 * mpmath.log(uniform)), mpmath.pi * (mpmath.mpf(turn[j]) / 2**62 - 1)
            for exact, value in zip((mpmath.cos(angle), mpmath.sin(angle)), drawn[0, j::1000].tolist(), strict=True):
                worst = max(worst, float(abs(value - length * exact) / (ULP * (4 * length + 1 / length))))
    assert 0.05 < worst <= 1


@COMPILED
@pytest.mark.parametrize("shape", [(1,), (4, 1), (2, 3, 5), (1, 1000)])
@pytest.mark.parametrize("in_one", [1.0, 2.0**20 * 1.7])
def test_values_are_placed_alike(shape: tuple[int, ...], in_one: float, by_tensors: Callable[..., Tensor]) -> None:
    generator = torch.Generator().manual_seed(3)
    values = torch.randn(shape, generator=generator) * 10.0 ** torch.randint(-9, 9, shape, generator=generator)
    draws = torch.randn(shape, generator=generator, dtype=torch.float64)
    ours = placed(values, draws, 2.0**-20, in_one)
    assert ours.dtype == torch.float32
    assert torch.equal(ours, by_tensors(placed, values, draws, 2.0**-20, in_one))


@COMPILED
@pytest.mark.parametrize("shape", [(1, 5, 3), (3, 40, 17), (2, 1, 33), (2, 16, 32), (7, 5)])
def test_values_that_lie_transposed_are_placed_alike(shape: tuple[int, ...], by_tensors: Callable[..., Tensor]) -> None:
    generator = torch.Generator().manual_seed(3)
    values = torch.randn((*shape[:-2], shape[-1], shape[-2]), generator=generator).transpose(-1, -2)
    draws = torch.randn(shape, generator=generator, dtype=torch.float64)
    ours, theirs = placed(values, draws, 2.0**-20), by_tensors(placed, values, draws, 2.0**-20)
    assert torch.equal(ours, theirs)
    assert ours.stride() == theirs.stride()


@COMPILED
def test_operations_that_are_followed_are_those_of_tensors() -> None:
    values, draws = torch.randn(1, 8), torch.randn(1, 8, dtype=torch.float64)
    with Operations() as operations:
        followed = placed(values, draws, 2.0**-20)
    assert operations.count > 4
    assert torch.equal(followed, placed(values, draws, 2.0**-20))


@COMPILED
def test_the_extension_refuses_rows_that_do_not_fit() -> None:
    c = philox.extension
    target, keys, bits = np.empty((2, 4)), np.zeros((2, 2), np.int64), np.zeros((2, 10), np.int64)
    c.noise(0, 8.0, 2, 2, target, keys, 1, 2, 3)
    c.noise(0, 8.0, 2, 2, target, bits)
    for wrong in (
        (0, 8.0, 2, 3, target, bits),
        (0, 8.0, 2, 0, target, bits),
        (0, 8.0, 2, -1, target, bits),
        (0, 8.0, 2, 2, target, bits[:, :9].copy()),
        (0, 8.0, 3, 2, target, bits),
        (0, 8.0, 0, 2, target, bits),
        (0, 8.0, 2, 1, target, keys, 1, 2, 3),
        (0, 8.0, 2, 2, target, keys, 1, 2, np.zeros(3, np.int64)),
        (1, 8.0, 2, 2, np.empty((2, 3)), bits),
    ):
        with pytest.raises(ValueError, match="Expected"):
            c.noise(*wrong)
    with pytest.raises(TypeError):
        c.noise(0, 8.0, 2, 2, target, keys, 1)
    with pytest.raises(ValueError, match="one length"):
        c.placed(np.zeros(3, np.float32), np.zeros(2), 1, 3, 1.0, 1.0, np.zeros(3, np.float32))
    for rows, columns in ((0, 3), (2, 2), (1, 4), (-1, -3), (2**62, 4)):
        with pytest.raises(ValueError, match="whole matrices"):
            c.placed(np.zeros(3, np.float32), np.zeros(3), rows, columns, 1.0, 1.0, np.zeros(3, np.float32))
