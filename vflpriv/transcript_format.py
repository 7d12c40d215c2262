"""The files of a transcript: their names, the schema, and what a message of a known kind holds.

A folder with `transcript.json` (who, how many, which version), a `round-*.safetensors` for each stretch of rounds (its
metadata lists the messages, its tensors are theirs) and, apart from them, `answers.safetensors` with the labels by
which attacks are scored. Nothing in it is ever unpickled.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from vflpriv.errors import InputError
from vflpriv.files import atomically

__all__ = [
    "ANSWERS",
    "HEAD",
    "KINDS",
    "SCHEMA",
    "SHARDS",
    "Entries",
    "Entry",
    "Head",
    "check_kind",
    "check_shapes",
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
