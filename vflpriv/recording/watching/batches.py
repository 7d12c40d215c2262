"""Batches of loaders, with the records that they are of."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from vflpriv.errors import InputError

__all__ = ["batches_with_ids"]


def batches_with_ids(loader: Any, begin: Callable[[Any], object]) -> Iterator[Any]:
    """The batches of a torch DataLoader; `begin` is told of the positions in the data set before each of them.

    The batches are those of a loader with the same data set and the same sampler, which notes what it draws. Workers
    that load ahead do not disturb the order.
    """
    from torch.utils.data import DataLoader, IterableDataset

    if not isinstance(loader, DataLoader):
        raise InputError("ids: loader", type(loader).__name__, "a torch DataLoader, or wire.batch(ids) for each batch")
    if isinstance(loader.dataset, IterableDataset) or loader.batch_sampler is None:
        raise InputError("ids: loader", "no batches of positions", "a loader of batches, or wire.batch(ids) for each")
    noted = _NotedBatches(loader.batch_sampler)
    same: DataLoader[Any] = DataLoader(
        loader.dataset,
        batch_sampler=noted,
        num_workers=loader.num_workers,
        collate_fn=loader.collate_fn,
        pin_memory=loader.pin_memory,
        timeout=loader.timeout,
        worker_init_fn=loader.worker_init_fn,
        multiprocessing_context=loader.multiprocessing_context,
        generator=loader.generator,
        prefetch_factor=loader.prefetch_factor if loader.num_workers else None,
    )
    for batch in same:
        begin(noted.drawn.popleft())
        yield batch


class _NotedBatches:
    """A batch sampler that keeps the batches it has drawn until they are asked for."""

    def __init__(self, sampler: Any) -> None:
        self._sampler = sampler
        self.drawn: deque[list[int]] = deque()

    def __iter__(self) -> Iterator[list[int]]:
        for positions in self._sampler:
            self.drawn.append(list(positions))
            yield positions

    def __len__(self) -> int:
        return len(self._sampler)
