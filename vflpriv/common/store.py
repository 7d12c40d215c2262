"""The store of finished results, from which a run that was interrupted goes on.

A result is one file, named by a hash of its key; the key says all that decides the result, the code included. The file
has a seal (`vflpriv.common.files`): one that was damaged, exchanged or renamed is not read as a result. Whoever can
write to the folder can make a file with a seal, too. Such files, from another user or machine, are read only where no
signing key is in the environment, and reports name them as trusted (`foreign_results`). `Store.results` is the one way
in which many results come about: stored ones are read, the others run on an executor and are stored as they arrive.
"""

from __future__ import annotations

import hashlib
import re
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar

from safetensors import SafetensorError

from vflpriv.common.files import BLANK, SEAL, Seal, claimed_seal, opened, own_key, sealed, signing_key, write_atomically
from vflpriv.common.tasks import Executor, NoProgress, Progress, Tasks
from vflpriv.errors import InputError, StoreWarning

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Entry", "Form", "JsonForm", "Steps", "Store", "TensorForm", "empty_store", "foreign_results"]

T = TypeVar("T")
_NAME = re.compile(r"[0-9a-f]{24}\.(?:safetensors|json)|\.[0-9a-f]{24}\.(?:safetensors|json)\.\d+")
"""The names of stored files, and of those that an interrupted write leaves."""
_HEAD_BYTES = 512


class Form(Protocol[T]):
    """How results of one kind are written into a file, with the seal in its head; never by pickling."""

    suffix: ClassVar[str]

    def written(self, result: T) -> bytes:
        """The content of the file, with a blank seal."""
        ...

    def read(self, content: bytes) -> T:
        """The result; a ValueError if the content is not a result of this kind."""
        ...


@dataclass(frozen=True, kw_only=True)
class TensorForm:
    """Tensors by name, at least one; these names must be among them, with so many rows each."""

    suffix: ClassVar[str] = "safetensors"
    names: Collection[str] = ()
    rows: int | None = None

    def written(self, result: Mapping[str, Tensor]) -> bytes:
        from safetensors.torch import save

        tensors = {name: tensor.detach().contiguous().cpu() for name, tensor in result.items()}
        return save(tensors, {SEAL: BLANK})

    def read(self, content: bytes) -> dict[str, Tensor]:
        from safetensors.torch import load

        try:
            tensors = load(content)
        except (SafetensorError, KeyError) as error:
            raise ValueError("not a file of tensors") from error
        fits = all(n in tensors and (self.rows is None or tensors[n].shape[:1] == (self.rows,)) for n in self.names)
        if not tensors or not fits:
            raise ValueError("other tensors than expected")
        return tensors


class JsonForm(Generic[T]):
    """Values of a type that pydantic knows, as JSON."""

    suffix: ClassVar[str] = "json"
    _HEAD = f'{{"{SEAL}":"{BLANK}","results":'.encode()

    def __init__(self, kind: type[T]) -> None:
        from pydantic import TypeAdapter

        self._adapter: TypeAdapter[T] = TypeAdapter(kind)

    def written(self, result: T) -> bytes:
        return self._HEAD + self._adapter.dump_json(result) + b"}"

    def read(self, content: bytes) -> T:
        # The seal in the head is as long as its absence.
        return self._adapter.validate_json(content[len(self._HEAD) : -1])


@dataclass(frozen=True, kw_only=True)
class Entry(Generic[T]):
    """One result of a store."""

    key: str | None
    """All that decides the result, as text; None if it must not be stored."""
    form: Form[T]
    work: int = 0
    """The replica-rounds that progress is told of where the result is there already."""


class Store:
    """Results in a folder, one file each. Without a folder nothing is kept."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder

    def key(self, code: str | None, user: str, *parts: object) -> str | None:
        """The key of a result that code with this hash, and these parts, decide; None if nothing is to be stored.

        Without a hash it cannot be told whether the code is the same next time: a warning names its user.
        """
        if self.folder is None:
            return None
        if code is not None:
            return "/".join((code, *map(str, parts)))
        text = f"not all code that {user} uses can be read, so its results are not stored; define it in a file"
        warnings.warn(text, StoreWarning, stacklevel=3)
        return None

    def load(self, entry: Entry[T]) -> T | None:
        """The stored result, or None; a file with any other content than was stored is not used, with a warning."""
        path = self._path(entry)
        if path is None or not path.is_file():
            return None
        try:
            content = path.read_bytes()
            _check_signature(opened(str(entry.key), content))
            return entry.form.read(content)
        except (OSError, ValueError):
            text = f"{path} is not what this program wrote: it is not used, and its content is computed again"
            warnings.warn(text, StoreWarning, stacklevel=2)
            return None

    def save(self, entry: Entry[T], result: T) -> None:
        """Store a result; a reader sees all of it or nothing."""
        path = self._path(entry)
        if path is not None:
            parts, _ = sealed(str(entry.key), entry.form.written(result), signing_key() or own_key())
            write_atomically(path, b"".join(parts))

    def results(
        self,
        entries: Sequence[Entry[T]],
        tasks: Callable[[Sequence[int]], Tasks[Any, Any, T]],
        *,
        executor: Executor,
        progress: Progress,
    ) -> list[T]:
        """The results of all entries in order; those that are not stored are computed, and stored as they arrive.

        `tasks` is asked for the tasks of the entries at these places, once, if any is missing.
        """

        def compute(missing: Sequence[int], finished: Callable[[int, T], None]) -> None:
            executor.run(tasks(missing), progress=progress, finished=finished)

        return self.completed(entries, compute, progress)

    def completed(
        self,
        entries: Sequence[Entry[T]],
        compute: Callable[[Sequence[int], Callable[[int, T], None]], None],
        progress: Progress,
    ) -> list[T]:
        """The results of all entries in order; `compute(missing, finished)` computes those at the missing places.

        It calls `finished(n, result)` as soon as it has the n-th of them.
        """
        results: dict[int, T] = {}
        for place, entry in enumerate(entries):
            result = self.load(entry)
            if result is not None:
                results[place] = result
                progress.advance(entry.work)
        missing = [place for place in range(len(entries)) if place not in results]

        def finished(number: int, result: T) -> None:
            results[missing[number]] = result
            self.save(entries[missing[number]], result)

        if missing:
            compute(missing, finished)
        return [results[place] for place in range(len(entries))]

    def result(self, entry: Entry[T], compute: Callable[[], T]) -> T:
        """The result of one entry: stored, or computed in this process and then stored."""
        (result,) = self.completed([entry], lambda _, finished: finished(0, compute()), NoProgress())
        return result

    def _path(self, entry: Entry[Any]) -> Path | None:
        if self.folder is None or entry.key is None:
            return None
        return self.folder / f"{hashlib.sha256(entry.key.encode()).hexdigest()[:24]}.{entry.form.suffix}"


@dataclass(frozen=True, eq=False, kw_only=True)
class Steps:
    """The steps of one computation, one after the other in this process: each is stored, and progress is told of it."""

    store: Store = field(default_factory=Store)
    key: str | None = None
    """What decides all steps; None if none is to be stored."""
    progress: Progress = field(default_factory=NoProgress)
    expect: Callable[[int], object] = lambda work: None
    """Is told how much work there is, once that is known."""

    def result(self, name: str, form: Form[T], compute: Callable[[], T], *, work: int = 0) -> T:
        """The result of one step: from the store, or computed and then stored."""
        self.progress.stage(name)
        entry = Entry(key=None if self.key is None else f"{self.key}/{name}", form=form)
        result = self.store.result(entry, compute)
        self.progress.advance(work)
        return result


def empty_store(folder: Path, field: str = "--fresh") -> None:
    """Delete the stored results in a folder, no other file, and the folder if nothing else is in it."""
    if not folder.is_dir():
        return
    for path in sorted(folder.iterdir()):
        try:
            if (
                _NAME.fullmatch(path.name)
                and path.is_file()
                and (path.name.startswith(".") or claimed_seal(_head(path)) is not None)
            ):
                path.unlink()
        except OSError as error:
            raise InputError(field, str(path), f"a file that can be deleted ({error.strerror})") from error
    with suppress(OSError):
        folder.rmdir()


def foreign_results(folder: Path | None) -> int:
    """How many stored results in a folder are not of this user of this machine; with a signing key none is trusted."""
    if folder is None or not folder.is_dir() or signing_key() is not None:
        return 0
    heads = [_head(path) for path in folder.iterdir() if _NAME.fullmatch(path.name) and path.is_file()]
    return sum(seal is not None and not seal.made_with(own_key()) for seal in map(claimed_seal, heads))


def _head(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(_HEAD_BYTES)


def _check_signature(seal: Seal) -> None:
    """Raise a ValueError if results are signed with a key here, and this one is not."""
    key = signing_key()
    if key is not None and not seal.made_with(key):
        raise ValueError("another signature")
