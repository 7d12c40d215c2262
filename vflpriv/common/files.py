"""Files that are complete or absent, and seals that show whether a file is what was written.

A file is written under a temporary name in the same folder, then renamed.

A seal is a field in the head of a file, `"vflpriv-seal":"…"`. Its first 64 digits are the SHA-256 of all that the file
holds, the field left blank, and of what the file is: a damaged, exchanged or renamed file does not fit. Whoever can
change a file can compute that, too. Its other 64 digits are the HMAC-SHA256 of the checksum under a key that only some
know; they are zeros where there was no key.
"""

from __future__ import annotations

import errno
import hashlib
import hmac
import json
import os
import re
import stat
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from mmap import mmap
from pathlib import Path
from typing import Any, TypeAlias

from safetensors import SafetensorError

from vflpriv.errors import InputError, OutputError

__all__ = [
    "BLANK",
    "SEAL",
    "SIGNING_KEY",
    "Content",
    "Seal",
    "Sealing",
    "atomically",
    "claimed_seal",
    "opened",
    "own_key",
    "parsed_json",
    "regular",
    "sealed",
    "signing_key",
    "writable",
    "write_atomically",
]


@contextmanager
def atomically(path: Path, *, durable: bool = False) -> Iterator[Path]:
    """A temporary file that replaces `path` when the block succeeds, and is deleted when it fails.

    A full disk, or any other reason why it cannot be written, is an `OutputError`. A `durable` file is on the disk
    itself before it has its name, so that a machine that loses power has the old content or the new one, too.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        if durable:
            _sync(temporary)
        temporary.replace(path)
        if durable:
            with suppress(OSError):  # not every system opens folders
                _sync(path.parent)
    except OSError as error:
        raise OutputError(path, error.strerror or str(error)) from error
    except SafetensorError as error:
        raise OutputError(path, str(error)) from error
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_atomically(path: Path, content: str | bytes, *, durable: bool = False) -> None:
    """Write a file so that a reader sees the old content or the new one, never a part of it.

    A pipe or a device, such as `/dev/stdout`, is written into, and not replaced.
    """
    raw = content.encode("utf-8") if isinstance(content, str) else content
    if path.exists() and not (path.is_file() or path.is_dir()):
        _write_into(path, raw)
        return
    with atomically(path, durable=durable) as temporary:
        temporary.write_bytes(raw)


def _write_into(path: Path, raw: bytes) -> None:
    try:
        # Nobody waits for a reader that a pipe may never have.
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_NONBLOCK), "wb") as handle:
            os.set_blocking(handle.fileno(), True)
            handle.write(raw)
    except OSError as error:
        raise OutputError(path, error.strerror or str(error)) from error


def regular(path: Path) -> Path:
    """The path of a file that can be read to its end; an OSError for what is none, above all a pipe, which never ends.

    A link to nothing is a file that is not found.
    """
    mode = path.stat().st_mode
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "it is a pipe or a device, no file", str(path))
    return path


def parsed_json(text: str | bytes) -> Any:
    """The value of JSON text; a ValueError if it is none, is nested too deeply, or an object has a key twice, of which

    readers keep one or the other.
    """
    try:
        return json.loads(text, object_pairs_hook=_without_twins)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def _without_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"the key {next(name for name in names if names.count(name) > 1)!r} is there twice")
    return values


def writable(folder: Path, field: str = "--out") -> None:
    """Create the folder, and raise an error if no file can be written to it: before the work, not after it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise InputError(field, str(folder), f"a folder that can be written to ({error.strerror})") from error


# Seals

Content: TypeAlias = "bytes | memoryview | mmap"
"""The bytes of a file, in memory or mapped."""
SEAL = "vflpriv-seal"
"""The name of the field."""
_NO_MARK = "0" * 64
BLANK = "0" * 64 + _NO_MARK
"""The content of the field while the checksum is computed."""
_FIELD = re.compile(rf'"{SEAL}": ?"([0-9a-f]{{128}})"'.encode())
SIGNING_KEY = "VFLPRIV_SIGNING_KEY"
"""The variable that holds the key which signs transcripts and stored results; `_FILE` behind it names a file."""
_LEAST_BYTES, _OWN_BYTES = 16, 32


@dataclass(frozen=True)
class Seal:
    """What a file's seal says."""

    checksum: str
    mark: str

    @property
    def signed(self) -> bool:
        """Whether there is the mark of a key, whichever."""
        return self.mark != _NO_MARK

    def made_with(self, key: bytes | None) -> bool:
        """Whether whoever made the seal knew this key."""
        return key is not None and hmac.compare_digest(self.mark, _mark(self.checksum, key))


def sealed(what: str, content: Content, key: bytes | None) -> tuple[tuple[Content, ...], Seal]:
    """The parts of a file with its seal, and the seal; the content, of which nothing is copied, has a blank one.

    `what` says what the file is, and is told again when it is opened.
    """
    view = memoryview(content)
    start, end = _field(view)
    checksum = _checksum(what, view, start, end, signed=key is not None)
    seal = Seal(checksum, _NO_MARK if key is None else _mark(checksum, key))
    return (view[:start], (seal.checksum + seal.mark).encode(), view[end:]), seal


def opened(what: str, content: Content) -> Seal:
    """The seal of a file; a ValueError unless the content is what was sealed as this."""
    view = memoryview(content)
    seal, (start, end) = claimed_seal(view), _field(view)
    if seal is None or seal.checksum != _checksum(what, view, start, end, signed=seal.signed):
        raise ValueError("another seal")
    return seal


def claimed_seal(content: Content) -> Seal | None:
    """What is in the field of this part of a file, whether or not the content fits; None if there is no such field."""
    field = _FIELD.search(content)
    if field is None:
        return None
    digits = bytes(field[1]).decode()
    return Seal(digits[: len(_NO_MARK)], digits[len(_NO_MARK) :])


def _field(content: memoryview) -> tuple[int, int]:
    field = _FIELD.search(content)
    if field is None:
        raise ValueError("no seal")
    return field.span(1)


class Sealing:
    """A file that is sealed while it is written, whose head with a blank seal is known; `what` is as in `sealed`."""

    def __init__(self, what: str, head: bytes, key: bytes | None) -> None:
        self.place, end = _field(memoryview(head))
        """Where in the file the seal is to be written."""
        self._total, self._key = _began(what, signed=key is not None), key
        for part in (head[: self.place], BLANK.encode(), head[end:]):
            self._total.update(part)

    def update(self, content: Content) -> None:
        """The file goes on with this."""
        self._total.update(content)

    def seal(self) -> Seal:
        """The seal of what has been written."""
        checksum = self._total.hexdigest()
        return Seal(checksum, _NO_MARK if self._key is None else _mark(checksum, self._key))


def _began(what: str, *, signed: bool) -> hashlib._Hash:
    # Whether there is a mark is part of it: one that damage made of the zeros is found without a key.
    return hashlib.sha256(what.encode() + (b"\1" if signed else b"\0"))


def _checksum(what: str, content: memoryview, start: int, end: int, *, signed: bool) -> str:
    total = _began(what, signed=signed)
    for part in (content[:start], BLANK.encode(), content[end:]):
        total.update(part)
    return total.hexdigest()


def _mark(checksum: str, key: bytes) -> str:
    return hmac.new(key, checksum.encode(), hashlib.sha256).hexdigest()


def signing_key(environment: Mapping[str, str] = os.environ) -> bytes | None:
    """The key in the environment, or in the file that it names; None if there is none."""
    text, place = environment.get(SIGNING_KEY), environment.get(f"{SIGNING_KEY}_FILE")
    if text is not None and place is not None:
        raise InputError(SIGNING_KEY, "a key", f"this or {SIGNING_KEY}_FILE, not both")
    if text is None and place is None:
        return None
    try:
        key = regular(Path(place)).read_bytes() if place is not None else str(text).encode("utf-8", "surrogateescape")
    except OSError as error:
        raise InputError(f"{SIGNING_KEY}_FILE", place, f"a file that can be read ({error.strerror})") from error
    if len(key := key.strip()) < _LEAST_BYTES:
        raise InputError(SIGNING_KEY, f"a key of {len(key)} bytes", f"at least {_LEAST_BYTES}")
    return key


@cache
def own_key() -> bytes | None:
    """A key of this user on this machine, which tells own stored results from others; None if none can be kept."""
    folder = Path(os.environ.get("XDG_STATE_HOME") or "~/.local/state").expanduser() / "vflpriv"
    path = folder / "store.key"
    with suppress(OSError, RuntimeError):
        folder.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            _write_key(path)
        return path.read_bytes()
    return None


def _write_key(path: Path) -> None:
    """Draw the key; of two programs that do so at the same time, both use that of the first."""
    own = path.with_suffix(f".{os.getpid()}")
    handle = os.open(own, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(os.urandom(_OWN_BYTES))
    with suppress(FileExistsError):
        os.link(own, path)
    own.unlink()
