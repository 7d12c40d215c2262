"""Everything that an adversary sees of one training as a vector of fixed length: values, shapes, and which messages.

Scores of two worlds are learned from such vectors where the trainings are a user's own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from vflpriv.common.numerics import Floats
from vflpriv.core.wire import Message

__all__ = ["ViewLayout"]

_Place = tuple[object, ...]
_IDS: _Place = ("records",)
_TOTALS = 4


class ViewLayout:
    """Where each tensor, and each message, stands in the vector.

    First come the values of all tensors, then those of record ids. Each tensor then has one entry that says whether it
    was sent, and its shape; each message one that says whether it was sent, and its number in the order of all. The
    last entries are the numbers of messages and of values, and the number and the sum of values that have no place.
    """

    def __init__(self, trainings: Sequence[Sequence[Message]], *, with_tensors: bool = True) -> None:
        sizes: dict[_Place, tuple[int, int]] = {}
        messages: dict[_Place, None] = {}
        for training in trainings:
            for place, message in _placed(training):
                messages[place] = None
                for name, tensor in _tensors(message) if with_tensors else ():
                    axes, size = sizes.get((place, name), (0, 0))
                    sizes[place, name] = max(axes, tensor.dim()), max(size, tensor.numel())
        ordered = sorted(sizes, key=lambda place: place[1] == _IDS)
        self._values, end = _slices({place: sizes[place][1] for place in ordered}, 0)
        self._shapes, end = _slices({place: 1 + sizes[place][0] for place in ordered}, end)
        self._messages, end = _slices(dict.fromkeys(messages, 2), end)
        self._end = end

    @classmethod
    def within(cls, trainings: Sequence[Sequence[Message]], largest: int) -> ViewLayout:
        """The layout of these trainings, or if it is longer than `largest`, without tensors; else totals alone."""
        for layout in (cls(trainings), cls(trainings, with_tensors=False)):
            if layout.length <= largest:
                return layout
        return cls(())

    @property
    def length(self) -> int:
        """How many entries the vector has."""
        return self._end + _TOTALS

    def vector(self, training: Sequence[Message]) -> Floats:
        """What one training sent; zeros where it sent nothing."""
        vector = np.zeros(self.length)
        beyond: list[Floats] = []
        for number, (place, message) in enumerate(_placed(training), start=1):
            if place in self._messages:
                vector[self._messages[place]] = 1, number
            beyond += [self._fill(vector, (place, name), tensor) for name, tensor in _tensors(message)]
        values = sum(tensor.numel() for message in training for _, tensor in _tensors(message))
        left_over = sum(map(len, beyond)), sum(float(own.sum()) for own in beyond)
        vector[self._end :] = len(training), values, *left_over
        return vector

    def _fill(self, vector: Floats, place: _Place, tensor: Tensor) -> Floats:
        """Put a tensor into its place; what is left over of its values."""
        values: Floats = tensor.to(torch.float64).reshape(-1).numpy()
        if place not in self._values:
            return values
        own, outline = vector[self._values[place]], vector[self._shapes[place]]
        shape = (1, *tensor.shape)[: len(outline)]
        outline[: len(shape)] = shape
        own[: len(values)] = values[: len(own)]
        return values[len(own) :]


def _slices(sizes: Mapping[_Place, int], start: int) -> tuple[dict[_Place, slice], int]:
    """One slice after another, of these sizes, and where the last one ends."""
    slices = {}
    for place, size in sizes.items():
        slices[place] = slice(start, start + size)
        start += size
    return slices, start


def _placed(messages: Iterable[Message]) -> Iterator[tuple[_Place, Message]]:
    """Each message with its round, link and kind, and its number among those that have the same."""
    counts: Counter[_Place] = Counter()
    for message in messages:
        like = (message.round, message.kind, message.sender, message.receiver, message.encrypted)
        yield (*like, counts[like]), message
        counts[like] += 1


def _tensors(message: Message) -> Iterator[tuple[_Place, Tensor]]:
    """The tensors by their number, name and type, and the record ids if they are seen."""
    for number, (name, tensor) in enumerate(message.tensors.items()):
        yield (number, name, tensor.dtype), tensor
    if message.records is not None:
        yield _IDS, message.records
