"""Reads transcripts from disk: every file is checked, and whatever does not fit is an error of one line."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel, ValidationError
from safetensors import SafetensorError, safe_open

from vflpriv.core.canaries import Canaries
from vflpriv.core.wire import Message, Transcript
from vflpriv.errors import InputError, wanted
from vflpriv.recording.checks import check_shapes, check_values, message_of
from vflpriv.recording.format import (
    ANSWERS,
    HEAD,
    IDS,
    SCHEMA,
    SHARDS,
    Entries,
    Entry,
    Head,
    batch_key,
    column_key,
    kept_key,
    shard_name,
)

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Answers", "Continued", "Recording", "read_answers", "read_continued", "read_names", "read_transcript"]

M = TypeVar("M", bound=BaseModel)
_MOST_BYTES = 10_000_000
"""The most bytes of the head, which has a few numbers and one line for each kind of message."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Recording:
    """The messages of a recorded training, in order, and its head."""

    head: Head
    transcript: Transcript
    rounds: int


@dataclass(frozen=True, eq=False, kw_only=True)
class Answers:
    """The values that attacks are scored by, in no adversary's view: labels (N,), -1 where unknown, and canaries.

    The labels of a regression are its `targets` (N,), NaN where unknown, and no class numbers.
    """

    labels: Tensor
    canaries: Canaries | None
    targets: Tensor | None = None


@dataclass(frozen=True, kw_only=True)
class Continued:
    """The part of a transcript that is there when a recording goes on with it."""

    files: int = 0
    rounds: int = 0
    messages: Mapping[str, int] = field(default_factory=dict)


def read_transcript(folder: Path) -> Recording:
    """All messages of a transcript by round, and in a round as sent; of an unfinished one, those in its complete files.

    Files are mapped into memory: a tensor takes memory of its own only where something is computed with it.
    """
    head = _read_head(folder)
    messages: list[Message] = []
    for path in _shards(folder, head):
        messages += _read_shard(path, head)
    if not messages:
        raise InputError("transcript", str(folder), "at least one message")
    messages.sort(key=lambda message: message.round)
    rounds = messages[-1].round + 1
    if head.rounds is not None and head.rounds != rounds:
        raise InputError(f"{HEAD}: rounds", head.rounds, f"{rounds}, as the messages say")
    return Recording(head=head, transcript=Transcript(messages=messages), rounds=rounds)


def read_continued(folder: Path, head: Head, names: Sequence[str | int] | None) -> Continued:
    """What is in the files of a transcript that a recording with this head goes on with."""
    before = _read_head(folder)
    for name in ("devices", "classes", "records", "precision"):
        if getattr(before, name) != getattr(head, name):
            raise InputError(f"record: {name}", getattr(head, name), f"{getattr(before, name)}, as before")
    if names is not None and read_names(folder, before) != tuple(names):
        raise InputError("record: records", f"{len(names)} ids", "the same ids as before, in the same order")
    paths = _shards(folder, before.model_copy(update={"files": None}))
    entries = [entry for path in paths for entry in _entries(path)]
    rounds = 1 + max((entry.round for entry in entries), default=-1)
    return Continued(files=len(paths), rounds=rounds, messages=Counter(entry.kind for entry in entries))


def read_names(folder: Path, head: Head) -> tuple[str | int, ...] | None:
    """The ids of the records in the order of their numbers; None if they are numbered and have no others."""
    path = folder / IDS
    if not path.exists():
        return None
    try:
        names = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(IDS, str(path), f"a JSON list of ids ({error})") from error
    fits = isinstance(names, list) and len(names) == head.records == len(set(map(repr, names)))
    if not fits or not all(isinstance(name, str | int) and not isinstance(name, bool) for name in names):
        raise InputError(IDS, str(path), f"a list of {head.records} different strings or whole numbers")
    return tuple(names)


def read_answers(folder: Path, head: Head) -> Answers | None:
    """The recorded labels and canaries, or None if there are none."""
    import torch

    path = folder / ANSWERS
    if not path.exists():
        return None
    tensors = dict(_tensors(path))
    if head.classes is None:
        return _targets(tensors, head)
    planted = {"canaries", "canary_labels", "worlds"}
    if set(tensors) not in ({"records", "labels"}, {"records", "labels"} | planted):
        raise InputError(f"{ANSWERS}: tensors", sorted(tensors), "records and labels, with or without canaries")
    for name, value in tensors.items():
        if value.dtype != torch.int64:
            raise InputError(f"{ANSWERS}: {name}", str(value.dtype), "int64")
    ids = _ids(tensors["records"], f"{ANSWERS}: records", head)
    known = _between(tensors["labels"], f"{ANSWERS}: labels", (len(ids),), head.classes)
    labels = torch.full((head.records,), -1).index_copy(0, ids, known)
    canaries = _canaries(tensors, labels, head.classes, head) if "canaries" in tensors else None
    return Answers(labels=labels, canaries=canaries)


def _targets(tensors: Mapping[str, Tensor], head: Head) -> Answers:
    """The targets of a regression."""
    import torch

    if set(tensors) != {"records", "targets"}:
        raise InputError(f"{ANSWERS}: tensors", sorted(tensors), "records and targets, since there are no classes")
    ids, targets = _ids(tensors["records"], f"{ANSWERS}: records", head), tensors["targets"]
    if targets.dtype != torch.float64 or targets.shape != ids.shape or not bool(targets.isfinite().all()):
        raise InputError(f"{ANSWERS}: targets", f"{targets.dtype} {tuple(targets.shape)}", "a finite float64 a record")
    every = torch.full((head.records,), torch.nan, dtype=torch.float64).index_copy(0, ids, targets)
    return Answers(labels=torch.full((head.records,), -1), canaries=None, targets=every)


def _canaries(tensors: Mapping[str, Tensor], labels: Tensor, classes: int, head: Head) -> Canaries:
    """The planted canaries, whose coins must agree with the recorded labels."""
    records = _ids(tensors["canaries"], f"{ANSWERS}: canaries", head)
    pairs = _between(tensors["canary_labels"], f"{ANSWERS}: canary_labels", (len(records), 2), classes)
    worlds = _between(tensors["worlds"], f"{ANSWERS}: worlds", (len(records),), 2)
    if bool((pairs[:, 0] == pairs[:, 1]).any()):
        raise InputError(f"{ANSWERS}: canary_labels", "the same label twice", "two different labels for each canary")
    if bool((pairs.gather(1, worlds.unsqueeze(1)).squeeze(1) != labels[records]).any()):
        raise InputError(f"{ANSWERS}: worlds", "coins", "the coins by which the recorded labels were chosen")
    return Canaries(records=tuple(records.tolist()), labels=pairs, worlds=worlds.unsqueeze(0))


def _read_head(folder: Path) -> Head:
    path = folder / HEAD
    try:
        with path.open("rb") as file:
            content = file.read(_MOST_BYTES + 1)
        if len(content) > _MOST_BYTES:
            raise InputError(HEAD, str(path), f"at most {_MOST_BYTES // 10**6} MB")
        raw = json.loads(content.decode("utf-8-sig"))
    except OSError as error:
        raise InputError("--transcript", str(folder), f"a folder with {HEAD} ({error.strerror})") from error
    except InputError:
        raise
    except (ValueError, RecursionError) as error:
        raise InputError(HEAD, str(path), f"valid JSON ({error})") from error
    version = raw.get("schema_version") if isinstance(raw, dict) else None
    if version != SCHEMA:
        raise InputError(f"{HEAD}: schema_version", version, f"{SCHEMA}, the one version there is")
    return _validated(Head, json.dumps(raw), HEAD)


def _validated(model: type[M], text: str, where: str) -> M:
    try:
        return model.model_validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"])) or "content"
        raise InputError(f"{where}: {place}", first.get("input"), wanted(first["msg"])) from error


def _shards(folder: Path, head: Head) -> list[Path]:
    """The files with messages, which must be numbered without a gap."""
    present = {path.name for path in folder.glob(SHARDS)}
    count = len(present) if head.files is None else head.files
    if len(present) > count:
        raise InputError(f"{HEAD}: files", count, f"{len(present)}, as many as there are")
    # One more than there are: whatever the head says, no longer list is made of it.
    names = [shard_name(number) for number in range(min(count, len(present) + 1))]
    for name in names:
        if name not in present or not (folder / name).is_file():
            raise InputError("transcript", name, "a file that is there: the recording has a gap")
    return [folder / name for name in names]


def _entries(path: Path) -> tuple[Entry, ...]:
    """The list of messages in one file."""
    metadata = _metadata(path)
    if "messages" not in metadata:
        raise InputError(path.name, "metadata", "the list of its messages")
    return _validated(Entries, metadata["messages"], path.name).messages


def _read_shard(path: Path, head: Head) -> Iterator[Message]:
    """The messages of one file."""
    entries, tensors = _entries(path), dict(_tensors(path))
    numbers = sorted({entry.batch for entry in entries if entry.batch is not None})
    listed = {column_key(entry, name) for entry in entries for name in entry.rows}
    listed |= {batch_key(number) for number in numbers}
    listed |= {kept_key(number) for number in numbers if head.sampled is not None}
    if listed != set(tensors):
        different = sorted(listed ^ set(tensors))[0]
        raise InputError(path.name, different, "the tensors that its messages list, and no others")
    batches = {n: _ids(tensors[batch_key(n)], f"{path.name}: {batch_key(n)}", head) for n in numbers}
    kept = {n: _kept(tensors[kept_key(n)], path.name, len(batches[n])) for n in numbers if kept_key(n) in tensors}
    ends: Counter[str] = Counter()
    for entry in entries:
        own = {name: _part(tensors, column_key(entry, name), rows, ends, path) for name, rows in entry.rows.items()}
        batch = None if entry.batch is None else batches[entry.batch]
        yield _message(entry, own, batch, None if entry.batch is None else kept.get(entry.batch), head)
    for key, end in ends.items():
        if end != len(tensors[key]):
            raise InputError(f"{path.name}: {key}", f"{len(tensors[key])} rows", f"{end}, as its messages say")


def _part(tensors: Mapping[str, Tensor], key: str, rows: int | None, ends: Counter[str], path: Path) -> Tensor:
    """The next rows of a column, or its next number."""
    column, start = tensors[key], ends[key]
    ends[key] = end = start + (1 if rows is None else rows)
    if column.dim() == 0 or end > len(column) or (rows is None and column.dim() > 1):
        raise InputError(f"{path.name}: {key}", tuple(column.shape), f"at least {end} rows, as its messages say")
    return column[start] if rows is None else column[start:end]


def _kept(positions: Tensor, where: str, batch: int) -> Tensor:
    """The positions, in order, of the records of a batch whose rows are kept."""
    import torch

    in_order = positions.dim() == 1 and bool((positions[1:] > positions[:-1]).all())
    if positions.dtype != torch.int64 or not in_order:
        raise InputError(f"{where}: kept", f"{positions.dtype} {tuple(positions.shape)}", "positions in order, int64")
    return _between(positions, f"{where}: kept", (len(positions),), batch)


def _message(
    entry: Entry, tensors: Mapping[str, Tensor], records: Tensor | None, kept: Tensor | None, head: Head
) -> Message:
    where = f"round {entry.round}: {entry.kind}"
    for field_, device in (("device", entry.device), ("to", entry.to)):
        if device is not None and device >= head.devices:
            raise InputError(f"{where}: {field_}", device, f"0 to {head.devices - 1}")
    if (entry.to is not None) != (entry.way == "across") or entry.to == entry.device:
        raise InputError(f"{where}: to", entry.to, "another device if the message goes across, else nothing")
    shapes = {name: list(value.shape) for name, value in tensors.items()}
    for name, axis in entry.cut.items():
        rows = None if kept is None else len(kept)
        if name not in shapes or axis >= len(shapes[name]) or shapes[name][axis] != rows:
            raise InputError(f"{where}: cut", {name: axis}, "tensors with a row for each record that is kept")
        shapes[name][axis] = 0 if records is None else len(records)
    check_shapes(entry.kind, shapes, None if records is None else len(records), head.classes)
    for name, value in tensors.items():
        check_values(entry.kind, value, f"{where}: {name}")
    return message_of(entry, tensors, records, kept)


def _ids(ids: Tensor, where: str, head: Head) -> Tensor:
    """Record ids, each of which occurs once."""
    import torch

    if ids.dtype != torch.int64 or ids.dim() != 1:
        raise InputError(where, f"{ids.dtype} {tuple(ids.shape)}", "a list of int64")
    _between(ids, where, (len(ids),), head.records)
    if len(ids.unique()) != len(ids):
        raise InputError(where, ids.tolist(), "no record twice")
    return ids


def _between(values: Tensor, where: str, shape: tuple[int, ...], below: int) -> Tensor:
    """Whole numbers of this shape, from 0 to `below` - 1."""
    if tuple(values.shape) != shape:
        raise InputError(where, tuple(values.shape), f"the shape {shape}")
    if values.numel() and not 0 <= int(values.min()) <= int(values.max()) < below:
        raise InputError(where, [int(values.min()), int(values.max())], f"0 to {below - 1}")
    return values


def _metadata(path: Path) -> Mapping[str, str]:
    with _opened(path) as file:
        return dict(file.metadata() or {})


def _tensors(path: Path) -> Iterator[tuple[str, Tensor]]:
    with _opened(path) as file:
        for name in file.keys():  # noqa: SIM118 (not a mapping)
            yield name, file.get_tensor(name)


def _opened(path: Path) -> Any:
    try:
        return safe_open(path, framework="pt")
    except (SafetensorError, OSError) as error:
        raise InputError("transcript", path.name, f"a whole safetensors file ({error})") from error
