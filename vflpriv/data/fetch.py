"""Fills the data folder: downloads a data set from its source, verifies every file, and moves it into place."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from vflpriv.data.catalogue import all_datasets, dataset_named
from vflpriv.data.files import Dataset, data_folder, locate, verified
from vflpriv.data.sources import FetchError, Progress
from vflpriv.errors import InputError

__all__ = ["fetch"]


def fetch(name: str, folder: str | os.PathLike[str] | None = None, progress: Progress | None = None) -> Path:
    """Download a data set, unless it is there already, and return the folder it is in.

    Nothing is moved into that folder before the checksums of all files are right, and each move is atomic: a killed
    or failed fetch leaves no file that looks whole.
    """
    dataset, report = dataset_named(name), progress or (lambda line: None)
    target = data_folder(folder) / name
    if dataset.source is None:
        raise _not_fetchable(dataset, target)
    if _is_whole(dataset, target):
        report(f"{name} is in {target} already")
        return target
    try:
        target.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError("data.folder", str(target), f"a folder that can be written ({error.strerror})") from error
    # Inside the target, since a move is atomic only within one file system.
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=target) as work:
        downloaded = dataset.source.download(Path(work), dataset.files, report)
        report("verifying checksums")
        for path in _verified_files(dataset, downloaded, Path(work)):
            os.replace(path, target / path.name)
    report(f"{name} is in {target}")
    return target


def _not_fetchable(dataset: Dataset, target: Path) -> InputError:
    place = "" if dataset.own else f" ({target})"
    reason = f"cannot be fetched: put {dataset.by_hand}{place}" if dataset.by_hand else "needs no fetching"
    names = ", ".join(name for name, other in all_datasets().items() if other.source is not None)
    return InputError("data.name", dataset.name, f"one of {names}; {dataset.name} {reason}")


def _is_whole(dataset: Dataset, folder: Path) -> bool:
    paths = locate(dataset, folder)
    try:
        return all(name in paths and bool(verified(paths[name], sum_)) for name, sum_ in dataset.files.items())
    except InputError:
        return False  # a damaged file is replaced


def _verified_files(dataset: Dataset, downloaded: Path, work: Path) -> list[Path]:
    """All files, verified and decompressed, so that a damaged compressed one beside them is never read."""
    paths = locate(dataset, downloaded)
    if missing := [name for name in dataset.files if name not in paths]:
        raise FetchError(f"The package for {dataset.name} has no {missing[0]}.")
    (work / "ready").mkdir()
    for name, checksum in dataset.files.items():
        (work / "ready" / name).write_bytes(verified(paths[name], checksum))
    return [work / "ready" / name for name in dataset.files]
