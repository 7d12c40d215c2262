"""Recording SecretFlow's split learning (`SLModel`): a callback with its hooks, which records what parties exchange.

`SLModel.fit(callbacks=[...])` calls `on_agglayer_forward_begin(hiddens)` with the parties' outputs before they are
aggregated, and `on_agglayer_backward_end(gradients)` with the gradients that go back to them, each by party. SecretFlow
does not install everywhere: this module was tested with a stand-in that calls the same hooks, and not with SecretFlow.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vflpriv.errors import InputError
from vflpriv.recording.recorder import RecordingWire, watch

if TYPE_CHECKING:
    from vflpriv.core.canaries import Canaries

__all__ = ["RecordingCallback", "watch_split_learning"]


def watch_split_learning(
    parties: Sequence[Any],
    *,
    labels: Any,
    classes: int | None,
    batch_size: int,
    folder: str | Path = "transcript",
    canaries: Canaries | None = None,
    ids: Callable[[int, int], Any] | None = None,
    reveal: Callable[[Any], Any] | None = None,
    **options: Any,
) -> RecordingCallback:
    """A callback for `SLModel.fit`, which records what the parties without labels send and receive in training.

    `parties` are those without labels, in the order of their numbers. Batches are taken to be in the order of the
    records, as with `shuffle=False`; else `ids(epoch, batch)` gives the records of a batch. `reveal` gets a party's
    value; by default SecretFlow's own, for what is not an array. `options` are those of `vflpriv.record`. The recording
    ends with the training.
    """
    if batch_size < 1:
        raise InputError("watch_split_learning: batch_size", batch_size, "a whole number >= 1")
    wire = watch(len(parties), labels=labels, classes=classes, folder=folder, canaries=canaries, **options)
    order = ids or _in_order(wire, batch_size)
    return RecordingCallback(wire, [_name(party) for party in parties], order, reveal or _reveal)


class RecordingCallback:
    """Has every hook of SecretFlow's `Callback`; those that are not needed do nothing."""

    def __init__(
        self,
        wire: RecordingWire,
        parties: Sequence[Any],
        ids: Callable[[int, int], Any],
        reveal: Callable[[Any], Any],
    ) -> None:
        self.wire, self._parties, self._order, self._reveal = wire, list(parties), ids, reveal
        self._round, self._epoch = -1, 0
        self._ids: Any = None
        self._label_holder: Any = None

    def __getattr__(self, name: str) -> Callable[..., None]:
        if not name.startswith(("on_", "before_", "after_")):
            raise AttributeError(name)
        return lambda *_, **__: None

    def set_workers(self, workers: Any, device_y: Any) -> None:
        """Called before the training with all workers, and the party that holds the labels."""
        del workers
        self._label_holder = _name(device_y)

    def set_params(self, params: Any) -> None:
        """Called before the training with its settings."""

    def on_epoch_begin(self, epoch: int | None = None, logs: Any = None) -> None:
        """Batches are numbered from 0 in every epoch."""
        del logs
        self._epoch = epoch or 0

    def on_train_batch_begin(self, batch: int) -> None:
        """A round begins."""
        self._round, self._ids = self._round + 1, self._order(self._epoch, batch)

    def on_train_batch_end(self, batch: int) -> None:
        """What passes until the next batch, as in an evaluation, is no part of the training."""
        del batch
        self._ids = None

    def on_agglayer_forward_begin(self, hiddens: Mapping[Any, Any] | None = None) -> None:
        """Record the outputs that the parties send."""
        for m, value in self._values(hiddens, "hiddens"):
            self.wire.up(self._round, m, "embeddings", {"embedding": value}, self._ids)

    def on_agglayer_backward_end(self, gradients: Mapping[Any, Any] | None = None) -> None:
        """Record the gradients that the parties receive."""
        for m, value in self._values(gradients, "gradients"):
            self.wire.down(self._round, m, "embedding-gradient", {"gradient": value}, self._ids)

    def on_train_end(self, logs: Any = None) -> None:
        """The recording ends."""
        del logs
        self.wire.finish()

    def _values(self, by_party: Mapping[Any, Any] | None, field: str) -> list[tuple[int, Any]]:
        """The number and the value of each party without labels; none outside of training batches."""
        if self._ids is None or by_party is None:
            return []
        values = []
        for party, value in by_party.items():
            name = _name(party)
            if name in self._parties:
                values.append((self._parties.index(name), _one(self._reveal(value), f"{field}: {name}")))
            elif name != self._label_holder:
                raise InputError(field, name, f"a party from watch_split_learning(parties=...): {self._parties}")
        return values


def _in_order(wire: RecordingWire, batch_size: int) -> Callable[[int, int], Any]:
    """The records of a batch, if batches are in the order of the records."""
    names = wire.record_ids.names or range(wire.head.records)

    def records(epoch: int, batch: int) -> Any:
        del epoch
        return list(names[batch * batch_size : (batch + 1) * batch_size])

    return records


def _name(party: Any) -> Any:
    """A party's name: SecretFlow's devices have one."""
    return getattr(party, "party", party)


def _one(value: Any, field: str) -> Any:
    """The one output of a party."""
    if isinstance(value, list | tuple):
        if len(value) != 1:
            raise InputError(field, f"{len(value)} outputs", "one output for each party")
        return value[0]
    return value


def _reveal(value: Any) -> Any:
    """A value that is held by a party, as the driver sees it."""
    if hasattr(value, "__array__") or isinstance(value, list | tuple):
        return value
    try:
        return import_module("secretflow").reveal(value)
    except ImportError as error:
        expected = "an array, or SecretFlow installed, or watch_split_learning(reveal=...)"
        raise InputError("hiddens", type(value).__name__, expected) from error
