"""Batches of loaders that carry the records they are of, from the data set to the step that uses them.

Items of the data set are fetched with their positions, so that ids arrive with the data whatever the loader does in
between: samplers, workers that load ahead, in or out of order. The user's own loader makes the batches, with the same
random draws as without.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, islice
from operator import index
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

from vflpriv.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["batches_with_ids", "iterated_by"]

_ASK = "wire.batch(ids) for each batch, or wire.ids(loader, key=…): where in a batch its ids are"
_PERSISTENT: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()
"""The iterators, with workers that stay, of loaders whose batches carry ids."""


def batches_with_ids(
    loader: Any, records: int, key: Any = None, begin: Callable[[Any], Iterator[Any]] = iter
) -> Iterator[tuple[Any, Any]]:
    """Batches, each with its records before it: their numbers, or with a `key` what the batch itself says.

    `key` is a key of the batch, a place in it, or a function of it. Without one, the loader is a torch DataLoader of a
    data set with positions. The records are those of the data set inside of it that has so many `records`. `begin`
    makes the loader's iterator.
    """
    if key is not None:
        for batch in begin(loader):
            yield (key(batch) if callable(key) else batch[key]), batch
        return
    _check_loader(loader)
    records_at = _numbering(loader.dataset, records)
    with _carried(loader):  # a loader of its own kind may make its batches only when the first is asked for
        batches = begin(loader)
        first = list(islice(batches, 1))
    for positions, batch in chain(first, batches):
        yield positions if records_at is None else records_at[positions], batch


@contextmanager
def iterated_by(loader: Any, batches: Callable[[Callable[[Any], Iterator[Any]]], Iterator[Any]]) -> Iterator[None]:
    """Whoever iterates the loader meanwhile gets these batches, which are told how it would make its iterator."""
    own = type(loader)

    def iterate(self: Any) -> Iterator[Any]:
        del self
        return batches(own.__iter__)

    loader.__class__ = type(own.__name__, (own,), {"__iter__": iterate})
    try:
        yield
    finally:
        loader.__class__ = own


def _check_loader(loader: Any) -> None:
    from torch.utils.data import DataLoader, IterableDataset

    if not isinstance(loader, DataLoader):
        raise InputError("ids: loader", type(loader).__name__, f"a torch DataLoader, or {_ASK}")
    if isinstance(loader.dataset, IterableDataset):
        raise InputError("ids: loader", "a data set without positions", _ASK)


@contextmanager
def _carried(loader: Any) -> Iterator[None]:
    """Iterators that the loader makes meanwhile give batches with their positions; it is as before afterwards."""
    attributes = vars(loader)
    own = {name: attributes[name] for name in ("dataset", "collate_fn", "_iterator")}
    carrying = {
        "dataset": _WithPositions(loader.dataset),
        "collate_fn": _CollateBoth(loader.collate_fn),
        "_iterator": _PERSISTENT.get(loader),
    }
    attributes.update(carrying)
    try:
        yield
    finally:
        if attributes["_iterator"] is not None:
            _PERSISTENT[loader] = attributes["_iterator"]
        attributes.update(own)


class _Item(NamedTuple):
    position: Any
    item: Any


class _WithPositions:
    """A data set whose items come with their positions, and which is otherwise the one that it holds."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __getitem__(self, position: Any) -> _Item:
        return _Item(position, self.dataset[position])

    @property
    def __getitems__(self) -> Callable[[Sequence[Any]], list[_Item]] | None:
        """For data sets that fetch a batch at once."""
        fetch = getattr(self.dataset, "__getitems__", None)
        if not callable(fetch):
            return None
        return lambda positions: [_Item(*pair) for pair in zip(positions, fetch(positions), strict=True)]

    def __len__(self) -> int:
        return len(self.dataset)

    def __getattr__(self, name: str) -> Any:
        if name == "dataset" or name.startswith("__"):  # there is none yet, or pickle asks
            raise AttributeError(name)
        return getattr(self.dataset, name)


class _CollateBoth:
    """Makes a batch of items, and a tensor of their positions."""

    def __init__(self, collate: Callable[[Any], Any]) -> None:
        self._collate = collate

    def __call__(self, items: Any) -> tuple[Tensor, Any]:
        import torch

        if isinstance(items, _Item):  # the data set was asked for a batch
            positions, items = items
            listed = positions.tolist() if hasattr(positions, "tolist") else positions
        else:
            listed, items = [item.position for item in items], [item.item for item in items]
        try:
            whole = [index(position) for position in (listed if isinstance(listed, Sequence) else [listed])]
        except TypeError as error:
            raise InputError("ids: loader", "positions that are no whole numbers", _ASK) from error
        return torch.tensor(whole, dtype=torch.int64), self._collate(items)


def _numbering(dataset: Any, records: int) -> Tensor | None:
    """The record at each position of a data set; None if they are the positions.

    Data sets are made of others, of which the innermost that has as many items as there are records numbers them.
    """
    levels = _levels(dataset)
    for level, numbers in levels:
        if _length(level) in (records, None):
            return numbers
    lengths = " in ".join(str(_length(level)) for level, _ in reversed(levels))
    expected = f"one of {records}, as many as there are labels: give those of its items to watch(labels=…); or {_ASK}"
    raise InputError("ids: loader", f"a data set of {lengths} items", expected)


def _levels(dataset: Any) -> list[tuple[Any, Tensor | None]]:
    """A data set and those inside of it, the innermost first, each with the number in it of each item of the first."""
    import torch

    own: list[tuple[Any, Tensor | None]] = [(dataset, None)]
    parts = getattr(dataset, "datasets", None)
    if isinstance(parts, Sequence) and parts and sum(_length(part) or 0 for part in parts) == _length(dataset):
        return _shared_levels(parts) + own
    inner = _inner(dataset)
    if inner is None:
        return own
    indices = getattr(dataset, "indices", None)
    at = None if indices is None else torch.as_tensor([index(i) for i in indices], dtype=torch.int64)
    return [(level, _composed(numbers, at)) for level, numbers in _levels(inner)] + own


def _shared_levels(parts: Sequence[Any]) -> list[tuple[Any, Tensor | None]]:
    """The data sets that all parts of a concatenation are made of, as two subsets of one are."""
    import torch

    by_part = [{id(level): (level, numbers) for level, numbers in _levels(part)} for part in parts]
    shared: list[tuple[Any, Tensor | None]] = []
    for key, (level, _) in by_part[0].items():
        if all(key in levels for levels in by_part):
            numbers = [levels[key][1] for levels in by_part]
            whole = [torch.arange(len(part)) if n is None else n for part, n in zip(parts, numbers, strict=True)]
            shared.append((level, torch.cat(whole)))
    return shared


def _inner(dataset: Any) -> Any:
    """The data set of a subset, or of a wrapper that gives something else for each item of one of the same length."""
    inner, indices = getattr(dataset, "dataset", None), getattr(dataset, "indices", None)
    if inner is not None and indices is not None and len(indices) == _length(dataset):
        return inner
    from torch.utils.data import Dataset

    attributes = getattr(dataset, "__dict__", {})
    held = [v for v in attributes.values() if isinstance(v, Dataset) and _length(v) == _length(dataset)]
    return held[0] if len(held) == 1 and indices is None else None


def _composed(numbers: Tensor | None, at: Tensor | None) -> Tensor | None:
    return numbers if at is None else at if numbers is None else numbers[at]


def _length(dataset: Any) -> int | None:
    try:
        return len(dataset)
    except (TypeError, NotImplementedError):
        return None
