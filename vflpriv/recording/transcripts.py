"""Transcripts read back from disk: everything is checked, and what does not fit is an error of one line."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from safetensors import SafetensorError, safe_open
from torch import Tensor

from vflpriv.common.files import atomically
from vflpriv.core.canaries import Canaries
from vflpriv.core.wire import SERVER, Message, Transcript, device
from vflpriv.errors import InputError, wanted

__all__ = [
    "ANSWERS",
    "HEAD",
    "KINDS",
    "SCHEMA",
    "SHARDS",
    "Answers",
    "Entries",
    "Entry",
    "Head",
    "Recording",
    "check_kind",
    "check_shapes",
    "check_values",
    "message_of",
    "read_answers",
    "read_transcript",
    "replace_file",
    "shard_name",
]

SCHEMA = "vflpriv-transcript/1"
HEAD = "transcript.json"
ANSWERS = "answers.safetensors"
SHARDS = "round-*.safetensors"

KINDS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "embeddings": {"embedding": ("batch", "width")},
    "logits": {"embedding": ("batch", "classes")},
    "embedding-gradient": {"gradient": ("batch", "width")},
    "logit-gradient": {"gradient": ("batch", "classes")},
    "embedding-pair": {"plus": ("batch", "width"), "minus": ("batch", "width")},
    "zo-scalar": {"delta": ()},
    "loss-difference": {"delta": ()},
    "losses": {"loss": (), "perturbed": ()},
}
"""The kinds that attacks read, by name, with the tensors they look for. Any other name is a kind of the user's own."""

Name = Annotated[str, Field(pattern=r"^[A-Za-z][\w.-]{0,63}$")]
Count = Annotated[int, Field(ge=0, lt=2**53)]


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Entry(_Strict):
    """One message of a shard: tensor t of message i is stored under `i/t`, its record ids under `i/records`."""

    round: Count
    way: Literal["up", "down"]
    device: Count
    kind: Name
    tensors: tuple[Name, ...]
    records: bool


class Entries(_Strict):
    """What a shard holds, in the order it was sent."""

    messages: tuple[Entry, ...]


class Head(_Strict):
    """What `transcript.json` says. `rounds`, `files` and `messages` are there once the recording has ended."""

    schema_version: Literal["vflpriv-transcript/1"]
    name: str = Field(max_length=200)
    devices: Annotated[int, Field(ge=1, le=100_000)]
    classes: Annotated[int, Field(ge=2, le=1_000_000)]
    records: Annotated[int, Field(ge=1, le=100_000_000)]
    finished: bool = False
    rounds: Count | None = None
    files: Count | None = None
    messages: dict[Name, Count] = Field(default_factory=dict)
    """By kind."""
    shapes: dict[Name, dict[Name, tuple[Count, ...]]] = Field(default_factory=dict)
    """By kind and tensor, of the first message."""
    accuracy: Annotated[float, Field(ge=0, le=1)] | None = None
    tests: Count = 0
    """Records that the accuracy is of."""


def shard_name(place: int) -> str:
    return f"round-{place:08d}.safetensors"


def check_kind(kind: object) -> str:
    """A kind's name as files may hold it."""
    if not isinstance(kind, str) or not kind.replace("-", "").replace("_", "").isalnum() or len(kind) > 64:
        raise InputError("kind", kind, "letters, digits and hyphens, at most 64")
    if not kind[0].isascii() or not kind[0].isalpha() or not kind.isascii():
        raise InputError("kind", kind, "ASCII letters, digits and hyphens, a letter first")
    return kind


def check_shapes(kind: str, shapes: Mapping[str, Sequence[int]], batch: int | None, classes: int) -> None:
    """Whether a message of a known kind holds what attacks look for in it."""
    wanted = KINDS.get(kind)
    if wanted is None:
        return
    if set(shapes) != set(wanted):
        raise InputError(f"{kind}: tensors", sorted(shapes), f"{', '.join(sorted(wanted))}, or another kind's name")
    if batch is None and any("batch" in axes for axes in wanted.values()):
        raise InputError(f"{kind}: records", None, "the ids of the records, one for each row")
    sizes = {"batch": batch, "classes": classes}
    for name, axes in wanted.items():
        shape = tuple(shapes[name])
        fits = len(shape) == len(axes) and all(sizes.get(a, n) == n for a, n in zip(axes, shape, strict=True))
        if not fits:
            meant = " × ".join(f"{sizes[a]} ({a})" if a in sizes else a for a in axes) or "a single number"
            raise InputError(f"{kind}: {name}", shape, f"{meant}, or another kind's name")


def replace_file(path: Path, write: Callable[[Path], object]) -> None:
    """Write a file so that a reader sees the old one or the new one, never half of it."""
    with atomically(path) as temporary:
        write(temporary)


# Transcripts read back from disk: everything is checked, and what does not fit is an error of one line.

M = TypeVar("M", bound=BaseModel)

_DTYPES = frozenset(
    getattr(torch, name)
    for name in ("float16", "bfloat16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "bool")
)


@dataclass(frozen=True, eq=False, kw_only=True)
class Recording:
    """The messages of a recorded training, in order, and what its head says of it."""

    head: Head
    transcript: Transcript
    rounds: int


@dataclass(frozen=True, eq=False, kw_only=True)
class Answers:
    """What attacks are scored by, and nobody's view holds: labels (N,), -1 where unknown, and the canaries' coins."""

    labels: Tensor
    canaries: Canaries | None


def read_transcript(folder: Path) -> Recording:
    """All messages of a transcript; of an unfinished one, those of the rounds that were over."""
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
    path = folder / ANSWERS
    if not path.exists():
        return None
    held = dict(_tensors(path))
    planted = {"canaries", "canary_labels", "worlds"}
    if set(held) not in ({"records", "labels"}, {"records", "labels"} | planted):
        raise InputError(f"{ANSWERS}: tensors", sorted(held), "records and labels, with or without canaries")
    for name, value in held.items():
        if value.dtype != torch.int64:
            raise InputError(f"{ANSWERS}: {name}", str(value.dtype), "int64")
    ids = _ids(held["records"], f"{ANSWERS}: records", head)
    given = _between(held["labels"], f"{ANSWERS}: labels", (len(ids),), head.classes)
    labels = torch.full((head.records,), -1).index_copy(0, ids, given)
    if "canaries" not in held:
        return Answers(labels=labels, canaries=None)
    records = _ids(held["canaries"], f"{ANSWERS}: canaries", head)
    pairs = _between(held["canary_labels"], f"{ANSWERS}: canary_labels", (len(records), 2), head.classes)
    worlds = _between(held["worlds"], f"{ANSWERS}: worlds", (len(records),), 2)
    if bool((pairs[:, 0] == pairs[:, 1]).any()):
        raise InputError(f"{ANSWERS}: canary_labels", "the same label twice", "two different labels for each canary")
    if bool((pairs.gather(1, worlds.unsqueeze(1)).squeeze(1) != labels[records]).any()):
        raise InputError(f"{ANSWERS}: worlds", "coins", "the coins by which the recorded labels were chosen")
    drawn = Canaries(records=tuple(records.tolist()), labels=pairs, worlds=worlds.unsqueeze(0))
    return Answers(labels=labels, canaries=drawn)


def _read_head(folder: Path) -> Head:
    path = folder / HEAD
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError("--transcript", str(folder), f"a folder with {HEAD} ({error.strerror})") from error
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
    found = sorted(folder.glob("round-*.safetensors"))
    count = len(found) if head.files is None else head.files
    if len(found) > count:
        raise InputError(f"{HEAD}: files", count, f"{len(found)}, as many as there are")
    paths = [folder / shard_name(place) for place in range(count)]
    for path in paths:
        if not path.is_file():
            raise InputError("transcript", path.name, "a file that is there: the recording has a gap")
    return paths


def _read_shard(path: Path, head: Head, round_: int) -> Iterator[Message]:
    metadata, held = _metadata(path), dict(_tensors(path))
    if "messages" not in metadata:
        raise InputError(path.name, "metadata", "the list of its messages")
    entries = _validated(Entries, metadata["messages"], path.name).messages
    wanted = {f"{i}/{name}" for i, e in enumerate(entries) for name in (*e.tensors, *(["records"] * e.records))}
    if wanted != set(held):
        strange = sorted(wanted ^ set(held))[0]
        raise InputError(path.name, strange, "the tensors that its messages list, and no others")
    for place, entry in enumerate(entries):
        if entry.round < round_:
            raise InputError(f"{path.name}: round", entry.round, f"{round_} or later: rounds are in order")
        round_ = entry.round
        yield _message(
            entry, {name: held[f"{place}/{name}"] for name in entry.tensors}, held.get(f"{place}/records"), head
        )


def _message(entry: Entry, tensors: Mapping[str, Tensor], records: Tensor | None, head: Head) -> Message:
    where = f"round {entry.round}: {entry.kind}"
    if entry.device >= head.devices:
        raise InputError(f"{where}: device", entry.device, f"0 to {head.devices - 1}")
    ids = None if records is None else _ids(records, f"{where}: records", head)
    check_shapes(entry.kind, {n: t.shape for n, t in tensors.items()}, None if ids is None else len(ids), head.classes)
    for name, value in tensors.items():
        check_values(entry.kind, value, f"{where}: {name}")
    return message_of(entry, tensors, ids)


def check_values(kind: str, value: Tensor, where: str) -> None:
    """Whether these are finite numbers of a common type; floats in a kind that attacks read."""
    if value.dtype not in _DTYPES or (kind in KINDS and not value.is_floating_point()):
        raise InputError(where, str(value.dtype), "numbers of a common type, floats in a kind that attacks read")
    if value.is_floating_point() and not bool(torch.isfinite(value).all()):
        raise InputError(where, "NaN or infinity", "finite numbers")


def message_of(entry: Entry, tensors: Mapping[str, Tensor], records: Tensor | None) -> Message:
    """A checked message as views hold it, with a replica axis of one."""
    up, far = entry.way == "up", device(entry.device)
    return Message(
        round=entry.round,
        sender=far if up else SERVER,
        receiver=SERVER if up else far,
        kind=entry.kind,
        tensors={n: (t.float() if entry.kind in KINDS else t).unsqueeze(0) for n, t in tensors.items()},
        records=records,
    )


def _ids(ids: Tensor, where: str, head: Head) -> Tensor:
    if ids.dtype != torch.int64 or ids.dim() != 1:
        raise InputError(where, f"{ids.dtype} {tuple(ids.shape)}", "a list of int64")
    _between(ids, where, (len(ids),), head.records)
    if len(ids.unique()) != len(ids):
        raise InputError(where, ids.tolist(), "no record twice")
    return ids


def _between(values: Tensor, where: str, shape: tuple[int, ...], below: int) -> Tensor:
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
