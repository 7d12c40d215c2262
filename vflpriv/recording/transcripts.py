"""Reads transcripts from disk: every file is checked, and whatever does not fit is an error of one line."""

from __future__ import annotations

import json
from codecs import BOM_UTF8
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from sys import intern
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from pydantic import BaseModel, ValidationError

from vflpriv.common.files import SEAL, SIGNING_KEY, Content, opened, parsed_json, regular, signing_key
from vflpriv.core.canaries import Canaries
from vflpriv.core.wire import Message, Transcript
from vflpriv.errors import InputError, first_problem
from vflpriv.recording.files.checks import check_shapes, check_values, message_of
from vflpriv.recording.files.format import (
    ANSWERS,
    HEAD,
    IDS,
    SCHEMA,
    SHARDS,
    UNPROTECTED,
    Entries,
    Entry,
    Head,
    batch_key,
    column_key,
    end_of,
    kept_key,
    link_of,
    shard_name,
)
from vflpriv.recording.files.scoring_files import FEATURES, MEMBERS
from vflpriv.recording.files.stored import (
    Place,
    StoredFile,
    StoredFiles,
    StoredTensors,
    content_hash,
    file_beside,
    mapped,
    numbers_below,
    read_tensors,
    unique_ids,
    whole_numbers,
)

if TYPE_CHECKING:
    from torch import Tensor

__all__ = [
    "Answers",
    "Continued",
    "Recording",
    "read_answers",
    "read_continued",
    "read_hash",
    "read_names",
    "read_transcript",
]

M = TypeVar("M", bound=BaseModel)
_MOST_BYTES = 10_000_000
"""The most bytes of the head, which has a few numbers and one line for each kind of message."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Recording:
    """The messages of a recorded training, in order, and its head."""

    head: Head
    transcript: Transcript
    rounds: int
    signed: bool = False
    """Whether the signing key of the environment signed it."""

    @property
    def protected(self) -> bool:
        """Whether changes of its files are found."""
        return self.head.protected

    @property
    def protection(self) -> str:
        """What shows that nobody changed it, in a word or two."""
        return "signed" if self.signed else "hash chain" if self.protected else "unprotected"

    @property
    def silent_rounds(self) -> int:
        """How many rounds before the last have no message."""
        return self.rounds - len({message.round for message in self.transcript.messages})


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
    run: str | None = None
    last: str | None = None
    beside: Mapping[str, str] = field(default_factory=dict)
    failed_checks: tuple[str, ...] = ()
    labels: tuple[int, int] = (0, 0)
    """How many were seen in a loss, and how many of them were others there."""


def read_transcript(folder: Path) -> Recording:
    """All messages of a transcript by round, and in a round as sent; of an unfinished one, those in its complete files.

    Every value is checked now, one file after another, and read again when it is used: the tensors of a message are on
    disk, and in memory are the record ids of each batch, once for all messages about it.
    """
    (head, key), files = _read_head(folder), StoredFiles()
    messages: list[Message] = []
    for path in _chained(_shards(folder, head), head, key):
        messages += _Shard(files, path, head).messages()
    if not messages:
        raise InputError("transcript", str(folder), "at least one message")
    messages.sort(key=lambda message: message.round)
    rounds = messages[-1].round + 1
    if head.rounds is not None and head.rounds != rounds:
        raise InputError(f"{HEAD}: rounds", head.rounds, f"{rounds}, as the messages say")
    counts = Counter(message.kind for message in messages)
    if head.rounds is not None and dict(head.messages) != counts:
        raise InputError(f"{HEAD}: messages", dict(head.messages), f"{dict(counts)}, as many as there are")
    return Recording(head=head, transcript=Transcript(messages=messages), rounds=rounds, signed=key is not None)


def read_hash(folder: Path) -> str:
    """A hash of everything that a transcript holds: results that are kept for one are not used for another."""
    beside = [folder / name for name in (HEAD, ANSWERS, MEMBERS, IDS) if (folder / name).exists()]
    return content_hash([*beside, *sorted(folder.glob(FEATURES)), *_shards(folder, _read_head(folder)[0])])


def read_continued(folder: Path, head: Head, names: Sequence[str | int] | None) -> Continued:
    """What is in the files of a transcript that a recording with this head goes on with."""
    before, key = _read_head(folder)
    if not before.protected:
        raise InputError("record: resume", before.schema_version, "a transcript of this version, or fresh=True")
    for name in ("devices", "classes", "records", "precision"):
        if getattr(before, name) != getattr(head, name):
            raise InputError(f"record: {name}", getattr(head, name), f"{getattr(before, name)}, as before")
    if names is not None and read_names(folder, before) != tuple(names):
        raise InputError("record: records", f"{len(names)} ids", "the same ids as before, in the same order")
    paths = _shards(folder, before.model_copy(update={"files": None}))
    chain = list(_links(paths, before, key))
    entries = [entry for path in paths for entry in _entries(StoredFile(path))]
    return Continued(
        files=len(paths),
        rounds=1 + max((entry.round for entry in entries), default=-1),
        messages=Counter(entry.kind for entry in entries),
        run=before.run,
        last=chain[-1] if chain else None,
        beside=before.beside,
        failed_checks=before.failed_checks,
        labels=(before.labels_compared, before.labels_different),
    )


def read_names(folder: Path, head: Head) -> tuple[str | int, ...] | None:
    """The ids of the records in the order of their numbers; None if they are numbered and have no others."""
    path = file_beside(folder, IDS, head)
    if path is None:
        return None
    try:
        names = json.loads(regular(path).read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(IDS, str(path), f"a JSON list of ids ({error})") from error
    fits = isinstance(names, list) and len(names) == head.records == len(set(map(repr, names)))
    if not fits or not all(isinstance(name, str | int) and not isinstance(name, bool) for name in names):
        raise InputError(IDS, str(path), f"a list of {head.records} different strings or whole numbers")
    return tuple(names)


def read_answers(folder: Path, head: Head) -> Answers | None:
    """The recorded labels and canaries, or None if there are none."""
    import torch

    path = file_beside(folder, ANSWERS, head)
    if path is None:
        return None
    tensors = read_tensors(path)
    if head.classes is None:
        return _targets(tensors, head)
    planted = {"canaries", "canary_labels", "worlds"}
    if set(tensors) not in ({"records", "labels"}, {"records", "labels"} | planted):
        raise InputError(f"{ANSWERS}: tensors", sorted(tensors), "records and labels, with or without canaries")
    for name, value in tensors.items():
        if value.dtype != torch.int64:
            raise InputError(f"{ANSWERS}: {name}", str(value.dtype), "int64")
    ids = unique_ids(tensors["records"], f"{ANSWERS}: records", head)
    known = numbers_below(tensors["labels"], f"{ANSWERS}: labels", (len(ids),), head.classes)
    labels = torch.full((head.records,), -1).index_copy(0, ids, known)
    canaries = _canaries(tensors, labels, head.classes, head) if "canaries" in tensors else None
    return Answers(labels=labels, canaries=canaries)


def _targets(tensors: Mapping[str, Tensor], head: Head) -> Answers:
    """The targets of a regression."""
    import torch

    if set(tensors) != {"records", "targets"}:
        raise InputError(f"{ANSWERS}: tensors", sorted(tensors), "records and targets, since there are no classes")
    ids, targets = unique_ids(tensors["records"], f"{ANSWERS}: records", head), tensors["targets"]
    if targets.dtype != torch.float64 or targets.shape != ids.shape or not bool(targets.isfinite().all()):
        raise InputError(f"{ANSWERS}: targets", f"{targets.dtype} {tuple(targets.shape)}", "a finite float64 a record")
    every = torch.full((head.records,), torch.nan, dtype=torch.float64).index_copy(0, ids, targets)
    return Answers(labels=torch.full((head.records,), -1), canaries=None, targets=every)


def _canaries(tensors: Mapping[str, Tensor], labels: Tensor, classes: int, head: Head) -> Canaries:
    """The planted canaries, whose coins must agree with the recorded labels."""
    records = unique_ids(tensors["canaries"], f"{ANSWERS}: canaries", head)
    pairs = numbers_below(tensors["canary_labels"], f"{ANSWERS}: canary_labels", (len(records), 2), classes)
    worlds = numbers_below(tensors["worlds"], f"{ANSWERS}: worlds", (len(records),), 2)
    if bool((pairs[:, 0] == pairs[:, 1]).any()):
        raise InputError(f"{ANSWERS}: canary_labels", "the same label twice", "two different labels for each canary")
    if bool((pairs.gather(1, worlds.unsqueeze(1)).squeeze(1) != labels[records]).any()):
        raise InputError(f"{ANSWERS}: worlds", "coins", "the coins by which the recorded labels were chosen")
    return Canaries(records=tuple(records.tolist()), labels=pairs, worlds=worlds.unsqueeze(0))


def _read_head(folder: Path) -> tuple[Head, bytes | None]:
    """The head, and the key that signed it, if there is one in the environment."""
    path, key = folder / HEAD, signing_key()
    try:
        with regular(path).open("rb") as file:
            content = file.read(_MOST_BYTES + 1).removeprefix(BOM_UTF8)
        if len(content) > _MOST_BYTES:
            raise InputError(HEAD, str(path), f"at most {_MOST_BYTES // 10**6} MB")
        raw = parsed_json(content.decode("utf-8"))
    except OSError as error:
        raise InputError("--transcript", str(folder), f"a folder with {HEAD} ({error.strerror})") from error
    except InputError:
        raise
    except (ValueError, RecursionError) as error:
        raise InputError(HEAD, str(path), f"valid JSON ({error})") from error
    version = raw.get("schema_version") if isinstance(raw, dict) else None
    if version not in (SCHEMA, UNPROTECTED):
        raise InputError(f"{HEAD}: schema_version", version, f"{SCHEMA}, or {UNPROTECTED}, which nothing protects")
    head = _validated(Head, json.dumps(raw), HEAD)
    if head.protected:
        if head.run is None:
            raise InputError(f"{HEAD}: run", None, "the number of the recording")
        _opened(end_of(head.run), content, key, HEAD)
    elif key is not None:
        raise InputError(f"{HEAD}: schema_version", version, f"{SCHEMA} with a signature, since {SIGNING_KEY} is set")
    return head, key


def _opened(what: str, content: Content, key: bytes | None, name: str) -> str:
    """The checksum of a file that must be what was recorded as this, and with a key signed by it."""
    try:
        seal = opened(what, content)
    except ValueError as error:
        raise InputError(
            "transcript", name, "the file as it was recorded: it was changed, or is of another recording"
        ) from error
    if key is not None and not seal.made_with(key):
        raise InputError("transcript", name, f"a file with the signature of {SIGNING_KEY}")
    return seal.checksum


def _links(paths: Sequence[Path], head: Head, key: bytes | None) -> Iterator[str]:
    """The checksum of each file with messages, each checked as the one that follows the last."""
    last = run = str(head.run)
    for number, path in enumerate(paths):
        last = _opened(link_of(run, number, last), mapped(path), key, path.name)
        yield last


def _chained(paths: Sequence[Path], head: Head, key: bytes | None) -> Iterator[Path]:
    """The files with messages, each checked before it is read, and the last as the one that the head ends with."""
    if not head.protected:
        yield from paths
        return
    checksum = None
    for path, link in zip(paths, _links(paths, head, key), strict=True):
        checksum = link
        yield path
    if head.files is not None and head.last != checksum:
        raise InputError(f"{HEAD}: last", head.last, "the checksum of the last file")


def _validated(model: type[M], text: str, where: str) -> M:
    try:
        return model.model_validate_json(text)
    except ValidationError as error:
        problem = first_problem(error)
        raise problem.error(f"{where}: {problem.place or 'content'}") from error


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


def _entries(file: StoredFile) -> tuple[Entry, ...]:
    """The list of messages in one file."""
    metadata = file.metadata
    if "messages" not in metadata:
        raise InputError(file.path.name, "metadata", "the list of its messages")
    if SEAL not in metadata:  # whoever sealed it wrote each key once
        try:
            parsed_json(metadata["messages"])
        except (ValueError, RecursionError) as error:
            raise InputError(file.path.name, "messages", f"valid JSON ({error})") from error
    return _validated(Entries, metadata["messages"], file.path.name).messages


class _Batch(NamedTuple):
    """The records of one batch of a file; of a sample, also the positions and the ids of those that are kept."""

    records: Tensor
    kept: Tensor | None
    kept_records: Tensor | None


class _Shard:
    """The messages of one file."""

    def __init__(self, files: StoredFiles, path: Path, head: Head) -> None:
        self._files, self._path, self._head = files, path, head
        self._file = files.file(path)
        self._entries = _entries(self._file)
        self._ends: Counter[str] = Counter()
        self._sound: dict[str, bool] = {}
        self._batches = self._read_batches()

    def messages(self) -> Iterator[Message]:
        """All of them, checked."""
        for entry in self._entries:
            places = [self._place(entry, name, rows) for name, rows in entry.rows.items()]
            yield self._message(entry, places, None if entry.batch is None else self._batches[entry.batch])
        for key, end in self._ends.items():
            if end != len(self._file[key]):
                where = f"{self._path.name}: {key}"
                raise InputError(where, f"{len(self._file[key])} rows", f"{end}, as its messages say")

    def _read_batches(self) -> dict[int, _Batch]:
        """The batches of the file, after a check that it has the tensors that its messages list."""
        numbers = sorted({entry.batch for entry in self._entries if entry.batch is not None})
        listed = {column_key(entry, name) for entry in self._entries for name in entry.rows}
        listed |= {batch_key(number) for number in numbers}
        listed |= {kept_key(number) for number in numbers if self._head.sampled is not None}
        if listed != self._file.names:
            different = sorted(listed ^ self._file.names)[0]
            raise InputError(self._path.name, different, "the tensors that its messages list, and no others")
        return {number: self._read_batch(number) for number in numbers}

    def _read_batch(self, number: int) -> _Batch:
        """One batch, in memory of its own: the file is not mapped for its sake."""
        where = f"{self._path.name}: {batch_key(number)}"
        records = unique_ids(self._file[batch_key(number)].clone(), where, self._head)
        if self._head.sampled is None:
            return _Batch(records, None, None)
        kept = _kept(self._file[kept_key(number)].clone(), self._path.name, len(records))
        return _Batch(records, kept, records[kept])

    def _place(self, entry: Entry, name: str, rows: int | None) -> Place:
        """Where the next rows of a column are, or its next number."""
        key = intern(column_key(entry, name))
        column, start = self._file[key], self._ends[key]
        self._ends[key] = end = start + (1 if rows is None else rows)
        if column.dim() == 0 or end > len(column) or (rows is None and column.dim() > 1):
            where = f"{self._path.name}: {key}"
            raise InputError(where, tuple(column.shape), f"at least {end} rows, as its messages say")
        return Place(intern(name), key, start, None if rows is None else end)

    def _message(self, entry: Entry, places: Sequence[Place], batch: _Batch | None) -> Message:
        where = f"round {entry.round}: {entry.kind}"
        _check_ends(entry, where, self._head)
        tensors = {place.name: place.of(self._file[place.column]) for place in places}
        shapes = {name: list(value.shape) for name, value in tensors.items()}
        for name, axis in entry.cut.items():
            rows = None if batch is None or batch.kept is None else len(batch.kept)
            if name not in shapes or axis >= len(shapes[name]) or shapes[name][axis] != rows:
                raise InputError(f"{where}: cut", {name: axis}, "tensors with a row for each record that is kept")
            shapes[name][axis] = 0 if batch is None else len(batch.records)
        check_shapes(entry.kind, shapes, None if batch is None else len(batch.records), self._head.classes)
        for place in places:
            if not self._is_sound(entry.kind, place):
                check_values(entry.kind, place.name, tensors[place.name], f"{where}: {place.name}")
        stored = StoredTensors(self._files, self._path, places)
        if batch is None:
            return message_of(entry, stored)
        sampled = batch.kept_records if entry.cut else None
        if sampled is None:
            return message_of(entry, stored, batch.records)
        return message_of(entry, stored, sampled, whole=batch.records)

    def _is_sound(self, kind: str, place: Place) -> bool:
        """Whether all values of a column are as they should be: a check of each message takes several times as long."""
        column = place.column
        if column not in self._sound:
            try:
                check_values(kind, place.name, self._file[column], column)
                self._sound[column] = True
            except InputError:
                self._sound[column] = False
        return self._sound[column]


def _check_ends(entry: Entry, where: str, head: Head) -> None:
    """Raise an InputError unless the message has two ends, and its devices are there."""
    for field_, device in (("device", entry.device), ("to", entry.to)):
        if device is not None and device >= head.devices:
            raise InputError(f"{where}: {field_}", device, f"0 to {head.devices - 1}")
    if (entry.to is not None) != (entry.way == "across") or entry.to == entry.device:
        raise InputError(f"{where}: to", entry.to, "another device if the message goes across, else nothing")


def _kept(positions: Tensor, where: str, batch: int) -> Tensor:
    """The positions, in order, of the records of a batch whose rows are kept."""
    positions = whole_numbers(positions, f"{where}: kept", "positions in order, int32 or int64")
    if not bool((positions[1:] > positions[:-1]).all()):
        raise InputError(f"{where}: kept", positions.tolist(), "positions in order")
    return numbers_below(positions, f"{where}: kept", (len(positions),), batch)
