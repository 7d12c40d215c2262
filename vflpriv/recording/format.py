"""The transcript format: the names of its files, and what its JSON head and the list of messages in a file hold."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["ANSWERS", "HEAD", "SCHEMA", "SHARDS", "Entries", "Entry", "Head", "shard_name"]

SCHEMA = "vflpriv-transcript/1"
HEAD = "transcript.json"
ANSWERS = "answers.safetensors"
SHARDS = "round-*.safetensors"

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
    """The messages of a shard, in the order they were sent."""

    messages: tuple[Entry, ...]


class Head(_Strict):
    """The content of `transcript.json`. `rounds`, `files` and `messages` are there once the recording has ended.

    The numbers of devices, classes and records are bounded, since tables of their size are made whatever was recorded.
    """

    schema_version: Literal["vflpriv-transcript/1"]
    name: str = Field(max_length=200)
    devices: Annotated[int, Field(ge=1, le=10_000)]
    classes: Annotated[int, Field(ge=2, le=100_000)]
    records: Annotated[int, Field(ge=1, le=10_000_000)]
    finished: bool = False
    rounds: Count | None = None
    files: Count | None = None
    messages: dict[Name, Count] = Field(default_factory=dict)
    """By kind."""
    shapes: dict[Name, dict[Name, tuple[Count, ...]]] = Field(default_factory=dict)
    """By kind and tensor, of the first message."""
    accuracy: Annotated[float, Field(ge=0, le=1)] | None = None
    tests: Count = 0
    """The number of test records that the accuracy was measured on."""


def shard_name(number: int) -> str:
    """The name of the file with the messages of one round, or of several."""
    return f"round-{number:08d}.safetensors"
