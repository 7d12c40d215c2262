"""Files with a seal: a checksum over the whole file and over the key under which it is stored.

A file that was damaged, exchanged or renamed, or that someone else wrote, is never read as a result.
"""

from __future__ import annotations

import hashlib
import re
import warnings
from contextlib import suppress
from pathlib import Path

from vflpriv.common.files import write_atomically
from vflpriv.errors import InputError, StoreWarning

__all__ = ["SEAL", "UNSEALED", "damaged", "read_sealed", "remove_sealed", "sealed_path", "write_sealed"]

SEAL = "vflpriv-sha256"
"""The JSON field, in the head of a file, that holds the checksum."""
UNSEALED = "0" * 64
"""The content of that field while the checksum is computed, and before `write_sealed`."""
_FIELD = re.compile(rf'"{SEAL}":"([0-9a-f]{{64}})"'.encode())
_NAME = re.compile(r"[0-9a-f]{24}\.(?:safetensors|json)|\.[0-9a-f]{24}\.(?:safetensors|json)\.\d+")
"""The names of such files, and of those that an interrupted write leaves."""
_HEAD = 256


def sealed_path(folder: Path, key: str, suffix: str) -> Path:
    """The file for this key."""
    return folder / f"{hashlib.sha256(key.encode()).hexdigest()[:24]}.{suffix}"


def write_sealed(path: Path, key: str, content: bytes) -> None:
    """Write a file whose first field `SEAL` is `UNSEALED`, with the checksum in its place."""
    write_atomically(path, content.replace(UNSEALED.encode(), _checksum(key, content).encode(), 1))


def read_sealed(path: Path, key: str) -> bytes | None:
    """The content of a file that was written under this key; None if there is none or, with a warning, another one."""
    try:
        content = path.read_bytes() if path.is_file() else None
    except OSError:
        content = b""
    if content is None:
        return None
    seal = _FIELD.search(content)
    if seal is not None:
        unsealed = content[: seal.start(1)] + UNSEALED.encode() + content[seal.end(1) :]
        if _checksum(key, unsealed) == seal[1].decode():
            return content
    damaged(path)
    return None


def damaged(path: Path) -> None:
    """Warn that a file is not used."""
    text = f"{path} is not what this program wrote: it is not used, and its content is computed again"
    warnings.warn(text, StoreWarning, stacklevel=2)


def remove_sealed(folder: Path, field: str = "--fresh") -> None:
    """Delete the files of this program in a folder, and the folder if nothing else is in it."""
    if not folder.is_dir():
        return
    for path in sorted(folder.iterdir()):
        try:
            if _NAME.fullmatch(path.name) and path.is_file() and (path.name.startswith(".") or _is_sealed(path)):
                path.unlink()
        except OSError as error:
            raise InputError(field, str(path), f"a file that can be deleted ({error.strerror})") from error
    with suppress(OSError):
        folder.rmdir()


def _is_sealed(path: Path) -> bool:
    with path.open("rb") as file:
        return _FIELD.search(file.read(_HEAD)) is not None


def _checksum(key: str, unsealed: bytes) -> str:
    return hashlib.sha256(key.encode() + b"\0" + unsealed).hexdigest()
