"""Files that are whole or absent: written beside their place, then moved into it."""

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
def atomically(path: Path) -> Iterator[Path]:
    """A temporary file that takes the place of `path` when the block ends well, and is gone when it does not.

    A full disk, or whatever else keeps it from being written, is an `OutputError`.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        temporary.replace(path)
    except OSError as error:
        raise OutputError(path, error.strerror or str(error)) from error
    except SafetensorError as error:
        raise OutputError(path, str(error)) from error
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write a file so that a reader sees the old one or the new one, never half of it."""
    with atomically(path) as temporary:
        temporary.write_bytes(content.encode("utf-8") if isinstance(content, str) else content)


def writable(folder: Path, field: str = "--out") -> None:
    """Fail before the work, not after it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise InputError(field, str(folder), f"a folder that can be written to ({error.strerror})") from error
