"""Reads transcripts from disk: every file is checked, and whatever does not fit is an error of one line."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel, ValidationError
from safetensors import SafetensorError, safe_open

from vflpriv.core.canaries import Canaries
from vflpriv.core.wire import Message, Transcript
from vflpriv.errors import InputError, wanted
from vflpriv.recording.checks import check_shapes, check_values, message_of
from vflpriv.recording.format import ANSWERS, HEAD, SCHEMA, SHARDS, Entries, Entry, Head, shard_name

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Answers", "Recording", "read_answers", "read_transcript"]

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
    """The values that attacks are scored by, in no adversary's view: labels (N,), -1 where unknown, and canaries."""

    labels: Tensor
    canaries: Canaries | None


def read_transcript(folder: Path) -> Recording:
    """All messages of a transcript; of an unfinished one, those in its complete files."""
    head = _read_head(folder)
    messages: list[Message] = []
    for path in _shards(folder, head):
        messages += _read_shard(path, head, messages[-1].round if messages else 0)
    if not messages:
        raise InputError("transcript", str(folder), "at least one message")
    rounds = messages[-1].round + 1
    if head.rounds is not None and head.rounds != rounds:
        raise InputError(f"{HEAD}: rounds", head.rounds, f"{rounds}, as the messages say")
    return Recording(head=head, transcript=Transcript(messages=messages), rounds=rounds)


def read_answers(folder: Path, head: Head) -> Answers | None:
    """The recorded labels and canaries, or None if there are none."""
    import torch

    path = folder / ANSWERS
    if not path.exists():
        return None
    tensors = dict(_tensors(path))
    planted = {"canaries", "canary_labels", "worlds"}
    if set(tensors) not in ({"records", "labels"}, {"records", "labels"} | planted):
        raise InputError(f"{ANSWERS}: tensors", sorted(tensors), "records and labels, with or without canaries")
    for name, value in tensors.items():
        if value.dtype != torch.int64:
            raise InputError(f"{ANSWERS}: {name}", str(value.dtype), "int64")
    ids = _ids(tensors["records"], f"{ANSWERS}: records", head)
    known = _between(tensors["labels"], f"{ANSWERS}: labels", (len(ids),), head.classes)
    labels = torch.full((head.records,), -1).index_copy(0, ids, known)
    canaries = _canaries(tensors, labels, head) if "canaries" in tensors else None
    return Answers(labels=labels, canaries=canaries)


def _canaries(tensors: Mapping[str, Tensor], labels: Tensor, head: Head) -> Canaries:
    """The planted canaries, whose coins must agree with the recorded labels."""
    records = _ids(tensors["canaries"], f"{ANSWERS}: canaries", head)
    pairs = _between(tensors["canary_labels"], f"{ANSWERS}: canary_labels", (len(records), 2), head.classes)
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


def _read_shard(path: Path, head: Head, round_: int) -> Iterator[Message]:
    """The messages of one file, none of them before `round_`."""
    metadata, tensors = _metadata(path), dict(_tensors(path))
    if "messages" not in metadata:
        raise InputError(path.name, "metadata", "the list of its messages")
    entries = _validated(Entries, metadata["messages"], path.name).messages
    listed = {f"{i}/{name}" for i, e in enumerate(entries) for name in (*e.tensors, *(["records"] * e.records))}
    if listed != set(tensors):
        different = sorted(listed ^ set(tensors))[0]
        raise InputError(path.name, different, "the tensors that its messages list, and no others")
    for number, entry in enumerate(entries):
        if entry.round < round_:
            raise InputError(f"{path.name}: round", entry.round, f"{round_} or later: rounds are in order")
        round_ = entry.round
        own = {name: tensors[f"{number}/{name}"] for name in entry.tensors}
        yield _message(entry, own, tensors.get(f"{number}/records"), head)


def _message(entry: Entry, tensors: Mapping[str, Tensor], records: Tensor | None, head: Head) -> Message:
    where = f"round {entry.round}: {entry.kind}"
    if entry.device >= head.devices:
        raise InputError(f"{where}: device", entry.device, f"0 to {head.devices - 1}")
    ids = None if records is None else _ids(records, f"{where}: records", head)
    check_shapes(entry.kind, {n: t.shape for n, t in tensors.items()}, None if ids is None else len(ids), head.classes)
    for name, value in tensors.items():
        check_values(entry.kind, value, f"{where}: {name}")
    return message_of(entry, tensors, ids)


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
