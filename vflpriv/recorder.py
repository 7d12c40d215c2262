"""The recorder: a user's own system says what it sends, and a transcript is on disk, round by round."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from pydantic import ValidationError
from safetensors.torch import save_file
from torch import Tensor

from vflpriv.canaries import Canaries
from vflpriv.errors import InputError
from vflpriv.transcript_format import (
    ANSWERS,
    HEAD,
    SCHEMA,
    Entries,
    Entry,
    Head,
    check_kind,
    check_shapes,
    replace_file,
    shard_name,
)

__all__ = ["RecordingWire", "record"]


@contextmanager
def record(
    folder: str | Path,
    *,
    devices: int,
    classes: int,
    records: int,
    name: str = "",
    rounds_per_file: int = 1,
) -> Iterator[RecordingWire]:
    """Record the messages of a training into a folder, which must not hold a transcript yet.

    Every `rounds_per_file` rounds are written as soon as the next one begins, so that a killed training leaves a
    transcript of all rounds before. After an error the unfinished round is left out.
    """
    wire = RecordingWire(Path(folder), devices, classes, records, name or Path(folder).name, rounds_per_file)
    try:
        yield wire
    except BaseException:
        wire.abandon()
        raise
    wire.finish()


class RecordingWire:
    """What `record` hands out. Tensors may be torch tensors or NumPy arrays, without a replica axis."""

    def __init__(self, folder: Path, devices: int, classes: int, records: int, name: str, per_file: int) -> None:
        said = {"schema_version": SCHEMA, "name": name, "devices": devices, "classes": classes, "records": records}
        try:
            self._head = Head.model_validate(said)
        except ValidationError as error:
            first = error.errors()[0]
            raise InputError(f"record: {first['loc'][-1]}", first["input"], first["msg"]) from error
        if per_file < 1:
            raise InputError("record: rounds_per_file", per_file, "a whole number >= 1")
        if (folder / HEAD).exists():
            raise InputError("record: folder", str(folder), "a folder without a transcript")
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError("record: folder", str(folder), f"a folder that can be made ({error.strerror})") from error
        self._folder, self._per_file = folder, per_file
        self._round, self._files = -1, 0
        self._pending: list[tuple[Entry, dict[str, Tensor]]] = []
        self._counts: Counter[str] = Counter()
        self._shapes: dict[str, dict[str, tuple[int, ...]]] = {}
        self._write_head()

    def up(self, round_: int, device: int, kind: str, tensors: Mapping[str, Any], records: Any = None) -> None:
        """Device to server. `records` are the ids of the records it is computed from; without them, all are meant."""
        self._add("up", round_, device, kind, tensors, records)

    def down(self, round_: int, device: int, kind: str, tensors: Mapping[str, Any], records: Any = None) -> None:
        """Server to device."""
        self._add("down", round_, device, kind, tensors, records)

    def labels(self, labels: Any, *, records: Any = None, canaries: Canaries | None = None) -> None:
        """The labels trained on, of all records or of these, by which attacks are scored; and `plant`'s canaries.

        They are kept in a file of their own, which no view reads.
        """
        truth = _plain(labels, "labels").long()
        ids = torch.arange(self._head.records) if records is None else self._ids(records, "labels: records")
        if truth.shape != ids.shape:
            raise InputError("labels", tuple(truth.shape), f"one label for each of {len(ids)} records")
        if len(truth) and not 0 <= int(truth.min()) <= int(truth.max()) < self._head.classes:
            raise InputError("labels", [int(truth.min()), int(truth.max())], f"0 to {self._head.classes - 1}")
        answers = {"records": ids, "labels": truth}
        if canaries is not None:
            answers["canaries"] = self._ids(torch.tensor(canaries.records), "labels: canaries")
            answers |= {"canary_labels": canaries.labels.long(), "worlds": canaries.worlds[0].long()}
        answers = {key: value.contiguous() for key, value in answers.items()}
        replace_file(self._folder / ANSWERS, lambda path: save_file(answers, path))

    def accuracy(self, accuracy: float, *, tests: int) -> None:
        """How often the trained model is right, on so many test records."""
        if not 0 <= accuracy <= 1 or tests < 1:
            raise InputError("accuracy", (accuracy, tests), "a share of at least one test record")
        self._head = self._head.model_copy(update={"accuracy": float(accuracy), "tests": int(tests)})

    def finish(self) -> None:
        """Write what is left, and say that the recording is whole."""
        self._flush()
        counted = {"finished": True, "rounds": self._round + 1, "files": self._files, "messages": dict(self._counts)}
        self._head = self._head.model_copy(update={**counted, "shapes": self._shapes})
        self._write_head()

    def abandon(self) -> None:
        """Write the rounds that are over, and leave the recording unfinished."""
        self._pending = [(entry, tensors) for entry, tensors in self._pending if entry.round < self._round]
        self._flush()

    def _add(self, way: str, round_: int, device: int, kind: str, tensors: Mapping[str, Any], records: Any) -> None:
        round_, device, kind = int(round_), int(device), check_kind(kind)
        if not 0 <= device < self._head.devices:
            raise InputError(f"{kind}: device", device, f"0 to {self._head.devices - 1}")
        if round_ < max(0, self._round):
            raise InputError(f"{kind}: round", round_, f"a round that is not over, {max(0, self._round)} or later")
        ids = None if records is None else self._ids(records, f"{kind}: records")
        plain = {name: _plain(value, f"{kind}: {name}") for name, value in tensors.items()}
        shapes = {name: tuple(value.shape) for name, value in plain.items()}
        check_shapes(kind, shapes, None if ids is None else len(ids), self._head.classes)
        try:
            entry = Entry.model_validate(
                {
                    "round": round_,
                    "way": way,
                    "device": device,
                    "kind": kind,
                    "tensors": tuple(plain),
                    "records": ids is not None,
                }
            )
        except ValidationError as error:
            first = error.errors()[0]
            raise InputError(f"{kind}: {first['loc'][0]}", first["input"], "names of letters and digits") from error
        if "records" in plain:
            raise InputError(f"{kind}: tensors", "records", "another name: the ids are called so")
        self._begin(round_)
        self._pending.append((entry, plain if ids is None else {**plain, "records": ids}))
        self._shapes.setdefault(kind, shapes)

    def _begin(self, round_: int) -> None:
        """Rounds before this one are over."""
        if round_ > self._round >= 0 and round_ // self._per_file != self._round // self._per_file:
            self._flush()
        self._round = round_

    def _flush(self) -> None:
        if not self._pending:
            return
        listed = Entries(messages=tuple(entry for entry, _ in self._pending)).model_dump_json()
        tensors = {f"{i}/{name}": value for i, (_, held) in enumerate(self._pending) for name, value in held.items()}
        path = self._folder / shard_name(self._files)
        replace_file(path, lambda temporary: save_file(tensors, temporary, metadata={"messages": listed}))
        self._counts.update(entry.kind for entry, _ in self._pending)
        self._files, self._pending = self._files + 1, []

    def _ids(self, records: Any, field: str) -> Tensor:
        ids = _plain(records, field)
        if ids.dim() != 1 or ids.is_floating_point() or ids.dtype == torch.bool:
            raise InputError(field, tuple(ids.shape), "a list of whole numbers")
        ids = ids.long()
        if len(ids) and not 0 <= int(ids.min()) <= int(ids.max()) < self._head.records:
            raise InputError(field, [int(ids.min()), int(ids.max())], f"0 to {self._head.records - 1}")
        if len(ids.unique()) != len(ids):
            raise InputError(field, ids.tolist(), "no record twice")
        return ids

    def _write_head(self) -> None:
        text = json.dumps(json.loads(self._head.model_dump_json()), indent=2) + "\n"
        replace_file(self._folder / HEAD, lambda path: path.write_text(text, encoding="utf-8"))


def _plain(value: Any, field: str) -> Tensor:
    """A copy on the host, of finite numbers."""
    try:
        tensor = value.detach() if isinstance(value, Tensor) else torch.as_tensor(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(field, type(value).__name__, "a tensor, an array or numbers") from error
    tensor = tensor.to("cpu", copy=True).contiguous()
    if tensor.is_complex():
        raise InputError(field, str(tensor.dtype), "real numbers")
    if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
        raise InputError(field, "NaN or infinity", "finite numbers")
    return tensor
