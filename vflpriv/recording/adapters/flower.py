"""Recording a Flower ServerApp: a grid that passes messages on, and records the embeddings and gradients in them.

A vertical Flower app asks its nodes for embeddings, and sends them the gradients by these, as Flower's own example
`vertical-fl` does. Both are arrays in the content of messages. Whatever else is sent as an array or as a metric is
recorded too, as a kind of its own, which a ledger must know of. `ConfigRecord`s are settings, and are not recorded.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vflpriv.errors import InputError
from vflpriv.recording.recorder import RecordingWire, watch

if TYPE_CHECKING:
    from vflpriv.core.canaries import Canaries

__all__ = ["RecordingGrid", "watch_grid"]

EMBEDDING, GRADIENT, POSITION = "arrays/embedding", "gradients/local-gradients", "config/pos"
"""Where Flower's example has them: the name of a record in a message's content, and of an entry of it."""
_Waiting = tuple[str, int, str, Mapping[str, Any], list[Any] | None]
"""Way, round, kind, tensors and record ids of a message to or from a node whose number is not known yet."""


def watch_grid(
    grid: Any,
    *,
    labels: Any,
    classes: int | None,
    folder: str | Path = "transcript",
    devices: int | None = None,
    canaries: Canaries | None = None,
    embedding: str = EMBEDDING,
    gradient: str = GRADIENT,
    position: str = POSITION,
    ids: str | None = None,
    **options: Any,
) -> RecordingGrid:
    """The grid of a ServerApp, which from now on records what passes through it; go on with what is returned.

    `devices` is the number of nodes, by default of those that are there. `embedding` and `gradient` say where in a
    message they are, as `record/entry`, and `position` where a reply has the number of its node, if it has one. `ids`
    says where a request or a message has the numbers of its records; without it, every message is about all records.
    `options` are those of `vflpriv.record`. The recording ends with the program, or with `grid.finish()`.
    """
    number = len(list(grid.get_node_ids())) if devices is None else devices
    if number < 1:
        raise InputError("watch_grid: devices", number, "the number of nodes, if they are not all there yet")
    wire = watch(number, labels=labels, classes=classes, folder=folder, canaries=canaries, **options)
    places = {"embedding": embedding, "gradient": gradient, "position": position} | (
        {} if ids is None else {"ids": ids}
    )
    return RecordingGrid(grid, wire, places)


class RecordingGrid:
    """Passes every call on to a Flower grid. A round begins when a node is asked once more for what is no gradient."""

    def __init__(self, grid: Any, wire: RecordingWire, places: Mapping[str, str]) -> None:
        self._grid, self.wire, self._places = grid, wire, dict(places)
        for field, place in places.items():
            if place.count("/") != 1:
                raise InputError(f"watch_grid: {field}", place, "record/entry, such as arrays/embedding")
        self._round, self._asked = 0, set[Any]()
        self._device_of: dict[Any, int] = {}
        self._ids: dict[Any, Any] = {}
        self._waiting: defaultdict[Any, list[_Waiting]] = defaultdict(list)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._grid, name)

    def push_messages(self, messages: Iterable[Any]) -> Any:
        """Send messages, as the grid does."""
        return self._grid.push_messages(self._sent(messages))

    def pull_messages(self, message_ids: Iterable[str]) -> Any:
        """Replies that have arrived, as the grid gives them."""
        return self._received(self._grid.pull_messages(message_ids))

    def send_and_receive(self, messages: Iterable[Any], *, timeout: float | None = None) -> Any:
        """Send messages and wait for the replies, as the grid does."""
        return self._received(self._grid.send_and_receive(self._sent(messages), timeout=timeout))

    def finish(self) -> None:
        """End the recording."""
        for node in list(self._waiting):
            self._number(node, None)
        self.wire.finish()

    def _sent(self, messages: Iterable[Any]) -> list[Any]:
        """Record what goes to nodes."""
        listed = list(messages)
        contents = [(m.metadata.dst_node_id, m) for m in listed if m.has_content()]
        asked = [node for node, m in contents if _entry(m, self._places["gradient"]) is None]
        if not self._asked.isdisjoint(asked):
            self._round, self._asked = self._round + 1, set()
        self._asked.update(asked)
        for node, message in contents:
            self._note_ids(node, message)
            self._record("down", node, message)
            if node in self._device_of:
                self._deliver(node)
        return listed

    def _received(self, messages: Iterable[Any]) -> list[Any]:
        """Record what comes from nodes."""
        listed = list(messages)
        for message in listed:
            if message.has_content():
                node = message.metadata.src_node_id
                self._note_ids(node, message)
                self._record("up", node, message)
                self._number(node, _entry(message, self._places["position"]))
        return listed

    def _note_ids(self, node: Any, message: Any) -> None:
        ids = _entry(message, self._places["ids"]) if "ids" in self._places else None
        if ids is not None:
            self._ids[node] = list(_numpy(ids))

    def _number(self, node: Any, position: Any) -> None:
        """Give a node its number if it has none, and record what waits for it."""
        if node not in self._device_of:
            taken = set(self._device_of.values())
            free = next(number for number in range(len(taken) + 1) if number not in taken)
            self._device_of[node] = free if position is None else int(position)
        self._deliver(node)

    def _record(self, way: str, node: Any, message: Any) -> None:
        """Keep all arrays and metrics of a message until the node's number is known."""
        tensor, kind = ("embedding", "embeddings") if way == "up" else ("gradient", "embedding-gradient")
        value, ids = _entry(message, self._places[tensor]), self._ids.get(node)
        further = dict(_others(message, {self._places[tensor], self._places.get("ids", "")}))
        if value is not None:
            self._waiting[node].append((way, self._round, kind, {tensor: _numpy(value)}, ids))
        if further:
            self._waiting[node].append((way, self._round, _kind(message.metadata.message_type), further, None))

    def _deliver(self, node: Any) -> None:
        for way, round_, kind, tensors, ids in self._waiting.pop(node, ()):
            known = ids if kind not in ("embeddings", "embedding-gradient") else self._rows(kind, tensors, ids)
            send = self.wire.up if way == "up" else self.wire.down
            send(round_, self._device_of[node], kind, tensors, known)

    def _rows(self, kind: str, tensors: Mapping[str, Any], ids: list[Any] | None) -> list[Any]:
        """The records of a message with a row for each: those that it names, or all."""
        rows = next(iter(tensors.values())).shape[0]
        if ids is None and rows != self.wire.head.records:
            expected = f"{self.wire.head.records}, one for each record, or watch_grid(ids=...): whose are they?"
            raise InputError(f"{kind}: rows", rows, expected)
        return list(self.wire.record_ids.names or range(rows)) if ids is None else ids


def _entry(message: Any, place: str) -> Any:
    """An entry of a record of a message's content; None if there is none."""
    record, _, entry = place.partition("/")
    content = message.content
    return content[record][entry] if record in content and entry in content[record] else None


def _others(message: Any, known: Iterable[str]) -> Iterator[tuple[str, Any]]:
    """All other arrays and metrics of a message, by name."""
    content = message.content
    for record, arrays in content.array_records.items():
        yield from (
            (_name(f"{record}.{key}"), _numpy(a)) for key, a in arrays.items() if f"{record}/{key}" not in known
        )
    for record, metrics in content.metric_records.items():
        yield from ((_name(f"{record}.{key}"), value) for key, value in metrics.items())


def _numpy(array: Any) -> Any:
    return array.numpy() if hasattr(array, "numpy") else array


def _name(text: str) -> str:
    """A name that a transcript can hold."""
    return re.sub(r"[^\w.-]", "-", text, flags=re.ASCII)[:64]


def _kind(message_type: str) -> str:
    """The kind of whatever else a message of this type holds.

    >>> _kind("query.get_labels")
    'flower-query-get_labels'
    """
    return f"flower-{re.sub(r'[^0-9A-Za-z_-]', '-', message_type)}"[:64]
