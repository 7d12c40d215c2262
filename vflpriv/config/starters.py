"""Starter files for a first audit, by the kind of system: what `vflpriv init` writes and `vflpriv demo` runs.

The files are templates in a folder of each kind, complete and commented; they are copied as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from vflpriv.common.files import write_atomically
from vflpriv.errors import InputError

__all__ = ["STARTERS", "Starter", "starter_named", "write_starter"]


@dataclass(frozen=True, kw_only=True)
class Starter:
    """The files for one kind of system, and the commands that audit it."""

    name: str
    summary: str
    commands: tuple[str, ...]
    """What to type in the folder of the files; the last one audits."""

    def texts(self) -> dict[str, str]:
        """The content of each file by its name."""
        folder = files("vflpriv.config").joinpath("templates", self.name)
        return {item.name: item.read_text("utf-8") for item in folder.iterdir() if item.is_file()}


_RECORDED = ("python train.py", "vflpriv audit --transcript transcript --ledger ledger.toml --out report")
STARTERS: Mapping[str, Starter] = {
    starter.name: starter
    for starter in (
        Starter(
            name="split",
            summary="train.py and ledger.toml: split learning in PyTorch, recorded by hooks on its modules",
            commands=_RECORDED,
        ),
        Starter(
            name="residuals",
            summary="train.py and ledger.toml: a system that says what it sends; logistic regression in NumPy",
            commands=_RECORDED,
        ),
        Starter(
            name="noised-embeddings",
            summary="train.py and ledger.toml: an MLP whose parties clip and noise their embeddings",
            commands=_RECORDED,
        ),
        Starter(
            name="label-dp",
            summary="train.py and ledger.toml: split learning on labels under randomised response",
            commands=_RECORDED,
        ),
        Starter(
            name="two-worlds",
            summary="train.py and ledger.toml: a training function that is trained in two worlds, to measure its noise",
            commands=("vflpriv audit --train train.py:train --ledger ledger.toml --out report",),
        ),
        Starter(
            name="engine",
            summary="audit.toml: a published system that vflpriv trains itself",
            commands=("vflpriv validate audit.toml", "vflpriv audit audit.toml --out report"),
        ),
    )
}
"""By name, in the order in which they are listed."""


def starter_named(name: str) -> Starter:
    """The starter of this name, or an error that lists them."""
    if name not in STARTERS:
        raise InputError("KIND", name, f"one of {', '.join(STARTERS)}")
    return STARTERS[name]


def write_starter(starter: Starter, folder: Path, *, force: bool = False) -> list[Path]:
    """Write the files into a folder, and return their paths; without `force`, a file that is there is not changed."""
    texts = {folder / name: text for name, text in sorted(starter.texts().items())}
    for path, text in texts.items():
        if not force and path.exists() and not (path.is_file() and path.read_bytes() == text.encode("utf-8")):
            raise InputError(
                "FOLDER", str(folder), f"a folder without a {path.name} of your own, or --force to replace it"
            )
    for path, text in texts.items():
        write_atomically(path, text)
    return list(texts)
