"""Files that are complete or absent: written under a temporary name in the same folder, then renamed."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from safetensors import SafetensorError

from vflpriv.errors import InputError, OutputError

__all__ = ["atomically", "writable", "write_atomically"]


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
    """Write a file so that a reader sees the old content or the new one, never a part of it."""
    with atomically(path, durable=durable) as temporary:
        temporary.write_bytes(content.encode("utf-8") if isinstance(content, str) else content)


def writable(folder: Path, field: str = "--out") -> None:
    """Create the folder, and raise an error if no file can be written to it: before the work, not after it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise InputError(field, str(folder), f"a folder that can be written to ({error.strerror})") from error
