"""The wire of a user's training while it is traced: the calls of a recorder, over the wire of a program.

A system that is recorded need not be changed to be traced. Its messages reach the tracer, its labels and features are
private from the call on by which it hands them over, and whoever sent a message goes on with it as it was received.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from vflpriv.audits.flow.plain.wire import FlowWire, Party
from vflpriv.recording.checked_wire import CheckedWire
from vflpriv.recording.files.format import Entry

__all__ = ["Ended", "Holder", "TracingWire"]

Holder = Callable[["TracingWire", str, int | None, Any, Any], None]
"""Is told of what a training hands over: the wire, "labels" or "features", the device, the values, the records."""


class Ended(BaseException):
    """The rounds that are followed are over; no `except Exception` of a training takes it for an error."""


class TracingWire(CheckedWire):
    """Sends over the wire of a program what a training would have recorded.

    `holder` is told of the labels and features that are handed over. Kinds that are `hidden` from the view of the
    program are not shown to it. The training is stopped after so many `rounds`.
    """

    delivers = True

    def __init__(
        self,
        wire: FlowWire,
        *,
        devices: int,
        classes: int | None,
        records: Any,
        holder: Holder | None = None,
        hidden: frozenset[str] = frozenset(),
        rounds: int | None = None,
        name: str = "",
    ) -> None:
        super().__init__(devices=devices, classes=classes, records=records, name=name)
        self.wire, self._holder, self._hidden, self._rounds = wire, holder, hidden, rounds
        self._arrived: dict[str, Tensor] = {}
        self.of_torch = False
        """Whether any message holds a tensor of torch."""
        self.batches: list[Tensor] = []
        """The records of each round of watched modules."""

    def labels(self, labels: Any, *, records: Any = None, canaries: Any = None) -> None:
        """The labels are private from here on."""
        del canaries
        self._held("labels", None, labels, records)

    def features(self, device: int, block: Any, *, records: Any = None, sensitive_column: int | None = None) -> None:
        """A device's features are private from here on."""
        del sensitive_column
        self._held("features", self._device(device, "features: device"), block, records)

    def members(self, canaries: Any) -> None:
        """Ignore membership canaries, which count in a recording."""

    def accuracy(self, accuracy: float, *, tests: int) -> None:
        """Ignore the trained model's accuracy, which a recording keeps for its report."""

    def finish(self, *, cut_off: bool = False) -> None:
        """End the recording."""
        del cut_off
        self.close()

    def abandon(self) -> None:
        """End the recording."""
        self.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def batch(self, records: Any) -> Any:
        """Begin a round of the watched modules."""
        if isinstance(records, Tensor):
            self.wire.reveal(records)
        return super().batch(records)

    def arrived(self, ids: Tensor, batch: Any) -> Any:
        """A loader's batch: which records it is of is known."""
        self.wire.reveal(ids)
        return batch

    def began(self, ids: Tensor) -> None:
        """A round of watched modules begins, unless those that are followed are over."""
        self._check_rounds(len(self.batches))
        self.batches.append(ids)

    def add(
        self,
        way: str,
        round_: int,
        device: int,
        kind: str,
        tensors: Mapping[str, Any],
        ids: Tensor | None,
        *,
        to: int | None = None,
        at_once: bool = True,
    ) -> tuple[Entry, dict[str, Tensor]]:
        if isinstance(round_, int):
            self._check_rounds(round_)
        followed = tensors
        if isinstance(tensors, Mapping):
            followed = {name: _followed(value) for name, value in tensors.items()}
        entry, _ = super().add(way, round_, device, kind, followed, ids, to=to, at_once=at_once)
        for name, value in tensors.items():
            self.of_torch |= isinstance(value, Tensor)
            if isinstance(value, Tensor) and value.dtype == self._arrived[name].dtype:
                # Whoever sent it goes on with what is known by now, not with what it was made of.
                value.data = self._arrived[name].clone()
            elif isinstance(value, np.ndarray) and value.flags.writeable:
                _overwrite(value, self._arrived[name])
        return entry, self._arrived

    def check_values(self, kind: str, values: Mapping[str, Tensor]) -> None:
        """Not here: a look at a value is a read of it."""

    def keep(self, entry: Entry, tensors: Mapping[str, Tensor], records: Tensor | None) -> None:
        if entry.kind in self._hidden:
            self._arrived = {name: value.clone() for name, value in tensors.items()}
            return
        sender, receiver = _ends(entry)
        arrived = self.wire.send(
            entry.kind, tensors, sender=sender, receiver=receiver, round_=entry.round, records=records
        )
        self._arrived = dict(arrived)

    def delivered(self, entry: Entry, tensors: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """What the receiver gets, which `add` has returned."""
        del entry
        return tensors

    def _held(self, what: str, device: int | None, values: Any, records: Any) -> None:
        self.check_open(what, "values")
        if self._holder is not None:
            self._holder(self, what, device, values, records)

    def _check_rounds(self, round_: int) -> None:
        if self._rounds is not None and round_ >= self._rounds:
            raise Ended


def _overwrite(array: np.ndarray[Any, Any], arrived: Tensor) -> None:
    """Whoever sent an array goes on with what arrived, which is followed if the array is."""
    followed: Any = arrived.detach().reshape(array.shape)
    array[...] = followed if type(array) is not np.ndarray else followed.numpy()


def _followed(value: Any) -> Any:
    """An array as a tensor, by a function that the tracer sees."""
    try:
        return value if isinstance(value, Tensor) else torch.as_tensor(value)
    except (TypeError, ValueError, RuntimeError):
        return value


def _ends(entry: Entry) -> tuple[Party, Party]:
    """Sender and receiver of a message."""
    if entry.way == "across":
        assert entry.to is not None
        return entry.device, entry.to
    return (entry.device, "server") if entry.way == "up" else ("server", entry.device)
