"""The pretended accelerator itself: its values are real, it raises where CUDA does, and counts what CUDA waits for."""

from __future__ import annotations

import pytest
import torch

from tests.devices import pretended
from tests.devices.pretended import PRETENDED, counted, without_float64
from vflpriv.common import philox
from vflpriv.common.devices import precise_device, to_host, widest_float


def there(*values: float) -> torch.Tensor:
    return torch.tensor(values, device=PRETENDED)


def test_values_are_those_of_the_cpu():
    torch.manual_seed(0)
    a, b = torch.randn(4, 3), torch.randn(3, 2)
    moved = a.to(PRETENDED) @ b.to(PRETENDED)
    assert moved.device == PRETENDED
    assert not moved.is_cpu
    assert torch.equal(moved.cpu(), a @ b)
    assert torch.arange(2, 5, device=PRETENDED).tolist() == [2, 3, 4]
    assert torch.equal(torch.eye(2, device=PRETENDED).cpu(), torch.eye(2))


def test_views_share_memory_and_steps_in_place_are_seen_through_them():
    table = torch.zeros(2, 3, device=PRETENDED)
    table[0].add_(1.0)
    table[:, 2] = 5.0
    assert table.tolist() == [[1.0, 1.0, 5.0], [0.0, 0.0, 5.0]]
    assert table[1].storage_offset() == 3
    assert table[1].untyped_storage().data_ptr() == table.untyped_storage().data_ptr()
    assert table[1].as_strided((2,), (2,)).tolist() == [0.0, 5.0]
    product = torch.empty(1, 2, 2, device=PRETENDED)
    torch.bmm(torch.ones(1, 2, 3, device=PRETENDED), torch.ones(1, 3, 2, device=PRETENDED), out=product)
    assert product.tolist() == [[[3.0, 3.0], [3.0, 3.0]]]


def test_a_parameter_can_be_made_a_view_of_a_vector():
    """As optimisers do that keep all parameters in one."""
    parameter, vector = torch.nn.Parameter(there(1.0, 2.0)), there(3.0, 4.0, 5.0)
    torch.nn.utils.vector_to_parameters(vector, [parameter])
    vector.mul_(2.0)
    assert parameter.tolist() == [6.0, 8.0]
    (parameter.sum() * 1.0).backward()
    assert parameter.grad is not None
    assert parameter.grad.tolist() == [1.0, 1.0]


def test_gradients_and_modules_work():
    rows, layer = torch.randn(5, 3), torch.nn.Linear(3, 2)
    layer(rows).square().sum().backward()
    expected = layer.weight.grad
    layer.zero_grad()
    moved = layer.to(PRETENDED)
    moved(rows.to(PRETENDED)).square().sum().backward()
    assert expected is not None
    assert moved.weight.grad is not None
    assert torch.equal(moved.weight.grad.cpu(), expected)


def test_replicas_under_vmap_work():
    rows = torch.randn(4, 3)
    doubled = torch.func.vmap(lambda row: (2 * row).sum())(rows.to(PRETENDED))
    assert torch.equal(doubled.cpu(), (2 * rows).sum(1))


@pytest.mark.parametrize("mix", [lambda a, b: a + b, lambda a, b: torch.cat((a, b)), lambda a, b: b.index_select(0, a)])
def test_mixing_raises_as_on_cuda(mix):
    here, elsewhere = torch.ones(2, dtype=torch.int64), torch.ones(2, dtype=torch.int64, device=PRETENDED)
    for pair in ((here, elsewhere), (elsewhere, here)):
        with pytest.raises(RuntimeError, match="the same device"):
            mix(*pair)


def test_a_single_number_of_the_cpu_may_be_mixed_in():
    assert (there(1.0, 2.0) * torch.tensor(3.0)).tolist() == [3.0, 6.0]


def test_numpy_needs_a_copy_first():
    with pytest.raises(RuntimeError, match="numpy"):
        there(1.0).numpy()


def test_launches_are_counted_and_views_are_not():
    a = there(1.0, 2.0, 3.0, 4.0)
    with counted() as counts:
        a.reshape(2, 2).transpose(0, 1)[0].unsqueeze(0)
        assert counts.launches == 0
        (a * 2).add_(1)
    assert (counts.launches, counts.uploads, counts.reads.total()) == (2, 0, 0)


@pytest.mark.parametrize(
    ("upload", "expected"),
    [
        (lambda a: torch.tensor([1.0, 2.0], device=PRETENDED), 1),
        (lambda a: torch.as_tensor(3, device=PRETENDED), 1),
        (lambda a: torch.zeros(3).to(PRETENDED), 1),
        (lambda a: a[[0, 2]], 1),
        (lambda a: a[torch.tensor([0, 2])], 1),
        (lambda a: torch.full((3,), 2.0, device=PRETENDED), 0),
        (lambda a: torch.arange(3, device=PRETENDED), 0),
    ],
)
def test_copies_to_the_device_are_counted(upload, expected):
    a = there(1.0, 2.0, 3.0)
    with counted() as counts:
        upload(a)
    assert counts.uploads == expected


@pytest.mark.parametrize(
    ("read", "expected"),
    [
        (lambda a: a.sum().item(), 1),
        (lambda a: float(a[0]), 1),
        (lambda a: bool((a > 0).all()), 1),
        (lambda a: a.tolist(), 1),
        (lambda a: a.cpu(), 1),
        (lambda a: torch.zeros(3).copy_(a), 1),
        (lambda a: a.nonzero(), 1),
        (lambda a: a[a > 1], 1),
        (lambda a: torch.equal(a, a), 1),
        (lambda a: a.unique(), 1),
        (lambda a: a.masked_fill(a > 1, 0.0), 0),
        (lambda a: a.index_select(0, a.argsort()), 0),
        (lambda a: a.to(torch.int64), 0),
    ],
)
def test_what_the_host_waits_for_is_counted(read, expected):
    a = there(1.0, 2.0, 3.0)
    with counted() as counts:
        read(a)
    assert counts.reads.total() == expected


def test_without_float64_it_refuses_float64_and_nothing_else():
    with without_float64():
        with pytest.raises(TypeError, match="float64"):
            there(1.0).double()
        with pytest.raises(TypeError, match="float64"):
            torch.zeros(2, dtype=torch.float64, device=PRETENDED)
        assert there(1.0).half().dtype == torch.float16
        assert widest_float(PRETENDED) == torch.float32
        assert precise_device(PRETENDED) == torch.device("cpu")
    assert precise_device(PRETENDED) == PRETENDED
    assert widest_float(PRETENDED) == torch.float64


def test_all_tensors_of_a_type_reach_the_host_in_one_copy():
    here = torch.ones(2)
    held = [
        there(1.0, 2.0),
        there(3.0).reshape(1, 1),
        torch.arange(2, device=PRETENDED),
        here,
        torch.zeros((), device=PRETENDED),
    ]
    with counted() as counts:
        moved = to_host([*held, held[0]])
    assert counts.reads.total() == 2
    assert [t.tolist() for t in moved] == [[1.0, 2.0], [[3.0]], [0, 1], [1.0, 1.0], 0.0, [1.0, 2.0]]
    assert moved[3] is here
    assert moved[0] is moved[-1]
    assert all(t.is_cpu for t in moved)
    assert to_host([]) == []


@pytest.mark.parametrize("path", [(1, 2), (torch.arange(3), 2)], ids=["one", "several"])
def test_draws_are_those_of_the_cpu_and_every_one_counts_as_the_first(path, monkeypatch):
    keys, counts = torch.arange(4).reshape(2, 2), []
    moved = [number.to(PRETENDED) if isinstance(number, torch.Tensor) else number for number in path]
    elsewhere, expected = keys.to(PRETENDED), philox.normals(keys, path, 3)
    monkeypatch.setattr(pretended, "_drawn", {})
    for _ in range(3):
        with counted() as found:
            drawn = philox.normals(elsewhere, moved, 3)
        assert drawn.device == PRETENDED
        torch.testing.assert_close(drawn.cpu(), expected)
        counts.append(found)
    monkeypatch.delitem(philox._WAYS, PRETENDED.type)
    with counted() as by_operations:
        philox.normals(elsewhere, moved, 3)
    assert counts == [by_operations] * 3
    assert by_operations.launches > 100
