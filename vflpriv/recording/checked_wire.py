"""The wire that a user's own system talks to: every call is checked, and what is kept of a message is left open."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from operator import index
from typing import Any

import torch
from pydantic import ValidationError
from torch import Tensor

from vflpriv.core.wire import Transcript
from vflpriv.errors import InputError
from vflpriv.recording.transcripts import SCHEMA, Entry, Head, check_kind, check_shapes, check_values, message_of

__all__ = ["CheckedWire", "MemoryWire"]


class CheckedWire(ABC):
    """Tensors may be torch tensors, NumPy arrays or numbers, without a replica axis; they are copied."""

    def __init__(self, *, devices: int, classes: int, records: int, name: str = "") -> None:
        said = {"schema_version": SCHEMA, "name": name, "devices": devices, "classes": classes, "records": records}
        try:
            self.head = Head.model_validate(said)
        except ValidationError as error:
            first = error.errors()[0]
            raise InputError(f"record: {first['loc'][-1]}", first["input"], first["msg"]) from error
        self._round = -1

    def up(self, round_: int, device: int, kind: str, tensors: Mapping[str, Any], records: Any = None) -> None:
        """Device to server. `records` are the ids of the records it is computed from; without them, all are meant."""
        self._add("up", round_, device, kind, tensors, records)

    def down(self, round_: int, device: int, kind: str, tensors: Mapping[str, Any], records: Any = None) -> None:
        """Server to device."""
        self._add("down", round_, device, kind, tensors, records)

    @abstractmethod
    def keep(self, entry: Entry, tensors: Mapping[str, Tensor], records: Tensor | None) -> None:
        """Take a message that fits; its round is this one or a later one."""

    def _add(self, way: str, round_: int, device: int, kind: str, tensors: Mapping[str, Any], records: Any) -> None:
        kind = check_kind(kind)
        round_, device = _whole(round_, f"{kind}: round"), _whole(device, f"{kind}: device")
        if not 0 <= device < self.head.devices:
            raise InputError(f"{kind}: device", device, f"0 to {self.head.devices - 1}")
        if round_ < max(0, self._round):
            raise InputError(f"{kind}: round", round_, f"a round that is not over, {max(0, self._round)} or later")
        ids = None if records is None else self.ids(records, f"{kind}: records")
        held = {name: plain(value, f"{kind}: {name}") for name, value in tensors.items()}
        for name, value in held.items():
            check_values(kind, value, f"{kind}: {name}")
        shapes = {name: value.shape for name, value in held.items()}
        check_shapes(kind, shapes, None if ids is None else len(ids), self.head.classes)
        if "records" in held:
            raise InputError(f"{kind}: tensors", "records", "another name: the ids are called so")
        said = {"round": round_, "way": way, "device": device, "kind": kind, "tensors": tuple(held)}
        try:
            entry = Entry.model_validate({**said, "records": ids is not None})
        except ValidationError as error:
            first = error.errors()[0]
            raise InputError(f"{kind}: {first['loc'][0]}", first["input"], "names of letters and digits") from error
        self.keep(entry, held, ids)
        self._round = round_

    def ids(self, records: Any, field: str) -> Tensor:
        """Record ids: whole numbers, each once."""
        ids = plain(records, field)
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


def plain(value: Any, field: str) -> Tensor:
    """A copy on the host."""
    try:
        tensor = value.detach() if isinstance(value, Tensor) else torch.as_tensor(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(field, type(value).__name__, "a tensor, an array or numbers") from error
    return tensor.to("cpu", copy=True).contiguous()


def _whole(value: Any, field: str) -> int:
    try:
        return index(value)
    except TypeError as error:
        raise InputError(field, value, "a whole number") from error
