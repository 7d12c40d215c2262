"""The folder of a recording: one recording at a time writes to it, and what was there before is not lost unasked."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from enum import Enum, auto
from pathlib import Path

from vflpriv.errors import InputError
from vflpriv.recording.files.format import ANSWERS, HEAD, IDS, SHARDS
from vflpriv.recording.files.scoring_files import FEATURES, MEMBERS

try:
    import fcntl
except ImportError:  # Windows has no such locks; there two recordings in one folder are not noticed
    fcntl = None  # type: ignore[assignment]

__all__ = ["Earlier", "FolderLock", "make_room"]

_LOCK = ".recording.lock"
_ASIDE = "earlier-{}"


class Earlier(Enum):
    """What becomes of a transcript that is in the folder already."""

    REFUSED = auto()
    DELETED = auto()
    MOVED = auto()
    CONTINUED = auto()


class FolderLock:
    """Holds a folder for one recording, until it is released or the program ends, in whatever way."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / _LOCK
        self._handle: int | None = None
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._take(folder)
        except OSError as error:
            expected = f"a folder that can be made and written to ({error.strerror})"
            raise InputError("record: folder", str(folder), expected) from error

    def _take(self, folder: Path) -> None:
        while fcntl is not None:
            handle = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o644)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                owner = os.read(handle, 20).decode("ascii", "replace").strip()
                os.close(handle)
                raise InputError("record: folder", str(folder), _busy(owner)) from error
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(handle), self._path.stat()):
                    os.truncate(handle, 0)
                    os.write(handle, f"{os.getpid()}\n".encode())
                    self._handle = handle
                    return
            os.close(handle)  # its last owner deleted it before it was locked here

    def release(self) -> None:
        """Let others record into the folder."""
        if self._handle is not None:
            self._path.unlink(missing_ok=True)
            os.close(self._handle)
            self._handle = None


def _busy(owner: str) -> str:
    if owner == str(os.getpid()):
        return "a folder of its own: another recording of this program writes to it; wire.finish() ends that one"
    return f"a folder of its own: another recording, of process {owner or 'unknown'}, writes to it"


def make_room(folder: Path, earlier: Earlier) -> None:
    """Delete the transcript that is in the folder, move it aside, or raise an InputError that says how to."""
    # The head goes last: a folder that has one is still known to hold the rest of a transcript.
    names = [*folder.glob(SHARDS), *folder.glob(FEATURES), *(folder / n for n in (ANSWERS, MEMBERS, IDS, HEAD))]
    there = [path for path in names if path.exists()]
    if not there:
        return
    if earlier is Earlier.DELETED:
        for path in there:
            path.unlink()
    elif earlier is Earlier.MOVED:
        aside = _room_for_earlier(folder)
        aside.mkdir(exist_ok=True)
        for path in there:
            path.replace(aside / path.name)
        line = f"vflpriv: {folder}: the transcript that was there is in {aside} now; fresh=True deletes it instead"
        print(line, file=sys.stderr)  # noqa: T201
    else:
        raise InputError("record: folder", str(folder), "a folder without a transcript, fresh=True or resume=True")


def _room_for_earlier(folder: Path) -> Path:
    """The first without a whole transcript: one without its head was being filled when the program was killed."""
    number = 1
    while (folder / _ASIDE.format(number) / HEAD).exists():
        number += 1
    return folder / _ASIDE.format(number)
