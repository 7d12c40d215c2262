"""Memory of passes: what is joined without a copy, what is reused, and how weights are stored."""

from __future__ import annotations

import pytest
import torch

from vflpriv.training.models.layers import Room, empty_rows, join_rows, outputs_first


def rows(models, records=5, width=3):
    memory = empty_rows(torch.empty(0), models, records, width)
    return memory.copy_(torch.randn(memory.shape))


@pytest.mark.parametrize("replicas", [1, 2])
@pytest.mark.parametrize("dim", [0, 2])
def test_neighbours_are_joined_as_they_would_be_by_cat(replicas, dim):
    """Views of one tensor, in order, in another order, with one missing, and from memory of their own."""
    whole = rows(4 * replicas)
    parts = list(whole.split(replicas))
    for chosen in (parts, parts[::-1], [parts[0], *parts[2:]], parts[::2], [part.clone() for part in parts], parts[:1]):
        assert torch.equal(join_rows(chosen, dim), torch.cat(chosen, dim))
    assert join_rows(parts, 0).data_ptr() == whole.data_ptr()
    assert (join_rows(parts, 2).data_ptr() == whole.data_ptr()) == (replicas == 1)
    assert join_rows(parts[::-1], 0).data_ptr() != whole.data_ptr()


@pytest.mark.parametrize("replicas", [1, 2])
def test_columns_of_one_tensor_are_joined_as_they_would_be_by_cat(replicas):
    whole = rows(replicas, width=6)
    parts = list(whole.split(2, dim=-1))
    for dim in (0, 1, 2):
        for chosen in (parts, parts[::-1]):
            assert torch.equal(join_rows(chosen, dim), torch.cat(chosen, dim))
    assert join_rows(parts, 2).data_ptr() == whole.data_ptr()


def test_tensors_of_other_shapes_orders_and_lengths_are_joined_too():
    mixed = [torch.randn(2, 5, 3), rows(2)]
    assert torch.equal(join_rows(mixed, 0), torch.cat(mixed))
    assert torch.equal(join_rows(mixed[::-1], 0), torch.cat(mixed[::-1]))
    assert torch.equal(
        join_rows([torch.ones(2, 3), torch.zeros(4, 3)], 0), torch.cat([torch.ones(2, 3), torch.zeros(4, 3)])
    )
    empty = [rows(2, records=0), rows(2, records=0)]
    assert join_rows(empty, 2).shape == (2, 0, 6)


def test_borrowed_memory_is_nobody_elses_until_it_is_given_back():
    room, like = Room(), torch.empty(0)
    first, second = room.borrow(like, 2, 3, 4), room.borrow(like, 2, 3, 4)
    assert first.data_ptr() != second.data_ptr()
    room.give_back([first])
    assert room.borrow(like, 2, 4, 3).data_ptr() != first.data_ptr()
    assert room.borrow(like, 2, 3, 4).data_ptr() == first.data_ptr()


def test_a_stored_weight_is_the_same_weight():
    weight = torch.randn(2, 5, 3)
    assert torch.equal(outputs_first(weight), weight)
    assert outputs_first(weight).stride() == (15, 1, 5)
