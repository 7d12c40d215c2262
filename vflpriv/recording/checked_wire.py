"""The wire that a user's own system sends its messages through: it checks every call, and subclasses keep messages."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from operator import index
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from vflpriv.core.wire import Transcript
from vflpriv.errors import InputError, first_problem
from vflpriv.recording.files.arrays import RecordIds, host_tensor, labels_of
from vflpriv.recording.files.checks import check_finite, check_kind_name, check_shapes, check_type, message_of
from vflpriv.recording.files.format import SCHEMA, Entry, Head
from vflpriv.recording.watching.batches import batches_with_ids, iterated_by
from vflpriv.recording.watching.checks import Checks
from vflpriv.recording.watching.hooks import Watch
from vflpriv.recording.watching.outputs import Output

if TYPE_CHECKING:
    from torch import Tensor, nn

__all__ = ["CheckedWire", "MemoryWire"]

_MOST_FORMS = 10_000
"""Forms of messages that are remembered as checked; batches of a random size have many."""


class CheckedWire(ABC):
    """Tensors may be those of any library, arrays or numbers, without a replica axis; they are copied."""

    def __init__(self, *, devices: int, classes: int | None, records: Any, name: str = "") -> None:
        self.record_ids = RecordIds(records)
        fields = {"schema_version": SCHEMA, "name": name, "devices": devices, "classes": classes}
        try:
            self.head = Head.model_validate({**fields, "records": self.record_ids.count})
        except ValidationError as error:
            problem = first_problem(error)
            raise problem.error(f"record: {problem.place}") from error
        self._over = False
        self._watch: Watch | None = None
        self.checks = Checks()
        self._followed = ExitStack()
        self._last_ids: tuple[Tensor, int, Tensor] | None = None
        self._known: dict[tuple[object, ...], Entry] = {}

    def up(
        self, round_: int, device: int, kind: str, tensors: Mapping[str, Any], records: Any = None
    ) -> Mapping[str, Tensor]:
        """Record a message from a device to the server, and return its tensors as the server gets them.

        `records` are the ids of the records it is computed from; without them it is taken to depend on all records.
        Messages of several rounds may be sent in any order. A training that goes on with the returned tensors can be
        compared in two worlds (`assert_twin_wires`).
        """
        self.settle()
        ids = None if records is None else self.checked_ids(records, f"{kind}: records")
        return self.delivered(*self.add("up", round_, device, kind, tensors, ids))

    def down(
        self, round_: int, device: int, kind: str, tensors: Mapping[str, Any], records: Any = None
    ) -> Mapping[str, Tensor]:
        """Record a message from the server to a device, and return its tensors as the device gets them, as in `up`."""
        self.settle()
        ids = None if records is None else self.checked_ids(records, f"{kind}: records")
        return self.delivered(*self.add("down", round_, device, kind, tensors, ids))

    def across(
        self, round_: int, sender: int, receiver: int, kind: str, tensors: Mapping[str, Any], records: Any = None
    ) -> Mapping[str, Tensor]:
        """Record a message from one device to another, and return its tensors as the receiver gets them, as in `up`."""
        self.settle()
        ids = None if records is None else self.checked_ids(records, f"{kind}: records")
        return self.delivered(*self.add("across", round_, sender, kind, tensors, ids, to=receiver))

    def watch(
        self,
        bottoms: Sequence[nn.Module],
        *,
        top: nn.Module | None = None,
        kind: str = "embeddings",
        output: Output | Sequence[Output] | None = None,
    ) -> None:
        """Record what the devices' modules send and receive, by hooks, from now on; `bottoms[m]` is device m's.

        Each training step is a round and begins with `batch`, or is a step of `ids`. A message is the output of a
        device's module, and the gradient by it. With `top`, the server's module, it is what that module is given
        instead: watch it if noise is added in between. `kind` is `embeddings`, or `logits` if the server sums them. Of
        outputs with several tensors, `output` names the one that is sent: a key, an attribute, a place or a function.
        """
        self.check_open("watch", "bottoms")
        if len(bottoms) != self.head.devices:
            raise InputError("watch: bottoms", f"{len(bottoms)} modules", f"{self.head.devices}, one for each device")
        self.settle()
        if self._watch is not None:
            self._watch.stop()
        self._watch = Watch(self, bottoms, top=top, kind=kind, output=output, first=self.next_round)

    def batch(self, records: Any) -> Any:
        """Begin a round of the watched modules with the records of these ids, which are returned."""
        watch = self._watching("batch", "records")
        last = self._last_ids
        known = last is not None and records is last[0] and records._version == last[1]
        ids = last[2] if last is not None and known else self.record_ids.numbers(records, "batch: records", once=False)
        if self.record_ids.names is None and hasattr(records, "_version"):
            self._last_ids = records, records._version, ids
        watch.batch(ids)
        return records

    def ids(self, loader: Iterable[Any], *, key: Any = None) -> Iterator[Any]:
        """The batches of a torch DataLoader; each begins a round when a watched module is given it.

        Positions are those in the data set inside of subsets and concatenations that has as many items as there are
        records. With a `key`, each batch says itself which records it is of: `batch[key]`, or `key(batch)`.
        """
        return self._with_ids(loader, key)

    def follow(self, loader: Any, *, key: Any = None) -> Any:
        """The loader, whose batches begin rounds from now on as those of `ids` do, for loops that others have written.

        It is as before when the recording ends.
        """
        self._watching("follow", "loader")
        inner = getattr(loader, "base_dataloader", loader)  # of a loader that another library has wrapped
        self._followed.enter_context(iterated_by(inner, lambda begin: self._with_ids(inner, key, begin)))
        return loader

    def _with_ids(self, loader: Any, key: Any, begin: Callable[[Any], Iterator[Any]] = iter) -> Iterator[Any]:
        watch = self._watching("ids", "loader")
        for ids, batch in batches_with_ids(loader, self.head.records, key, begin):
            numbers = self.record_ids.numbers(ids, "ids: key", once=False) if key is not None else ids
            seen = self.arrived(numbers, batch)
            watch.fetched(numbers, seen)
            yield seen

    def arrived(self, ids: Tensor, batch: Any) -> Any:
        """A loader's batch of these records, as the training gets it."""
        del ids
        return batch

    def began(self, ids: Tensor) -> None:
        """Is told of each round of watched modules that begins."""
        return

    def _watching(self, field: str, value: str) -> Watch:
        self.check_open(field, value)
        if self._watch is None:
            raise InputError(field, value, "wire.watch(bottoms) before")
        return self._watch

    def check_open(self, field: str, value: object) -> None:
        """Raise an InputError if the recording has ended."""
        if self._over:
            raise InputError(field, value, "a call inside the `with` block: the recording has ended")

    def settle(self) -> None:
        """Take over what the hooks of watched modules have seen and not handed over yet."""
        if self._watch is not None:
            self._watch.deliver()

    def conclude(self) -> None:
        """The training is over: check what can only be known now."""
        if self._watch is not None and not self._over:
            self._watch.conclude()

    def close(self) -> None:
        """End the recording: nothing is watched any more, and further calls are errors."""
        if self._watch is not None:
            self._watch.stop()
        self._followed.close()
        self._over = True

    checks_later: bool = False
    """Whether messages may reach it some rounds later, and it checks by itself that their values are finite."""

    @property
    def next_round(self) -> int:
        """The number of the first round that a watched training has."""
        return 0

    def check_values(self, kind: str, values: Mapping[str, Tensor]) -> None:
        """Raise an InputError unless all values are finite."""
        for name, value in values.items():
            check_finite(value, kind, name)

    delivers: bool = False
    """Whether watched modules go on with what `add` returns, as receivers of messages do."""

    @abstractmethod
    def keep(self, entry: Entry, tensors: Mapping[str, Tensor], records: Tensor | None) -> None:
        """Keep a copy of a message that has passed the checks; messages about one batch may share `records`."""

    def store(self, like: Entry, name: str, value: Tensor) -> bool:
        """Keep the values of a watched message before it is listed; this wire does not."""
        del like, name, value
        return False

    def enter(self, like: Entry, round_: int, ids: Tensor | None) -> None:
        """List a message whose values are stored."""
        raise TypeError(f"Expected {type(self).__name__} to define enter() beside store().")

    def between_rounds(self) -> None:
        """Is told that all messages of the rounds so far of a watched training are listed."""
        return

    def delivered(self, entry: Entry, tensors: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """What the receiver of a message gets: a copy of what was sent."""
        del entry
        return {name: value.clone() for name, value in tensors.items()}

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
        """Check a message and keep it; `ids` are what `checked_ids` has returned.

        Without `at_once`, a wire that collects messages may check that values are finite when it has many.
        """
        if self._over:
            self.check_open(f"{kind}: round", round_)
        if not isinstance(tensors, Mapping):
            raise InputError(f"{kind}: tensors", type(tensors).__name__, "a mapping of names to tensors")
        values = {name: host_tensor(value, name) for name, value in tensors.items()}
        form = way, kind, device, to, ids is None or len(ids), tuple((n, v.shape, v.dtype) for n, v in values.items())
        entry = self._known.get(form) if type(device) is int else None
        if entry is None:
            link = {"way": way, "device": device, "to": to, "kind": kind}
            self._known[form] = entry = self._checked_entry(link, values, None if ids is None else len(ids))
        if at_once or not self.checks_later:
            self.check_values(kind, values)
        entry = entry.at(_round(round_, kind))
        self.keep(entry, values, ids)
        return entry, values

    def _checked_entry(self, link: dict[str, Any], values: Mapping[str, Tensor], batch: int | None) -> Entry:
        """The entry of messages of one form, which is checked once: checks take longer than a copy of the values."""
        if len(self._known) >= _MOST_FORMS:
            self._known.clear()
        kind = check_kind_name(link["kind"])
        device = self._device(link["device"], f"{kind}: device")
        if link["to"] is not None and self._device(link["to"], f"{kind}: receiver") == device:
            raise InputError(f"{kind}: receiver", link["to"], "another device than the sender")
        for name, value in values.items():
            check_type(kind, name, value, f"{kind}: {name}")
        check_shapes(kind, {name: value.shape for name, value in values.items()}, batch, self.head.classes)
        rows = {name: value.shape[0] if value.dim() else None for name, value in values.items()}
        try:
            return Entry.model_validate({**link, "device": device, "round": 0, "rows": rows})
        except ValidationError as error:
            first = error.errors()[0]
            expected = "names of letters and digits"
            raise InputError(f"{kind}: {first['loc'][-2]}", first["input"], expected) from error

    def _device(self, device: Any, field: str) -> int:
        number = _whole(device, field)
        if not 0 <= number < self.head.devices:
            raise InputError(field, number, f"0 to {self.head.devices - 1}")
        return number

    def checked_ids(self, records: Any, field: str) -> Tensor:
        """The numbers of these records; those of the last call if it was about the same unchanged tensor."""
        last = self._last_ids
        if last is not None and records is last[0] and records._version == last[1]:
            return last[2]
        ids = self.record_ids.numbers(records, field)
        if self.record_ids.names is None and hasattr(records, "_version"):
            self._last_ids = records, records._version, ids
        return ids


class MemoryWire(CheckedWire):
    """Keeps the messages of one training in memory, and the labels if it is told them."""

    def __init__(self, *, devices: int, classes: int | None, records: Any) -> None:
        super().__init__(devices=devices, classes=classes, records=records)
        self.transcript = Transcript()
        self.known_labels: Tensor | None = None
        """(records,) the class of each record, -1 where it is not known; None if no labels were told."""

    def labels(self, labels: Any, *, records: Any = None, canaries: Any = None) -> None:
        """Keep the labels trained on; the same call as that of a recording, for which canaries count, too."""
        del canaries
        self.check_open("labels", "labels")
        classes = labels_of(labels, self.head.classes).classes
        if classes is None:
            return
        known = classes.new_full((self.head.records,), -1)
        ids = known if records is None else self.checked_ids(records, "labels: records")
        if classes.shape != ids.shape:
            raise InputError("labels", tuple(classes.shape), f"one label for each of {len(ids)} records")
        known[slice(None) if records is None else ids] = classes
        self.known_labels = known

    def features(self, device: int, block: Any, *, records: Any = None, sensitive_column: int | None = None) -> None:
        """Ignore a device's features, by which a recording scores attacks."""
        del device, block, records, sensitive_column

    def members(self, canaries: Any) -> None:
        """Ignore membership canaries, which count in a recording."""
        del canaries

    def accuracy(self, accuracy: float, *, tests: int) -> None:
        """Ignore the trained model's accuracy, which a recording keeps for its report."""
        del accuracy, tests

    def keep(self, entry: Entry, tensors: Mapping[str, Tensor], records: Tensor | None) -> None:
        copies = {name: value.clone().unsqueeze(0) for name, value in tensors.items()}
        self.transcript.messages.append(message_of(entry, copies, records))


def _round(value: Any, kind: str) -> int:
    number = value if type(value) is int else _whole(value, f"{kind}: round")
    if number < 0:
        raise InputError(f"{kind}: round", number, "0 or more")
    return number


def _whole(value: Any, field: str) -> int:
    try:
        return index(value)
    except TypeError as error:
        raise InputError(field, value, "a whole number") from error
