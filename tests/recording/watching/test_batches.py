"""Ids travel with the data: whatever a loader and the loop around it do, a message names the records it is of."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    ConcatDataset,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    Subset,
    TensorDataset,
    WeightedRandomSampler,
    random_split,
)

from tests.recording.watching.training import RECORDS, Training, head_of, sent_ids
from vflpriv.errors import InputError


class Table(Dataset):
    """A data set of its own."""

    def __init__(self, x, y):
        self.x, self.y = x, y

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        return self.x[i], int(self.y[i])


class Scaled(Dataset):
    """Gives something else for each item of another data set, as augmentations do."""

    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        x, y = self.rows[i]
        return x * 1.0, y


class AtOnce(Table):
    """Fetches a batch at once."""

    def __getitems__(self, positions):
        return [self[i] for i in positions]


def split(data):
    train, rest = random_split(data, [20, 4], generator=torch.Generator().manual_seed(2))
    return train, rest


LOADERS = {
    "shuffled": lambda d: DataLoader(d, batch_size=5, shuffle=True),
    "a data set of its own": lambda d: DataLoader(Table(*d.tensors), batch_size=5, shuffle=True),
    "fetched at once": lambda d: DataLoader(AtOnce(*d.tensors), batch_size=5, shuffle=True),
    "random_split": lambda d: DataLoader(split(d)[0], batch_size=5, shuffle=True),
    "random_split of random_split": lambda d: DataLoader(random_split(split(d)[0], [15, 5])[0], batch_size=4),
    "a wrapper of a subset": lambda d: DataLoader(Scaled(Subset(d, range(3, 17))), batch_size=5, shuffle=True),
    "a subset of a wrapper": lambda d: DataLoader(Subset(Scaled(d), range(9, 20)), batch_size=5),
    "two halves in one": lambda d: DataLoader(ConcatDataset(split(d)), batch_size=5, shuffle=True),
    "two data sets": lambda d: DataLoader(
        Subset(
            ConcatDataset([Table(d.tensors[0][:9], d.tensors[1][:9]), Table(d.tensors[0][9:], d.tensors[1][9:])]),
            range(5, 24),
        ),
        batch_size=5,
        shuffle=True,
    ),
    "a sampler": lambda d: DataLoader(d, batch_size=5, sampler=RandomSampler(d)),
    "a batch sampler": lambda d: DataLoader(d, batch_sampler=BatchSampler(SequentialSampler(range(20)), 6, True)),
    "a sampler of batches": lambda d: DataLoader(d, batch_size=None, sampler=BatchSampler(RandomSampler(d), 6, False)),
    "with replacement": lambda d: DataLoader(
        d, batch_size=8, sampler=WeightedRandomSampler([1.0] * 8 + [0.1] * 16, 24)
    ),
}


@pytest.mark.parametrize("name", LOADERS)
def test_ids_are_those_of_the_records(tmp_path, name):
    training = Training(tmp_path)
    loader = LOADERS[name](TensorDataset(training.x, training.y))
    dataset = loader.dataset
    for x, y in training.wire.ids(loader):
        assert loader.dataset is dataset
        training.step(x, torch.as_tensor(y))
    training.wire.finish()
    assert sum(map(len, sent_ids(tmp_path))) > 10
    head = head_of(tmp_path)
    assert head.failed_checks == ()
    assert head.labels_compared > 0
    assert head.labels_different == 0


@pytest.mark.parametrize("options", [{}, {"persistent_workers": True}, {"in_order": False}])
def test_workers_that_load_ahead_and_out_of_order(tmp_path, options):
    training = Training(tmp_path)
    loader = DataLoader(TensorDataset(training.x, training.y), batch_size=3, shuffle=True, num_workers=2, **options)
    for _ in range(2):
        for batch in training.wire.ids(loader):
            training.step(*batch)
        assert all(isinstance(part, torch.Tensor) for batch in loader for part in batch)  # still the user's own
    training.wire.finish()
    assert len(sent_ids(tmp_path)) == 2 * RECORDS // 3
    assert head_of(tmp_path).failed_checks == ()


def test_the_same_draws_are_made_as_without(tmp_path):
    training = Training(tmp_path)
    loader = DataLoader(TensorDataset(training.x, training.y), batch_size=5, shuffle=True)
    torch.manual_seed(3)
    with_ids = [y.tolist() for _, y in training.wire.ids(loader)]
    after = torch.rand(1)
    torch.manual_seed(3)
    assert [y.tolist() for _, y in loader] == with_ids
    assert torch.equal(torch.rand(1), after)


def ahead(batches, count):
    """Reads ahead of the loop, as prefetchers do."""
    held = list(itertools.islice(batches, count))
    for batch in batches:
        yield held.pop(0)
        held.append(batch)
    yield from held


@pytest.mark.parametrize("copied", [False, True])
def test_a_round_begins_when_a_batch_is_used(tmp_path, copied):
    training = Training(tmp_path)
    loader = DataLoader(TensorDataset(training.x, training.y), batch_size=5, shuffle=True)
    for x, y in ahead(training.wire.ids(loader), 3):
        training.step(x.double().float() if copied else x, y)
    training.wire.finish()
    assert len(sent_ids(tmp_path)) == 5
    assert head_of(tmp_path).failed_checks == ()


def test_a_batch_that_is_thrown_away_is_no_round(tmp_path):
    training = Training(tmp_path)
    loader = DataLoader(TensorDataset(training.x, training.y), batch_size=5, shuffle=True)
    for number, (x, y) in enumerate(training.wire.ids(loader)):
        if number not in (0, 2):
            training.step(x, y)
    training.wire.finish()
    assert len(sent_ids(tmp_path)) == 3
    assert "2 batches were fetched and no module was given them" in head_of(tmp_path).remarks


def test_batches_of_any_loader_may_say_their_ids(tmp_path):
    class Stream(IterableDataset):
        def __iter__(self):
            yield from ({"id": f"r{i}", "x": training.x[i], "y": training.y[i]} for i in (5, 3, 11, 7))

    training = Training(tmp_path, records=12)
    loader = DataLoader(Stream(), batch_size=2)
    with pytest.raises(InputError, match="without positions"):
        next(training.wire.ids(loader))
    for batch in training.wire.ids(loader, key=lambda b: [int(name[1:]) for name in b["id"]]):
        training.step(batch["x"], batch["y"])
    training.wire.finish()
    assert sent_ids(tmp_path) == [[5, 3], [11, 7]]


def test_a_loader_without_ids_is_one_clear_line(tmp_path):
    training = Training(tmp_path)
    held_out = Scaled(Subset(TensorDataset(training.x, training.y), range(7)))
    held_out.other = TensorDataset(training.x[:7])
    with pytest.raises(InputError, match=r"a data set of 7 items.*one of 24, as many as there are labels: give"):
        next(training.wire.ids(DataLoader(held_out)))
    with pytest.raises(InputError, match="a torch DataLoader"):
        next(training.wire.ids([1, 2]))


def test_parts_of_a_batch_are_of_their_records(tmp_path):
    """Micro-batches, in whatever order, of a loader's batch and of one that is named."""
    training = Training(tmp_path)
    loader = DataLoader(TensorDataset(training.x, training.y), batch_size=12, shuffle=True)
    for x, y in training.wire.ids(loader):
        for part in (slice(8, 12), slice(0, 4), slice(4, 8)):
            training.step(x[part], y[part])
    ids = torch.randperm(RECORDS)[:10]
    training.wire.batch(ids)
    for part in ids.split(5):
        training.step(training.x[part], training.y[part])
    training.wire.finish()
    sent_ids(tmp_path)
    assert head_of(tmp_path).failed_checks == ()
    assert head_of(tmp_path).rounds == 3


def test_evaluation_between_batches_that_wait_uses_none_of_them(tmp_path):
    training = Training(tmp_path)
    loader = DataLoader(TensorDataset(training.x, training.y), batch_size=4, shuffle=True)
    for x, y in ahead(training.wire.ids(loader), 2):
        training.step(x.double().float(), y)
        with torch.no_grad():
            training.forward(training.x[:4].clone())
    training.wire.finish()
    assert len(sent_ids(tmp_path)) == 6
    assert head_of(tmp_path).failed_checks == ()


@pytest.mark.parametrize("wrapped", [False, True])
def test_a_loader_that_is_followed_is_iterated_by_others(tmp_path, wrapped):
    """As a framework does, which may hold the loader inside of one of its own."""

    class Adapter:
        def __init__(self, loader):
            self.base_dataloader = loader

        def __iter__(self):
            yield from self.base_dataloader

    training = Training(tmp_path)
    plain = DataLoader(TensorDataset(training.x, training.y), batch_size=5, shuffle=True)
    loader = training.wire.follow(Adapter(plain) if wrapped else plain)
    for _ in range(2):
        for batch in loader:
            training.step(*batch)
    training.wire.finish()
    assert len(sent_ids(tmp_path)) == 10
    assert head_of(tmp_path).failed_checks == ()
    assert type(plain) is DataLoader
    assert [len(y) for _, y in plain] == [5, 5, 5, 5, 4]
