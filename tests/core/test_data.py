"""Vertical data: replicas see their own canaries, and the data set is never copied for them."""

from __future__ import annotations

from dataclasses import replace

import cloudpickle
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from vflpriv.core.canaries import Canary, CanaryKind
from vflpriv.core.data import VerticalData
from vflpriv.errors import InputError


def some_data(records: int = 6) -> VerticalData:
    base = torch.arange(records * 5, dtype=torch.float32).reshape(records, 5)
    return VerticalData(
        name="some",
        classes=3,
        blocks=(base[:, :2].contiguous(), base[:, 2:].contiguous()),
        labels=torch.arange(records) % 3,
        test_blocks=(torch.zeros(2, 2), torch.zeros(2, 3)),
        test_labels=torch.tensor([0, 1]),
    )


def test_without_overrides_replicas_share_everything() -> None:
    data, records = some_data(), torch.tensor([4, 0, 4])
    assert torch.equal(data.features(1, records), data.blocks[1][records])
    assert data.labels_of(records).tolist() == [1, 0, 1]
    assert (data.records, data.devices) == (6, 2)


def test_some_classes_count_as_one_of_two() -> None:
    data = some_data()
    halves = data.two_classes([2, 0, 2])
    assert (halves.classes, halves.labels.tolist(), halves.test_labels.tolist()) == (2, [1, 0, 1, 1, 0, 1], [1, 0])
    assert halves.labels.dtype == data.labels.dtype
    assert halves.blocks is data.blocks
    for positive in ([], [0, 1, 2], [3], [-1]):
        with pytest.raises(InputError, match=r"^positive_classes = .*: expected some of the classes 0 to 2, not all$"):
            data.two_classes(positive)


def test_validation_records_follow_what_is_done_to_the_others() -> None:
    blocks, labels = (torch.ones(3, 2), torch.ones(3, 3)), torch.tensor([2, 1, 0])
    data = replace(some_data(), validation_blocks=blocks, validation_labels=labels)
    assert (data.records, data.validation_records, data.facts["validation"]) == (6, 3, 3)
    assert data.two_classes([2]).held_out("validation")[1].tolist() == [1, 0, 0]
    assert data.standardised().validation_blocks[1].unique().numel() == 1
    assert not torch.equal(data.standardised().validation_blocks[1], blocks[1])
    assert data.to(torch.device("meta")).held_out("validation")[0][0].is_meta
    with pytest.raises(InputError, match=r"^data.validation_blocks\[0\] = 3: expected 2 records$"):
        replace(data, validation_labels=labels[:2])
    with pytest.raises(InputError, match=r"^data.labels = 3: expected 0 to 2$"):
        replace(data, validation_labels=labels + 1).checked()


def test_without_validation_records_none_can_be_evaluated_on() -> None:
    assert "validation" not in some_data().facts
    with pytest.raises(InputError, match=r"^data.validation = None: expected a share or number of records"):
        some_data().held_out("validation")


def test_replicas_see_their_own_labels() -> None:
    data = some_data().override([4, 1], labels=torch.tensor([[2, 0], [0, 2], [1, 1]]))
    seen = data.labels_of(torch.tensor([1, 3, 4, 1]))
    assert seen.tolist() == [[0, 0, 2, 0], [2, 0, 0, 2], [1, 0, 1, 1]]
    assert torch.equal(data.features(0, torch.tensor([1, 4])), some_data().blocks[0][[1, 4]])


def test_replicas_see_their_own_blocks() -> None:
    values = torch.tensor([[[-1.0, -2.0, -3.0]], [[-4.0, -5.0, -6.0]]])
    data = some_data().override([2], blocks={1: values})
    seen = data.features(1, torch.tensor([0, 2]))
    assert seen.shape == (2, 2, 3)
    for replica in range(2):
        assert torch.equal(seen[replica, 0], data.blocks[1][0])
        assert torch.equal(seen[replica, 1], values[replica, 0])
    assert data.features(0, torch.tensor([0, 2])).shape == (2, 2)  # the other device's block has no replica axis
    assert data.labels_of(torch.tensor([0, 2])).shape == (2,)


def test_blocks_that_are_images_can_be_overridden() -> None:
    images = torch.arange(2 * 3 * 4, dtype=torch.float32).reshape(2, 3, 4)
    data = VerticalData(
        name="images",
        classes=2,
        blocks=(images,),
        labels=torch.tensor([0, 1]),
        test_blocks=(),
        test_labels=torch.zeros(0),
    ).override([1], blocks={0: torch.full((5, 1, 3, 4), -1.0)})
    seen = data.features(0, torch.tensor([1, 0]))
    assert seen.shape == (5, 2, 3, 4)
    assert bool((seen[:, 0] == -1).all())
    assert torch.equal(seen[3, 1], images[0])


def test_token_ids_stay_whole_numbers() -> None:
    ids = torch.tensor([[5, 7, 0], [9, 0, 0]])
    data = VerticalData(
        name="text",
        classes=2,
        blocks=(ids,),
        labels=torch.tensor([0, 1]),
        test_blocks=(ids,),
        test_labels=torch.tensor([0, 1]),
    ).checked()
    assert data.features(0, torch.tensor([1])).dtype == torch.int64
    seen = data.override([1], blocks={0: torch.tensor([[[3, 3, 3]], [[4, 4, 4]]])}).features(0, torch.tensor([0, 1]))
    assert seen.dtype == torch.int64
    assert seen.tolist() == [[[5, 7, 0], [3, 3, 3]], [[5, 7, 0], [4, 4, 4]]]


@given(
    records=st.lists(st.integers(0, 5), min_size=1, max_size=4, unique=True),
    batch=st.lists(st.integers(0, 5), min_size=1, max_size=8),
    replicas=st.integers(1, 3),
)
def test_overrides_agree_with_a_copy_of_the_data(records: list[int], batch: list[int], replicas: int) -> None:
    """The slow way: copy the data for each replica and write into it."""
    labels = torch.randint(0, 3, (replicas, len(records)), generator=torch.Generator().manual_seed(1))
    blocks = torch.randn(replicas, len(records), 3, generator=torch.Generator().manual_seed(2))
    data = some_data().override(records, labels=labels, blocks={1: blocks})
    for replica in range(replicas):
        own_labels, own_block = some_data().labels.clone(), some_data().blocks[1].clone()
        own_labels[records], own_block[records] = labels[replica], blocks[replica]
        assert torch.equal(data.labels_of(torch.tensor(batch))[replica], own_labels[batch])
        assert torch.equal(data.features(1, torch.tensor(batch))[replica], own_block[batch])


def test_nothing_is_copied_for_overrides() -> None:
    data = some_data()
    other = data.override([2], labels=torch.tensor([[0], [1]]), blocks={0: torch.zeros(2, 1, 2)})
    assert [b.data_ptr() for b in other.blocks] == [b.data_ptr() for b in data.blocks]
    assert [b.data_ptr() for b in other.test_blocks] == [b.data_ptr() for b in data.test_blocks]
    assert other.labels.data_ptr() == data.labels.data_ptr()
    assert data.overrides is None
    same = other.to(torch.device("cpu"))
    assert [b.data_ptr() for b in same.blocks] == [b.data_ptr() for b in data.blocks]


def test_the_original_is_unchanged_by_what_replicas_see() -> None:
    data = some_data()
    data.override([0], labels=torch.tensor([[2]])).labels_of(torch.tensor([0]))
    assert data.labels_of(torch.tensor([0])).tolist() == [0]


def test_moving_takes_the_overrides_along() -> None:
    moved = some_data().override([2], labels=torch.tensor([[0], [1]]), blocks={0: torch.zeros(2, 1, 2)})
    meta = moved.to(torch.device("meta"))
    assert meta.overrides is not None
    assert meta.overrides.labels is not None
    tensors = (*meta.blocks, *meta.test_blocks, meta.labels, meta.test_labels, meta.overrides.slots)
    assert {t.device.type for t in (*tensors, meta.overrides.labels, *meta.overrides.blocks.values())} == {"meta"}
    records = torch.zeros(4, dtype=torch.int64, device="meta")
    assert meta.features(0, records).shape == (2, 4, 2)
    assert meta.labels_of(records).shape == (2, 4)


def test_a_canary_puts_each_replica_into_its_world() -> None:
    canary = Canary(kind=CanaryKind.NATURAL, record=3, world=torch.tensor([0, 1, 1]), labels=(0, 2))
    assert canary.into(some_data()).labels_of(torch.tensor([3, 1])).tolist() == [[0, 1], [2, 1], [2, 1]]


def test_a_worst_case_canary_keeps_the_label_and_has_a_sign() -> None:
    world, block = torch.tensor([0, 1]), torch.tensor([[7.0, 8.0], [9.0, 10.0]])
    canary = Canary(kind=CanaryKind.WORST_CASE, record=3, world=world, labels=(0, 2), blocks={0: block})
    data = canary.into(some_data())
    assert data.labels_of(torch.tensor([3])).tolist() == [0]
    assert data.features(0, torch.tensor([3])).tolist() == [[[7.0, 8.0]], [[9.0, 10.0]]]
    assert canary.sign().tolist() == [1.0, -1.0]


def broken(blocks: tuple[torch.Tensor, ...], labels: torch.Tensor) -> VerticalData:
    return VerticalData(name="broken", classes=2, blocks=blocks, labels=labels, test_blocks=blocks, test_labels=labels)


@pytest.mark.parametrize(
    ("blocks", "labels", "message"),
    [
        ((), 2, "at least one record and one device"),
        ((torch.zeros(0, 3),), 0, "at least one record and one device"),
        ((torch.zeros(2, 3), torch.zeros(3, 3)), 2, "data.blocks[1] = 3: expected 2 records"),
        ((torch.tensor([[1.0], [float("nan")]]),), 2, "data.blocks[0] = 'NaN or infinity': expected finite numbers"),
        ((torch.tensor([[1.0], [float("inf")]]),), 2, "expected finite numbers"),
    ],
)
def test_broken_data_is_refused(blocks: tuple[torch.Tensor, ...], labels: int, message: str) -> None:
    with pytest.raises(InputError) as caught:
        broken(blocks, torch.zeros(labels, dtype=torch.int64)).checked()
    assert message in str(caught.value)


def test_standardised_data_has_mean_0_and_deviation_1_over_all_training_features():
    generator = torch.Generator().manual_seed(0)
    blocks = (5 + 3 * torch.rand(40, 6, generator=generator), torch.rand(40, 2, 3, generator=generator))
    test = tuple(block[:7] + 1 for block in blocks)
    labels = torch.arange(40) % 2
    data = VerticalData(
        name="x", classes=2, blocks=blocks, labels=labels, test_blocks=test, test_labels=labels[:7]
    ).standardised()
    values = torch.cat([block.flatten() for block in data.blocks]).double()
    assert abs(float(values.mean())) < 1e-6
    assert abs(float(values.std(correction=0)) - 1) < 1e-6
    before = torch.cat([block.flatten() for block in blocks])
    torch.testing.assert_close(data.blocks[1] * before.std(correction=0) + before.mean(), blocks[1])
    # The test records are moved as the training records are, not by their own mean.
    shift = torch.full((7, 6), 1 / float(before.std(correction=0)))
    torch.testing.assert_close(data.test_blocks[0] - data.blocks[0][:7], shift)


def test_constant_features_become_zero_and_token_ids_are_refused():
    block, labels = torch.full((4, 2), 3.0), torch.tensor([0, 1, 0, 1])
    data = VerticalData(name="x", classes=2, blocks=(block,), labels=labels, test_blocks=(block,), test_labels=labels)
    assert data.standardised().blocks[0].tolist() == [[0.0, 0.0]] * 4
    with pytest.raises(
        InputError, match=r"^data.standardise = True: expected false, since the features of x are token"
    ):
        replace(data, blocks=(block.long(),)).standardised()


def test_token_ids_beyond_the_vocabulary_are_found():
    ids, labels = torch.tensor([[1, 2], [3, 0]]), torch.tensor([0, 1])
    data = VerticalData(
        name="x", classes=2, blocks=(ids,), labels=labels, test_blocks=(ids,), test_labels=labels, vocabulary=4
    )
    assert data.checked() is data
    with pytest.raises(InputError, match=r"^data.blocks\[0\] = 3: expected token ids 0 to 2"):
        replace(data, vocabulary=3).checked()


def written(data: VerticalData) -> tuple[int, VerticalData]:
    """How many bytes a worker process is sent of the data, and what it reads from them."""
    content = cloudpickle.dumps(data)
    return len(content), cloudpickle.loads(content)


def same(one: VerticalData, other: VerticalData) -> bool:
    pairs = zip((*one.blocks, *one.test_blocks), (*other.blocks, *other.test_blocks), strict=True)
    return all(torch.equal(x, y) and x.dtype == y.dtype for x, y in pairs)


def test_blocks_that_share_a_table_are_sent_once_and_share_it_again() -> None:
    table = torch.randn(4000, 40)
    data = replace(some_data(4000), blocks=tuple(table.split(10, 1)), test_blocks=(torch.zeros(2, 10),) * 4)
    size, read = written(data)
    assert same(data, read)
    assert size < 1.1 * 4 * (table.numel() + 2 * data.labels.numel()) + 10_000
    assert len({block.untyped_storage().data_ptr() for block in read.blocks}) == 1
    assert [block.stride() for block in read.blocks] == [(40, 1)] * 4


def test_of_a_block_that_is_a_small_part_of_its_memory_only_that_part_is_sent() -> None:
    data = some_data()
    large = torch.randn(100_000, 2)
    data = replace(data, blocks=(large[:6], data.blocks[1]))
    size, read = written(data)
    assert same(data, read)
    assert size < 20_000


@pytest.mark.parametrize("blocks", [(), (torch.zeros(6, 0), torch.zeros(6, 0, dtype=torch.int64))])
def test_empty_blocks_are_sent_as_they_are(blocks: tuple[torch.Tensor, ...]) -> None:
    data = replace(some_data(), validation_blocks=blocks, validation_labels=torch.zeros(6) if blocks else None)
    read = written(data)[1]
    assert [(b.shape, b.dtype) for b in read.validation_blocks] == [(b.shape, b.dtype) for b in blocks]
