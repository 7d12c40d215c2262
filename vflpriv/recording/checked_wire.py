"""The wire that a user's own system sends its messages through: it checks every call, and subclasses keep messages."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import index
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from vflpriv.core.wire import Transcript
from vflpriv.errors import InputError
from vflpriv.recording.checks import check_kind_name, check_shapes, check_values, message_of
from vflpriv.recording.format import SCHEMA, Entry, Head
from vflpriv.recording.watching import Watch, batches_with_ids

if TYPE_CHECKING:
    from torch import Tensor, nn

__all__ = ["CheckedWire", "MemoryWire", "host_copy"]


class CheckedWire(ABC):
    """Tensors may be torch tensors, NumPy arrays or numbers, without a replica axis; they are copied."""

    def __init__(self, *, devices: int, classes: int, records: int, name: str = "") -> None:
        fields = {"schema_version": SCHEMA, "name": name, "devices": devices, "classes": classes, "records": records}
        try:
            self.head = Head.model_validate(fields)
        except ValidationError as error:
            first = error.errors()[0]
            raise InputError(f"record: {first['loc'][-1]}", first["input"], first["msg"]) from error
        self._round = -1
        self._over = False
        self._watch: Watch | None = None

    def up(
        self, round_: int, device: int, kind: str, tensors: Mapping[str, Any], records: Any = None
    ) -> Mapping[str, Tensor]:
        """Record a message from a device to the server, and return its tensors as the server gets them.

        `records` are the ids of the records it is computed from; without them it is taken to depend on all records.
        A training that goes on with the returned tensors can be compared in two worlds (`assert_twin_wires`).
        """
        return self._add("up", round_, device, kind, tensors, records)

    def down(
        self, round_: int, device: int, kind: str, tensors: Mapping[str, Any], records: Any = None
    ) -> Mapping[str, Tensor]:
        """Record a message from the server to a device, and return its tensors as the device gets them, as in `up`."""
        return self._add("down", round_, device, kind, tensors, records)

    def watch(self, bottoms: Sequence[nn.Module], *, top: nn.Module | None = None, kind: str = "embeddings") -> None:
        """Record what the devices' modules send and receive, by hooks, from now on; `bottoms[m]` is device m's.

        Each training step is a round and begins with `batch`, or is a step of `ids`. A message is the output of a
        device's module, and the gradient by it. With `top`, the server's module, it is what that module is given
        instead: watch it if noise is added in between. `kind` is `embeddings`, or `logits` if the server sums them.
        """
        self.check_open("watch", "bottoms")
        if len(bottoms) != self.head.devices:
            raise InputError("watch: bottoms", f"{len(bottoms)} modules", f"{self.head.devices}, one for each device")
        if self._watch is not None:
            self._watch.stop()
        self._watch = Watch(self, bottoms, top=top, kind=kind)

    def batch(self, records: Any) -> Any:
        """Begin a round of the watched modules with the records of these ids, which are returned."""
        self.check_open("batch", "records")
        if self._watch is None:
            raise InputError("batch", "records", "wire.watch(bottoms) before")
        self._watch.batch(self.checked_ids(records, "batch: records"))
        return records

    def ids(self, loader: Iterable[Any]) -> Iterator[Any]:
        """The batches of a torch DataLoader, each of which begins a round with its positions in the data set as ids."""
        return batches_with_ids(loader, self.batch)

    def check_open(self, field: str, value: object) -> None:
        """Raise an InputError if the recording has ended."""
        if self._over:
            raise InputError(field, value, "a call inside the `with` block: the recording has ended")

    def close(self) -> None:
        """End the recording: nothing is watched any more, and further calls are errors."""
        if self._watch is not None:
            self._watch.stop()
        self._over = True

    @abstractmethod
    def keep(self, entry: Entry, tensors: Mapping[str, Tensor], records: Tensor | None) -> None:
        """Keep a message that has passed the checks; its round is the current one or a later one."""

    def delivered(self, entry: Entry, tensors: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """What the receiver of a message gets: a copy of what was sent."""
        del entry
        return {name: value.clone() for name, value in tensors.items()}

    def _add(
        self, way: str, round_: int, device: int, kind: str, tensors: Mapping[str, Any], records: Any
    ) -> Mapping[str, Tensor]:
        kind = check_kind_name(kind)
        self.check_open(f"{kind}: round", round_)
        round_, device = _whole(round_, f"{kind}: round"), _whole(device, f"{kind}: device")
        if not 0 <= device < self.head.devices:
            raise InputError(f"{kind}: device", device, f"0 to {self.head.devices - 1}")
        if round_ < max(0, self._round):
            raise InputError(f"{kind}: round", round_, f"a round that is not over, {max(0, self._round)} or later")
        ids = None if records is None else self.checked_ids(records, f"{kind}: records")
        copies = self._copied(kind, tensors, None if ids is None else len(ids))
        fields = {"round": round_, "way": way, "device": device, "kind": kind, "tensors": tuple(copies)}
        try:
            entry = Entry.model_validate({**fields, "records": ids is not None})
        except ValidationError as error:
            first = error.errors()[0]
            raise InputError(f"{kind}: {first['loc'][0]}", first["input"], "names of letters and digits") from error
        self.keep(entry, copies, ids)
        self._round = round_
        return self.delivered(entry, copies)

    def _copied(self, kind: str, tensors: Mapping[str, Any], batch: int | None) -> dict[str, Tensor]:
        """Copies of a message's tensors, checked."""
        if not isinstance(tensors, Mapping):
            raise InputError(f"{kind}: tensors", type(tensors).__name__, "a mapping of names to tensors")
        copies = {name: host_copy(value, f"{kind}: {name}") for name, value in tensors.items()}
        for name, value in copies.items():
            check_values(kind, value, f"{kind}: {name}")
        check_shapes(kind, {name: value.shape for name, value in copies.items()}, batch, self.head.classes)
        if "records" in copies:
            raise InputError(f"{kind}: tensors", "records", "another name, since files keep the record ids under it")
        return copies

    def checked_ids(self, records: Any, field: str) -> Tensor:
        """Record ids: whole numbers, each once."""
        import torch

        ids = host_copy(records, field)
        if ids.dim() != 1 or (len(ids) and (ids.is_floating_point() or ids.dtype == torch.bool)):
            raise InputError(field, f"{ids.dtype} {tuple(ids.shape)}", "a list of whole numbers")
        ids = ids.long()
        if len(ids) and not 0 <= int(ids.min()) <= int(ids.max()) < self.head.records:
            raise InputError(field, [int(ids.min()), int(ids.max())], f"0 to {self.head.records - 1}")
        if len(ids.unique()) != len(ids):
            raise InputError(field, ids.tolist(), "no record twice")
        return ids


class MemoryWire(CheckedWire):
    """Keeps the messages of one training in memory."""

    def __init__(self, *, devices: int, classes: int, records: int) -> None:
        super().__init__(devices=devices, classes=classes, records=records)
        self.transcript = Transcript()

    def keep(self, entry: Entry, tensors: Mapping[str, Tensor], records: Tensor | None) -> None:
        self.transcript.messages.append(message_of(entry, tensors, records))


def host_copy(value: Any, field: str) -> Tensor:
    """A copy of a tensor, an array or numbers, without its graph, in the host's memory."""
    import torch

    try:
        tensor = value.detach() if isinstance(value, torch.Tensor) else torch.as_tensor(value)
        if tensor.layout == torch.strided and not tensor.is_nested:
            return tensor.to("cpu", copy=True).contiguous()
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise InputError(field, type(value).__name__, "a tensor, an array or numbers") from error
    raise InputError(field, f"a sparse tensor ({tensor.layout})", "a dense tensor: to_dense() makes one")


def _whole(value: Any, field: str) -> int:
    try:
        return index(value)
    except TypeError as error:
        raise InputError(field, value, "a whole number") from error
