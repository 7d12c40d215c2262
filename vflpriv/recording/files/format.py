"""The transcript format: the names of its files, and what its JSON head and the list of messages in a file hold.

A file has the messages of some rounds. The ids of a batch are in it once, however many messages are about the batch;
of a batch of which only a sample is kept, messages have the rows of the sample.

Each file has a seal (`vflpriv.common.files`) over its content, its number, the run and the checksum of the file before
it: a chain, whose last link the head of a finished recording has, beside the hashes of the files without messages.
"""

from __future__ import annotations

import json
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from vflpriv.common.files import BLANK, SEAL

__all__ = [
    "ANSWERS",
    "HEAD",
    "IDS",
    "KIND",
    "SCHEMA",
    "SHARDS",
    "UNPROTECTED",
    "Entries",
    "Entry",
    "Head",
    "Kind",
    "batch_key",
    "column_key",
    "end_of",
    "kept_key",
    "link_of",
    "shard_name",
]

SCHEMA = "vflpriv-transcript/3"
UNPROTECTED = "vflpriv-transcript/2"
"""Transcripts without hashes: whoever could write to the folder could change them."""
HEAD = "transcript.json"
ANSWERS = "answers.safetensors"
IDS = "ids.json"
SHARDS = "round-*.safetensors"

KIND = r"^[A-Za-z][A-Za-z0-9_-]{0,63}$"
"""The names of kinds of messages, in files, ledgers and calls alike."""
Kind = Annotated[str, Field(pattern=KIND)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z][\w.-]{0,63}$")]
Count = Annotated[int, Field(ge=0, lt=2**53)]
Line = Annotated[str, Field(max_length=300)]
Hash = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Entry(_Strict):
    """One message of a file.

    `rows` names its tensors, and the length of each one's first axis; a single number has none. All messages of a kind
    on one link have their tensors of a name in one tensor of the file (`column_key`), one after another. `batch` is the
    number of the batch that the message is about: its record ids are stored under `batch/n`, and the positions of those
    that are kept, if not all are, under `kept/n`. `cut` are the tensors that have rows of these alone, with the axis of
    the rows.
    """

    round: Count
    way: Literal["up", "down", "across"]
    device: Count
    """The device at the other end than the server's; of two devices, the one that sends."""
    to: Count | None = None
    """The device that receives, if devices send to each other."""
    kind: Kind
    rows: dict[Name, Count | None]
    batch: Count | None = None
    cut: dict[Name, Count] = Field(default_factory=dict)

    def at(self, round_: int) -> Entry:
        """The same message in another round."""
        return self.changed({"round": round_})

    def changed(self, fields: dict[str, object]) -> Entry:
        """A copy with other values, which are not checked; a fifth of the time that `model_copy` takes."""
        entry = Entry.__new__(Entry)
        set_ = object.__setattr__
        set_(entry, "__dict__", {**self.__dict__, **fields})
        set_(entry, "__pydantic_fields_set__", {*self.__pydantic_fields_set__, *fields})
        set_(entry, "__pydantic_extra__", None)
        set_(entry, "__pydantic_private__", None)
        return entry


class Entries(_Strict):
    """The messages of a shard, in the order they were sent."""

    messages: tuple[Entry, ...]


class Head(_Strict):
    """The content of `transcript.json`. `rounds`, `files` and `messages` are there once the recording has ended.

    The numbers of devices, classes and records are bounded, since tables of their size are made whatever was recorded.
    """

    schema_version: Literal["vflpriv-transcript/2", "vflpriv-transcript/3"]
    name: str = Field(max_length=200)
    devices: Annotated[int, Field(ge=1, le=10_000)]
    classes: Annotated[int, Field(ge=2, le=100_000)] | None
    """None if the labels are the targets of a regression."""
    records: Annotated[int, Field(ge=1, le=10_000_000)]
    finished: bool = False
    rounds: Count | None = None
    files: Count | None = None
    messages: dict[Kind, Count] = Field(default_factory=dict)
    """By kind."""
    shapes: dict[Kind, dict[Name, tuple[Count, ...]]] = Field(default_factory=dict)
    """By kind and tensor, of the first message."""
    class_names: tuple[Annotated[str, Field(max_length=200)], ...] = Field(default=(), max_length=100_000)
    """In the order of the class numbers, if the labels have names."""
    sampled: Annotated[int, Field(ge=1)] | None = None
    """The number of records whose rows are kept; None if all are."""
    precision: Literal["full", "half"] = "full"
    """Whether floating-point values were rounded to 16 bits."""
    accuracy: Annotated[float, Field(ge=0, le=1)] | None = None
    tests: Count = 0
    """The number of test records that the accuracy was measured on."""
    failed_checks: tuple[Line, ...] = Field(default=(), max_length=1000)
    """What did not fit together while modules were watched: nothing is certified on it."""
    remarks: tuple[Line, ...] = Field(default=(), max_length=1000)
    """What is worth knowing of a watched training."""
    labels_compared: Count = 0
    """The number of records whose labels were seen in a loss."""
    labels_different: Count = 0
    """Of these, those that had another label there."""
    run: Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")] | None = None
    """Drawn when the recording begins: files of two recordings are never taken for one."""
    last: Hash | None = None
    """The checksum of the last file with messages, once the recording has ended."""
    beside: dict[str, Hash] = Field(default_factory=dict)
    """The SHA-256 of each file without messages, by its name."""
    seal: str | None = Field(default=None, alias=SEAL, pattern=r"^[0-9a-f]{128}$")

    @property
    def protected(self) -> bool:
        """Whether changes of the files are found."""
        return self.schema_version == SCHEMA

    def text(self) -> str:
        """The content of the file, with a blank seal."""
        fields = json.loads(self.model_copy(update={"seal": BLANK}).model_dump_json(by_alias=True))
        return json.dumps(fields, indent=2) + "\n"


def shard_name(number: int) -> str:
    """The name of the file with the messages of one round, or of several."""
    return f"round-{number:08d}.safetensors"


def column_key(entry: Entry, tensor: str) -> str:
    """The name of the tensor of a file with the values of this tensor in all messages like this one.

    >>> column_key(Entry(round=0, way="up", device=3, kind="logits", rows={"embedding": 64}), "embedding")
    'logits/embedding/up-3'
    """
    receiver = "" if entry.to is None else f"-{entry.to}"
    return f"{entry.kind}/{tensor}/{entry.way}-{entry.device}{receiver}"


def link_of(run: str, number: int, previous: str) -> str:
    """What the seal of a file with messages says that it is: `previous` is the checksum of the file before it."""
    return f"{SCHEMA}/{run}/{number}/{previous}"


def end_of(run: str) -> str:
    """What the seal of the head says that it is."""
    return f"{SCHEMA}/{run}"


def batch_key(number: int) -> str:
    """The name of the tensor with the record ids of one batch of a file."""
    return f"batch/{number}"


def kept_key(number: int) -> str:
    """The name of the tensor with the positions, in one batch of a file, of the records that are kept."""
    return f"kept/{number}"
